#!/bin/sh
# `fsdp train` from outside: the same bits at any world size, options, data in every form, what goes
# wrong and what is left behind then, signals.
# usage: FSDP_BUILD=build tests/cli/test_train.sh
fsdp=${FSDP_BUILD:-build}/fsdp
case $fsdp in /*) ;; *) fsdp=$(pwd)/$fsdp ;; esac
tokenizer=$(cd "$(dirname "$0")/../.." && pwd)/data/tokenizers/t5
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
mkdir tmp
TMPDIR=$dir/tmp
export TMPDIR
passed=0 failed=0

ok() { passed=$((passed + 1)); echo "ok $1"; }
bad() {
    failed=$((failed + 1))
    echo "FAIL $1: $2"
    tail -n 4 out | cut -c 1-200 | sed 's/^/    out: /'
    tail -n 4 err | cut -c 1-300 | sed 's/^/    err: /'
}
# check NAME COMMAND...: it succeeds
check() {
    name=$1
    shift
    if "$@"; then ok "$name"; else bad "$name" "$*"; fi
}
run() {
    timeout -s KILL 60 "$fsdp" "$@" >out 2>err
    rc=$?
}
# train RANKS ARGUMENTS...: on the tiny model and its ids; output in ./o
train() {
    ranks=$1
    shift
    rm -rf o
    run launch -n "$ranks" train --model tiny --from-config --data ids.jsonl --output o \
        --epochs 1 --batch-size 4 --num-workers 0 --metrics m.jsonl "$@"
}
# expect NAME RC [TEXT]: the exit code, and TEXT (extended regular expression) on stderr
expect() {
    if [ "$rc" -ne "$2" ]; then
        bad "$1" "exit code $rc, not $2"
    elif [ -n "$3" ] && ! grep -Eq -- "$3" err; then
        bad "$1" "stderr lacks '$3'"
    else
        ok "$1"
    fi
}
# refused NAME TEXT: an error that says TEXT once, and nothing is left of an output folder
refused() {
    if [ -e o ] || ls o.* >/dev/null 2>&1; then
        bad "$1" "left behind: $(ls -d o o.* 2>/dev/null | tr '\n' ' ')"
    elif [ "$rc" -eq 0 ]; then
        bad "$1" "it succeeded"
    elif [ "$(grep -Ec -- "$2" err)" -ne 1 ]; then
        bad "$1" "stderr does not say '$2' once"
    else
        ok "$1"
    fi
}
# numbers FILE: step, loss, gradient norm and rate of each step; loss of each validation
numbers() {
    sed -n 's/.*"step", "step": \([0-9]*\),.*"loss": \([^,]*\),.*"grad_norm": \([^,]*\), "lr": \([^,]*\),.*/\1 \2 \3 \4/p
        s/.*"validation", "step": \([0-9]*\),.*"loss": \([^,]*\),.*/validation \1 \2/p' "$1"
}
rates() { numbers m.jsonl | sed -n 's/^[0-9]* [^ ]* [^ ]* //p' | tr '\n' ' '; }
losses() { numbers "$1" | grep -v validation | cut -d ' ' -f 2 | tr '\n' ' '; }
steps() { grep -c '"kind": "step"' m.jsonl; }
# keep NAME: numbers and weights of the run under NAME
keep() {
    numbers m.jsonl >"$1.numbers"
    cp o/model.safetensors "$1.weights"
}
same() { [ "$rc" -eq 0 ] && cmp -s "$1.numbers" "$2.numbers" && cmp -s "$1.weights" "$2.weights"; }
falls() { # the last validation loss is below the first
    numbers m.jsonl | sed -n 's/validation [0-9]* //p' | awk 'NR == 1 {first = $1} {last = $1}
        END {exit !(NR > 1 && last < first)}'
}
orphans() { pgrep -f "train --model $dir/tiny" >/dev/null 2>&1; }

