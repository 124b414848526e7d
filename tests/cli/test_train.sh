#!/bin/sh
# `fsdp train` as a user runs it: the same bits at any world size and in less memory; errors and
# the files that remain; signals. For its options and tasks see test_train_options.sh.
# usage: FSDP_BUILD=build tests/cli/test_train.sh
. "$(dirname "$0")/train.sh"
model tied 67 ', "feed_forward_proj": "relu"'

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
check three_ranks_twice_are_the_same_whichever_rank_loads same first second
train 3 --epochs 2 --seed 2
keep second
if same first second; then bad another_seed_is_another_run "the same bits"; else ok another_seed_is_another_run; fi

# --- weights that the model does not use are named ---
mkdir biased
cp "$golden"/llama_bias/model/* biased
sed -i 's/"attention_bias": true/"attention_bias": false/' biased/config.json
echo '{"input_ids": [3, 4, 5, 6]}' >tokens.jsonl
run launch -n 2 train --model biased --data tokens.jsonl --no-save-model --max-steps 1
expect unused_weights_are_named 0 'no use for these weights of the files: model.layers.0.self_attn.k_proj.bias, '
check unused_weights_are_named_once [ "$(grep -c 'no use for' err)" -eq 1 ]

# --- activation checkpointing: the same bits, in less memory; another optimizer ---
peak() { sed -n 's/.*"summary".*"memory_peak": {[^}]*"activation": \([0-9]*\).*/\1/p' m.jsonl; }
train 2 --bf16
keep kept
kept=$(peak)
train 2 --bf16 --gradient-checkpointing
keep again
check activation_checkpointing_changes_no_bit same kept again
check and_needs_less_memory [ "$(peak)" -lt "$kept" ]
for form in "every 2" "kind op"; do
    set -- $form
    train 2 --bf16 "--activation-checkpointing-$1" "$2"
    keep again
    check "activation_checkpointing_$1_changes_no_bit" same kept again
done
train 2 --bf16 --activation-offload --offload-dir staged
keep again
check activation_offload_changes_no_bit same kept again
check no_offload_file_is_left [ -d staged -a -z "$(ls staged)" ]
check the_offload_file_is_reported grep -q 'activation offload: at most ' out
train 1 --activation-offload --no-activation-checkpointing
refused offload_needs_checkpointing '--no-activation-checkpointing contradicts --activation-offload'