# --- a model and data ---
# model DIR VOCABULARY EXTRA: nothing is even or divisible
model() {
    mkdir -p "$1"
    cat >"$1/config.json" <<JSON
{"model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "is_encoder_decoder": true,
 "d_model": 21, "d_kv": 5, "num_heads": 3, "d_ff": 37, "num_layers": 2, "num_decoder_layers": 2,
 "vocab_size": $2, "relative_attention_num_buckets": 8, "relative_attention_max_distance": 20,
 "dropout_rate": 0.1, "layer_norm_epsilon": 1e-6, "initializer_factor": 1.0,
 "pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0$3}
JSON
}
model tiny 67 ', "feed_forward_proj": "gated-gelu", "tie_word_embeddings": false'
model tied 67 ', "feed_forward_proj": "relu"'
model words 32128 ''
# 37 rows: blocks of 16 leave one row and three empty leaves at the end
awk 'BEGIN { for (i = 0; i < 37; i++) {
    printf "{\"input_ids\": [%d", 2 + i % 65
    for (k = 1; k < 3 + i * 7 % 19; k++) printf ", %d", 2 + (i * 31 + k * k * 7) % 65
    printf "], \"labels\": ["
    for (k = 0; k < 1 + i * 5 % 7; k++) printf "%d, ", 2 + (i + k * 3) % 65
    print "1]}" } }' >ids.jsonl
head -n 13 ids.jsonl >validation.jsonl
awk 'BEGIN { print "headline,title,text"; for (i = 0; i < 11; i++)
    printf "\"Wash\nthe car %d.\",How to %d,\"Take \"\"soap\"\" and water, %d times.\"\r\n", i, i, i }' >all.csv
awk 'BEGIN { print "overview,headline,text,sectionLabel,title"; for (i = 0; i < 5; i++)
    printf "An overview,Wash it %d.,Été: take soap and water %d times.,Steps,How to %d\n", i, i, i }' >sep.csv
mkdir folder
cp all.csv folder/wikihowAll.csv
cp all.csv folder/more.csv

# --- the same bits at any world size ---
for form in "tiny float32" "tiny bfloat16" "tied float32"; do
    set -- $form
    for split in "1 4" "2 2" "4 1"; do
        kind=$*
        set -- $split
        ranks=$1 steps=$2
        set -- $kind
        train "$ranks" --model "$1" --param-dtype "$2" --gradient-accumulation-steps "$steps" \
            --epochs 2 --max-grad-norm 1.0 --validation-data validation.jsonl --dropout 0.2
        keep "split$ranks"
        if [ "$ranks" -gt 1 ]; then
            if same split1 "split$ranks"; then ok "the_same_bits_on_${ranks}_ranks_$1_$2"
            else bad "the_same_bits_on_${ranks}_ranks_$1_$2" "$(diff split1.numbers "split$ranks.numbers" | head -n 4)"; fi
        fi
    done
    [ "$(steps)" -eq 6 ] && ok "steps_$1_$2" || bad "steps_$1_$2" "$(steps), not 6"
done
train 3 --epochs 2
keep first
train 3 --epochs 2 --num-workers 2
keep second
check three_ranks_twice_are_the_same_whoever_loads same first second
train 3 --epochs 2 --seed 2
keep second
if same first second; then bad another_seed_is_another_run "the same bits"; else ok another_seed_is_another_run; fi

# --- options ---
train 2 --epochs 2 --validation-data validation.jsonl --evaluation-steps 2
check validation_after_every_second_step [ "$(numbers m.jsonl | grep -c validation)" -eq 5 ]
keep full
for strategy in SHARD_GRAD_OP NO_SHARD; do
    train 2 --epochs 2 --validation-data validation.jsonl --evaluation-steps 2 --sharding-strategy $strategy
    keep other
    check "the_same_bits_with_$strategy" same full other
done
train 2 --sampler distributed --max-steps 3
check a_distributed_sampler_runs [ "$rc" -eq 0 ]
check max_steps_ends_it [ "$(steps)" -eq 3 ]
train 2 --sampler distributed
check padded_to_whole_batches [ "$(steps)" -eq 5 ]
train 2 --drop-last
check drop_last_leaves_out_the_rest [ "$(steps)" -eq 4 ]
train 1 --no-shuffle --max-train-samples 8
keep first
head -n 8 ids.jsonl >eight.jsonl
train 1 --no-shuffle --data eight.jsonl
keep second
check the_first_rows_in_file_order same first second
train 2 --epochs 3 --max-train-samples 8
check step_schedule_by_epoch [ "$(rates)" = "0.002 0.0014 0.00098 " ]
train 2 --max-train-samples 24 --schedule-unit step --step-size 2 --gamma 0.5 --lr 0.4 --epochs 2
check step_schedule_by_step [ "$(rates)" = "0.4 0.4 0.2 0.2 0.1 0.1 " ]
train 2 --max-train-samples 32 --lr-schedule linear --warmup-steps 2 --lr 0.8 --epochs 2 --max-steps 6
check linear_schedule_with_warmup [ "$(rates)" = "0.0 0.4 0.8 0.6000000000000001 0.4 0.2 " ]
train 2 --max-train-samples 32 --lr-schedule cosine --min-lr 0.1 --lr 0.3 --max-steps 4
check cosine_schedule_with_a_floor [ "$(rates | sed 's/\(0\.[0-9]\{6\}\)[0-9]*/\1/g')" = "0.3 0.270710 0.2 0.129289 " ]
train 2 --lr-schedule linear --warmup-steps 100
refused more_warmup_than_steps 'total_steps is 5, less than warmup_steps 100'
train 2 --optimizer sgd --momentum 0.9 --lr 0.05 --validation-data validation.jsonl --epochs 4
check sgd_learns falls
train 2 --master-dtype bf16 --param-dtype bf16 --validation-data validation.jsonl --epochs 4 --lr 0.01
check bf16_masters_learn falls
train 2 --reduce-dtype bf16 --param-dtype bf16 --validation-data validation.jsonl --epochs 4 --lr 0.01
check bf16_reduction_learns falls
train 2 --max-steps 2
keep first
train 2 --max-steps 2 --weight-decay 0.5
keep second
if same first second; then bad weight_decay_counts "the same bits"; else ok weight_decay_counts; fi
train 2 --max-steps 2 --max-grad-norm 0.001
check the_norm_is_told_before_clipping [ "$(head -n 1 first.numbers | cut -d ' ' -f 3)" = "$(numbers m.jsonl | head -n 1 | cut -d ' ' -f 3)" ]
train 2 --max-steps 1
of_tokens=$(losses m.jsonl)
train 2 --max-steps 1 --loss-reduction mean-of-means
of_means=$(losses m.jsonl)
check mean_of_means_is_another_mean [ "$of_tokens" != "$of_means" ]
train 2 --max-steps 1 --tutorial-loss
check the_tutorials_word_for_it [ "$(losses m.jsonl)" = "$of_means" ]
train 2 --max-steps 2 --no-save-model
if [ "$rc" -eq 0 ] && [ ! -e o ]; then ok no_save_model_saves_none; else bad no_save_model_saves_none "rc $rc"; fi

for ranks in 1 3; do
    train $ranks --gradient-accumulation-steps $((3 / ranks)) --validation-data validation.jsonl --max-steps 2 \
        --generate-examples 2 --max-target-length 9
    sed -n '/^example/,$p' out >examples.$ranks
done
check examples_are_generated_the_same_on_any_ranks cmp examples.1 examples.3
check as_many_as_asked_for [ "$(grep -c '^generated: [0-9 ]*$' examples.1)" -eq 2 ]

# --- what people see ---
run launch -n 2 train --model tiny --from-config --data ids.jsonl --output o --metrics m.jsonl --overwrite-output
check lines_without_carriage_returns_in_a_pipe [ "$(cat out err | tr -cd '\r' | wc -c)" -eq 0 ]
check a_table_of_epochs grep -q 'epoch .*train loss .*validation loss' out
check memory_by_purpose grep -q 'peak memory .*param .*grad .*optim .*activation' out
check one_line_at_the_end grep -Eq '^10 steps, median .* host memory of all ranks .* at most' out
run launch -n 2 train --model tiny --data ids.jsonl --no-save-model --print-config
check the_configuration_is_printed_once [ "$(grep -c '^batch-size: 4 ' out)" -eq 1 ]
run train --model tiny --data ids.jsonl --output o --dtype bf16
expect a_near_miss_is_suggested 2 "unknown option '--dtype'; did you mean '--param-dtype'"
run train --model tiny --data ids.jsonl --output o --plot p.png
expect a_plot_needs_metrics 2 'plot.*metrics'
rm -rf o

# --- the model goes on ---
train 2 --max-steps 2
cp -r o saved
run train --model saved --data ids.jsonl --output o --overwrite-output --max-steps 1 --metrics m.jsonl --num-workers 0
expect a_saved_model_trains_on 0
train 2 --output o --max-steps 2
run train --model o --data ids.jsonl --output o --overwrite-output --max-steps 1 --num-workers 0
expect in_its_own_folder_too 0

# --- data ---
for data in all.csv sep.csv folder; do
    train 2 --model words --tokenizer "$tokenizer" --data $data --max-steps 2
    expect "$data" 0
done
check the_tokenizer_is_saved_with_the_model cmp -s o/spiece.model "$tokenizer/spiece.model"
cp o/spiece.model words/
train 2 --model words --data all.csv --max-source-length 4 --max-target-length 3 --batch-size 1 --max-steps 1
check lengths_are_cut grep -q '"tokens": 14,' m.jsonl
rm words/spiece.model