# --- master weights and optimizer state in a file: the same bits, in less memory ---
optim() { sed -n 's/.*"summary".*"memory_peak": {[^}]*"optim": \([0-9]*\).*/\1/p' m.jsonl; }
train 2 --bf16
kept=$(optim)
train 2 --bf16 --offload-dir masters
cp out first_out
keep again
check offload_changes_no_bit same kept again
check and_needs_less_optimizer_state [ "$(optim)" -lt "$kept" ]
check nothing_is_left_in_the_folder [ -d masters -a -z "$(ls masters)" ]
train 2 --bf16 --cpu-offload
keep again
check cpu_offload_changes_no_bit same kept again
check and_says_so_once [ "$(grep -c 'CPU offload changes nothing' err)" -eq 1 ]
train 2 --bf16 --offload-dir masters --sharding-strategy NO_SHARD --frozen-prefixes decoder.
check each_ranks_file_has_what_is_frozen_and_one_line_says_so [ "$(grep -c "NO_SHARD: each rank's offloaded file has all frozen" err)" -eq 1 ]
train 2 --bf16 --cpu-offload --activation-offload --offload-dir masters
keep again
check all_is_offloaded_at_once same kept again
check a_new_folder_is_reported grep -q '^--offload-dir masters: the folder is new$' first_out
train 2 --bf16 --offload-dir no/such/masters
refused a_folder_without_its_parent_is_a_slip '--offload-dir no/such/masters: there is no folder no/such to create it in'
check and_none_of_it_is_made [ ! -e no ]
touch plain
train 2 --offload-dir plain
refused a_folder_that_is_a_file '--offload-dir|plain'

# --- a trace changes no numbers and is complete ---
train 2 --bf16 --profile trace.json --profile-steps 2:3
keep again
check a_profile_changes_no_bit same kept again
check time_by_category_is_printed grep -q 'sharding itself' out
check the_trace_has_both_ranks [ "$(grep -c '"name":"step","cat":"module","ph":"X"' trace.json)" -eq 4 ]
check no_temporary_trace_is_left [ "$(ls trace.json* | wc -l)" -eq 1 ]
train 1 --profile trace.json --profile-steps 3:2
refused a_window_ends_after_it_begins "--profile-steps '3:2'"
train 1 --profile trace.json --profile-steps 1000:1001
expect a_window_is_within_the_run 1 'the run has '
train 1 --profile-steps 1:2
refused a_window_needs_a_file '--profile-steps needs --profile FILE'

# --- output for people ---
run launch -n 2 train --model tiny --from-config --data ids.jsonl --output o --metrics m.jsonl --overwrite-output
check lines_without_carriage_returns_in_a_pipe [ "$(cat out err | tr -cd '\r' | wc -c)" -eq 0 ]
check a_table_of_epochs grep -q 'epoch .*train loss .*validation loss' out
check memory_by_purpose grep -q 'peak memory .*param .*grad .*optim .*activation' out
check one_line_at_the_end grep -Eq '^10 steps, median .* host memory of all ranks .* at most' out
cp m.jsonl kept.jsonl
run plot -o new.jsonl m.jsonl
expect a_picture_is_no_metrics_file 2 'output new.jsonl: that is the name of a metrics file'
run plot -o new.gif m.jsonl
expect a_picture_has_one_of_three_formats 2 'output: new.gif: a picture is a .png, .svg or .pdf, not a .gif'
ln m.jsonl curve.png
run plot -o curve.png m.jsonl
expect what_is_drawn_is_not_drawn_over 2 'output curve.png is one of the files to plot'
echo notes >notes.md
cp notes.md notes.png
run plot -o notes.png m.jsonl
expect nor_is_what_is_no_picture 2 'output notes\.png: the existing file is not a picture and would be overwritten'
for flag in '--metrics notes.md:metrics file' '--profile notes.md:profile' '--metrics new.jsonl --plot notes.md:picture'; do
    run train --model tiny --from-config --data ids.jsonl --output o ${flag%%:*}
    expect "a_run_does_not_overwrite_what_is_no_${flag##*:}" 2 "notes\.md: the existing file is not a ${flag##*:}"
done
check all_of_which_leave_it test "$(cat notes.md)" = notes
lacks cairo || for kind in png svg pdf; do
    for time in first second; do
        run plot -o twice.$kind m.jsonl
        check "a_${time}_plot_writes_a_$kind" [ "$rc" -eq 0 ]
    done
    run train --model tiny --from-config --data ids.jsonl --no-save-model --max-steps 1 --metrics new.jsonl --overwrite-output --plot twice.$kind
    check "a_run_may_draw_over_a_$kind" [ "$rc" -eq 0 ]
done
check and_the_file_stays cmp -s m.jsonl kept.jsonl
rm curve.png kept.jsonl
"$fsdp" train --model tiny --from-config --data ids.jsonl --no-save-model --max-steps 1 --metrics closed.jsonl >&- 2>err
rc=$?
expect closed_output_is_a_failure 1 'Bad file descriptor'
check and_nothing_of_it_is_in_another_file [ "$(grep -vc '^{' closed.jsonl)" -eq 0 ]
rm closed.jsonl
run launch -n 2 train --model tiny --data ids.jsonl --no-save-model --print-config
check the_configuration_is_printed_once [ "$(grep -c '^# batch-size: 4 ' out)" -eq 1 ]
run train --model tiny --data ids.jsonl --output o --parm-dtype bf16
expect a_near_miss_is_suggested 2 "unknown option '--parm-dtype'; did you mean '--param-dtype'"
run train --model tiny --data ids.jsonl --output o --dtype bf16
expect what_is_called_otherwise_says_how 2 'dtype: bf16 is not supported: --master-dtype and --param-dtype'
run train --model tiny --data ids.jsonl --output o --plot p.png
expect a_plot_needs_metrics 2 'plot.*metrics'
run train --model tiny --data ids.jsonl --output o --metrics m.jsonl --plot p.jpg
expect a_plot_s_format_is_seen_at_once 2 'plot: p.jpg: a picture is a .png, .svg or .pdf, not a .jpg'
rm -rf o

# --- the trained model is usable ---
train 2 --max-steps 2
cp -r o saved
run train --model saved --data ids.jsonl --output o --overwrite-output --max-steps 1 --metrics m.jsonl --num-workers 0
expect a_saved_model_trains_on 0
train 2 --output o --max-steps 2
run train --model o --data ids.jsonl --output o --overwrite-output --max-steps 1 --num-workers 0
expect in_its_own_folder_too 0

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
refused weights_that_are_nan 'step 1: .* is NaN; parameter shared.weight has values that are not finite, and had them when training began'
run launch -n 2 train --model nans --data ids.jsonl --output o --max-steps 1 --fp16
refused weights_that_are_nan_are_no_overflow_of_float16 'step 1: .* is NaN; parameter shared.weight has values that are not finite'
run launch -n 2 train --model tiny --data ids.jsonl --output o --max-steps 1
refused a_folder_without_weights 'tiny'

# --- errors are reported before training ---
mkdir taken
echo mine >taken/file
before=$(ls)
for arguments in "--output taken" "--output ids.jsonl" "--output ids.jsonl/deep" "--output /proc/model" \
    "--metrics /proc/none/m.jsonl" "--plot /proc/none/plot.png" "--metrics tiny"; do
    train 2 $arguments
    # train() gives --output and --metrics, which a note says are replaced.
    lines=$(grep -vc -e 'accepted, without effect here:$' -e 'comes later, and the last value counts$' err)
    if [ "$rc" -ne 0 ] && ! grep -q 'Training Epoch' err && [ "$lines" -eq 1 ]; then
        ok "refused_before_training $arguments"
    else bad "refused_before_training $arguments" "exit code $rc"; fi
done
check nothing_was_made [ "$(ls)" = "$before" ]
train 2 --output taken --max-steps 1
expect the_way_out_is_reported 1 '--overwrite-output'
train 2 --output taken --overwrite-output --max-steps 1
if [ "$rc" -eq 0 ] && [ -e taken/file ] && [ -e taken/model.safetensors ]; then ok what_else_is_there_stays
else bad what_else_is_there_stays "$(ls taken)"; fi
train 2 --output new/deep/model --max-steps 1
check missing_parents_are_made [ -e new/deep/model/config.json ]

# --- numbers that are not finite ---
train 2 --fp16 --init-scale 1e9
expect a_step_that_overflows_is_reported 0 'step 1: gradients overflow with a loss scale of 1e.09: no update, the next scale is 5e.08'
train 2 --fp16 --init-scale 1e9 --backoff-factor 0.125 --max-steps 1
expect by_another_factor 0 'no update, the next scale is 1.25e.08'
train 2 --fp16 --init-scale 2 --growth-interval 1 --growth-factor 4 --max-steps 3
check and_grows_by_another_factor grep -q '"loss_scale": 32.0' m.jsonl
train 2 --fp16 --init-scale 1e9
check and_counted grep -q 'of the steps updated nothing: gradients overflowed' out
check and_marked_in_the_metrics grep -Eq '"grad_norm": ?"NaN".*"loss_scale": ?1000000000.*"skipped": ?true' m.jsonl
rm -rf o
# A Llama with such large weights that its forward overflows in float16 with any loss scale.
mkdir large
sed 's/"initializer_range": [0-9.]*/"initializer_range": 100/' "$golden/llama3/model/config.json" >large/config.json
for i in 1 2 3 4 5 6 7 8 9 10; do echo "{\"input_ids\": [$i, 7, 8, 9]}"; done >large.jsonl
run launch -n 2 train --model large --from-config --data large.jsonl --output o --batch-size 1 --fp16
refused a_forward_that_overflows_ends_the_run 'step 4: the loss is NaN in 4 steps in a row, .*bfloat16 has float32.s range'
check and_is_not_called_an_overflow_of_gradients [ "$(grep -c 'gradients overflow' err)" -eq 0 ]
check but_the_loss_before_it_is_scaled [ "$(grep -c 'step [123]: the loss is NaN before it is scaled' err)" -eq 3 ]
run train --model large --from-config --data large.jsonl --output o --batch-size 1 --max-steps 3 --fp16
expect an_epoch_without_a_finite_loss_has_no_mean_loss 0 '^Train Epoch: .*Loss: .*NaN$' out
check which_is_nan_in_the_table_too [ "$(grep -ci 'nan' out)" -eq 2 ]
check and_never_minus_nan [ "$(grep -c 'nan' out)" -eq 0 ]
rm -rf o
run train --model large --from-config --data large.jsonl --validation-data large.jsonl --output o \
    --batch-size 1 --max-steps 2 --evaluation-steps 1 --validation-batch-size 4 --fp16
refused a_validation_that_overflows_names_rows 'validation after step 1: the loss of rows 0 to 3 is NaN: float16'
run train --model large --from-config --data large.jsonl --output o --batch-size 1 --bf16 --lr 0
expect and_trains_in_bfloat16 0
rm -rf o
train 2 --lr 1e30 --epochs 3
refused a_diverging_run_names_step_and_value 'at step 2, optimizer step: (fsdp train: )?step 2: the .* is NaN'
check its_metrics_are_whole_lines [ "$(grep -vc '^{.*}$' m.jsonl)" -eq 0 ]
cp -r saved best
run launch -n 2 train --model saved --data ids.jsonl --output best --overwrite-output --lr 1e30
if [ "$rc" -eq 1 ] && cmp -s best/model.safetensors saved/model.safetensors; then ok the_model_before_stays
else bad the_model_before_stays "exit code $rc"; fi

# --- other files in the output folder ---
train 2 --metrics o/m.jsonl --profile o/trace.json --max-steps 1
expect metrics_and_a_profile_may_be_in_the_output 0
check beside_the_model [ -s o/model.safetensors -a -s o/m.jsonl -a -s o/trace.json ]
check and_end_there [ "$(grep -c '"kind": "summary"' o/m.jsonl)" -eq 1 ]
mkdir empty
train 2 --output empty --checkpoint-dir empty --save-steps 2
expect and_checkpoints_as_transformers_has_them 0
check beside_the_model_too [ -s empty/model.safetensors -a -s empty/checkpoint-2/.metadata ]
train 2 --output empty --max-steps 1
expect what_another_run_saved_is_not_replaced 1 'empty: the directory exists and is not empty'

# Each attempt saves after its first step, whose rate is 0, and then diverges.
rm -rf o
run launch -n 2 --max-restarts 1 train --model tiny --from-config --data ids.jsonl --output o --lr 1e30 \
    --validation-data validation.jsonl --evaluation-steps 1 --lr-schedule linear --warmup-steps 1
check a_restart_replaces_what_its_job_saved [ "$(grep -c 'status 1 at step' err)" -eq 2 -a -s o/model.safetensors ]
run launch -n 2 --max-restarts 1 train --model tiny --from-config --data ids.jsonl --output empty
expect but_nothing_that_was_there_before 1 'empty: the directory exists and is not empty'
check and_there_is_no_restart [ "$(grep -c 'starting all' err)" -eq 0 ]

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
# begin RANKS ARGUMENTS...: starts a training that would take hours in the background
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
# ended NAME RC TEXT: must end within 5 s with a message, and leave nothing
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
ended a_killed_rank_is_named 1 "rank 1 \(pid $second\) was killed by signal 9 \(Killed\) at step [0-9]+(, |$)" # without a place between forward and backward
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
check a_stopped_rank_is_reported grep -q "rank 1 (pid $second) is stopped" err
kill -INT "$launcher"
finish
ended stopped_ranks_end_too 130 'Interrupt'
run launch -n 2 sh -c '[ $RANK = 1 ] || FSDP_TIMEOUT_S=9 exec "$0" train --model tiny --from-config --data ids.jsonl --no-save-model' "$fsdp"
expect a_rank_that_never_joins_is_missed 1 'rank 1 \(pid [0-9]+\): ended without joining the process group$'

tally