train 2 --data all.csv
refused a_missing_tokenizer_is_told 'all.csv: CSV needs a tokenizer'
train 2 --data all.csv --tokenizer "$tokenizer"
refused a_small_vocabulary_is_told '32100 ids, but the model.s vocab_size is 67'
train 2 --model words --data all.csv --tokenizer "$dir/none"
refused a_tokenizer_that_is_not_there "$dir/none: .*No such file"
printf 'headline,text\nx,y\n"open,z\n' >broken.csv
train 2 --model words --tokenizer "$tokenizer" --data broken.csv
refused a_bad_row_has_its_line 'broken.csv:.*3'
printf 'headline,article\nx,y\n' >columns.csv
train 2 --model words --tokenizer "$tokenizer" --data columns.csv
refused a_missing_column_is_named "columns.csv.*text"
{ head -n 4 ids.jsonl; echo '{"input_ids": [4, "x"], "labels": [1]}'; } >broken.jsonl
train 2 --data broken.jsonl --epochs 9
refused a_bad_id_has_its_line 'broken.jsonl.*5.*input_ids'
{ head -n 4 ids.jsonl; echo '{"input_ids": [4, 67], "labels": [1]}'; } >large.jsonl
train 2 --data large.jsonl
refused an_id_beyond_the_vocabulary 'large.jsonl.*5.*67'
train 2 --data none.jsonl
refused a_missing_file 'none.jsonl: No such file'
train 2 --validation-data none.jsonl
refused a_missing_validation_file 'none.jsonl: No such file'
: >empty.jsonl
train 2 --data empty.jsonl
refused an_empty_file 'empty.jsonl'
train 2 --drop-last --batch-size 64
refused drop_last_that_leaves_nothing 'drop_last'

# --- models ---
train 2 --model nothing
refused a_model_that_is_not_there "'nothing' is neither a directory nor"
mkdir -p keyless dtypes
sed 's/"d_kv": 5, //' tiny/config.json >keyless/config.json
train 2 --model keyless
refused a_config_without_a_key 'keyless/config.json.*d_kv'
cp saved/* dtypes/
sed 's/"dtype": "[a-z0-9]*"/"dtype": "float13"/; s/"torch_dtype": "[a-z0-9]*"/"torch_dtype": "float13"/' saved/config.json >dtypes/config.json
run launch -n 2 train --model dtypes --data ids.jsonl --output o --max-steps 1
refused an_unknown_dtype_in_the_config 'dtypes/config.json.*float13'
mkdir -p truncated shapes nans
cp saved/* truncated/
size=$(wc -c <saved/model.safetensors)
head -c $((size - 100)) saved/model.safetensors >truncated/model.safetensors
run launch -n 2 train --model truncated --data ids.jsonl --output o --max-steps 1
refused truncated_weights 'truncated/model.safetensors'
cp saved/* shapes/
sed 's/"d_ff": 37/"d_ff": 36/' saved/config.json >shapes/config.json
run launch -n 2 train --model shapes --data ids.jsonl --output o --max-steps 1
refused wrong_shapes 'shapes/model.safetensors.*3[67]'
cp saved/* nans/
{ head -c $((size - 400)) saved/model.safetensors; head -c 400 /dev/zero | tr '\0' '\377'; } >nans/model.safetensors
run launch -n 2 train --model nans --data ids.jsonl --output o --max-steps 1
refused weights_that_are_nan 'step 1: .* is NaN'
run launch -n 2 train --model tiny --data ids.jsonl --output o --max-steps 1
refused a_folder_without_weights 'tiny'

# --- what goes wrong is told before training ---
mkdir taken
echo mine >taken/file
before=$(ls)
for arguments in "--output taken" "--output ids.jsonl" "--output ids.jsonl/deep" "--output /proc/model" \
    "--metrics none/m.jsonl" "--plot none/plot.png" "--metrics tiny"; do
    train 2 $arguments
    if [ "$rc" -ne 0 ] && ! grep -q 'Training Epoch' err && [ "$(wc -l <err)" -eq 1 ]; then
        ok "refused_before_training $arguments"
    else bad "refused_before_training $arguments" "exit code $rc"; fi
done
check nothing_was_made [ "$(ls)" = "$before" ]
train 2 --output taken --max-steps 1
expect the_way_out_is_told 1 '--overwrite-output'
train 2 --output taken --overwrite-output --max-steps 1
if [ "$rc" -eq 0 ] && [ -e taken/file ] && [ -e taken/model.safetensors ]; then ok what_else_is_there_stays
else bad what_else_is_there_stays "$(ls taken)"; fi
train 2 --output new/deep/model --max-steps 1
check missing_parents_are_made [ -e new/deep/model/config.json ]

# --- numbers that are none ---
train 2 --lr 1e30 --epochs 3
refused a_diverging_run_names_step_and_value 'at step 2, optimizer step: fsdp train: step 2: the .* is NaN'
check its_metrics_are_whole_lines [ "$(grep -vc '^{.*}$' m.jsonl)" -eq 0 ]
cp -r saved best
run launch -n 2 train --model saved --data ids.jsonl --output best --overwrite-output --lr 1e30
if [ "$rc" -eq 1 ] && cmp -s best/model.safetensors saved/model.safetensors; then ok the_model_before_stays
else bad the_model_before_stays "exit code $rc"; fi

# --- a full disk ---
train 2 --max-steps 1 --output disk
cp disk/model.safetensors before.weights
(ulimit -f 80 && run train --model saved --data ids.jsonl --output disk --overwrite-output --max-steps 1; echo "$rc" >rc)
if [ "$(cat rc)" -eq 1 ] && grep -q 'disk.*File too large' err && cmp -s disk/model.safetensors before.weights &&
    [ "$(ls -d disk*)" = disk ]; then
    ok a_full_disk_leaves_the_old_model
else bad a_full_disk_leaves_the_old_model "exit code $(cat rc), $(ls -d disk*)"; fi
(ulimit -f 8 && train 2 --max-steps 1 && echo "$rc" >rc)
rc=$(cat rc)
refused a_limit_below_the_shared_memory 'File too large'

# --- ended from outside ---
# begin RANKS ARGUMENTS...: training that would take hours, in the background, under way
begin() {
    ranks=$1
    shift
    rm -rf o m.jsonl
    "$fsdp" launch -n "$ranks" train --model tiny --from-config --data ids.jsonl --output o --epochs 1000000 \
        --batch-size 4 --metrics m.jsonl "$@" >out 2>err &
    launcher=$!
    tries=0
    until grep -q '"step": 12,' m.jsonl 2>/dev/null || [ $tries -ge 200 ]; do
        tries=$((tries + 1))
        sleep 0.05
    done
    set -- $(pgrep -P "$launcher")
    first=$1 second=$2
    start=$(date +%s)
}
finish() {
    wait "$launcher"
    rc=$?
    took=$(($(date +%s) - start))
}
# ended NAME RC TEXT: within 5 s, with a message, and nothing is left
ended() {
    if [ "$rc" -ne "$2" ] || ! grep -Eq -- "$3" err; then bad "$1" "exit code $rc, or stderr lacks '$3'"
    elif [ "$took" -gt 5 ]; then bad "$1" "it took $took s"
    elif [ -n "$(pgrep -g "$first,$second")" ]; then bad "$1" "processes remain"
    elif ls -d o.* >/dev/null 2>&1; then bad "$1" "left behind: $(ls -d o.*)"
    elif [ "$(ls tmp)" ]; then bad "$1" "left in TMPDIR: $(ls tmp)"
    else ok "$1"; fi
}
begin 2
kill -KILL "$second"
finish
ended a_killed_rank_is_named 1 "rank 1 \(pid $second\) was killed by signal 9 \(Killed\) at step [0-9]+, "
begin 3 --validation-data validation.jsonl --evaluation-steps 1 --lr 0.0001
kill -KILL "$first"
finish
ended rank_0_killed_among_saves 1 "rank 0 \(pid $first\) was killed by signal 9 \(Killed\)"
run train --model o --data ids.jsonl --no-save-model --max-steps 1 --num-workers 0
expect its_last_model_is_whole 0
begin 2
kill -ABRT "$first"
finish
ended a_crash_is_named 1 "rank 0 \(pid $first\) was killed by signal 6"
begin 2
kill -INT "$launcher"
finish
ended an_interrupt_ends_it 130 'Interrupt: ending 2 ranks'
begin 2 --validation-data validation.jsonl --evaluation-steps 1 --lr 0.0001
kill -TERM "$launcher"
finish
ended sigterm_among_saves_ends_it 143 'Terminated: ending 2 ranks'
begin 2
kill -STOP "$second"
tries=0
until grep -q "rank 1 (pid $second) is stopped" err || [ $tries -ge 60 ]; do
    tries=$((tries + 1))
    sleep 0.05
done
check a_stopped_rank_is_told grep -q "rank 1 (pid $second) is stopped" err
kill -INT "$launcher"
finish
ended stopped_ranks_end_too 130 'Interrupt'

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
