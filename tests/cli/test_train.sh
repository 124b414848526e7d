#!/bin/sh
# `fsdp train` from outside: the same bits at any world size, options, data in every form, what goes
# wrong and what is left behind then, signals.
# usage: FSDP_BUILD=build tests/cli/test_train.sh
. "$(dirname "$0")/lib.sh"
needs libcsv sentencepiece
tokenizer=$root/data/tokenizers/t5
mkdir tmp
TMPDIR=$dir/tmp
export TMPDIR

# train RANKS ARGUMENTS...: on the tiny model and its ids; output in ./o
train() {
    ranks=$1
    shift
    rm -rf o
    run launch -n "$ranks" train --model tiny --from-config --data ids.jsonl --output o \
        --epochs 1 --batch-size 4 --num-workers 0 --metrics m.jsonl "$@"
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
model() { tiny_t5 "$1" 21 5 3 37 2 "$2" "$3"; }
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


# --- weights that the model has no use for are named ---
mkdir biased
cp "${tokenizer%/data/tokenizers/t5}"/tests/golden/llama_bias/model/* biased
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

# --- masters and optimizer state in a file: the same bits, in less memory ---
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
check a_new_folder_is_told grep -q '^--offload-dir masters: the folder is new$' first_out
train 2 --bf16 --offload-dir no/such/masters
refused a_folder_without_its_parent_is_a_slip '--offload-dir no/such/masters: there is no folder no/such to make it in'
check and_none_of_it_is_made [ ! -e no ]
touch plain
train 2 --offload-dir plain
refused a_folder_that_is_a_file '--offload-dir|plain'

# --- a trace changes nothing, and is there whole ---
train 2 --bf16 --profile trace.json --profile-steps 2:3
keep again
check a_profile_changes_no_bit same kept again
check time_by_category_is_printed grep -q 'sharding itself' out
check the_trace_has_both_ranks [ "$(grep -c '"name":"step","cat":"module","ph":"X"' trace.json)" -eq 4 ]
check no_temporary_trace_is_left [ "$(ls trace.json* | wc -l)" -eq 1 ]
train 1 --profile trace.json --profile-steps 3:2
refused a_window_ends_after_it_begins "--profile-steps '3:2'"
train 1 --profile trace.json --profile-steps 1000:1001
expect a_window_lies_within_the_run 1 'the run has '
train 1 --profile-steps 1:2
refused a_window_needs_a_file '--profile-steps needs --profile FILE'
train 2 --optimizer adam
keep adam
train 2 --weight-decay 0
keep adamw0
check adam_without_decay_is_adamw_without same adam adamw0
train 2 --optimizer adam --weight-decay 0.1
keep adam
train 2 --weight-decay 0.1
keep adamw1
cmp -s adam.weights adamw1.weights && bad its_decay_is_another "" || ok its_decay_is_another
train 2 --optimizer sgd --momentum 0.9
keep sgd
train 2 --optimizer sgd --momentum 0.9 --nesterov
keep nesterov
cmp -s sgd.weights nesterov.weights && bad nesterov_is_another_momentum "" || ok nesterov_is_another_momentum
train 2 --optimizer adafactor --lr 0.01
expect adafactor_trains 0
keep adafactor2
train 1 --optimizer adafactor --lr 0.01 --gradient-accumulation-steps 2
keep adafactor1
check adafactor_gives_the_same_bits_at_any_world_size same adafactor1 adafactor2
train 1 --optimizer adafactor --beta1 0.5
refused adafactor_has_no_beta1_here '--beta1 is for --optimizer adamw, not adafactor'

# --- options ---
train 2 --epochs 2 --validation-data validation.jsonl --evaluation-steps 2
check validation_after_every_second_step [ "$(numbers m.jsonl | grep -c validation)" -eq 5 ]
keep full
for strategy in SHARD_GRAD_OP NO_SHARD; do
    train 2 --epochs 2 --validation-data validation.jsonl --evaluation-steps 2 --sharding-strategy $strategy
    keep other
    check "the_same_bits_with_$strategy" same full other
done
train 2 --frozen-prefixes encoder
keep frozen
train 2 --frozen-prefixes encoder --sharding-strategy NO_SHARD
keep other
check the_same_bits_with_NO_SHARD_of_what_is_frozen same frozen other
train 4 --shard-size 3
refused replicas_that_do_not_divide_the_ranks '--shard-size 3 does not divide the 4 ranks'
train 2 --sharding-strategy hybrid_shard
check without_a_size_a_host_is_one_replica grep -q '^one replica, .*as FULL_SHARD' out
train 4
keep full4
train 4 --reshard-after-forward 2
keep smaller
check the_same_bits_where_backward_gathers_among_two same full4 smaller
train 4 --reshard-after-forward 3
refused ranks_that_do_not_divide 'reshard_after_forward to 3 ranks of the 4'
train 4 --sharding-strategy HYBRID_SHARD --shard-size 2
check replicas_are_told grep -q '^2 replicas, each sharded over 2 ranks$' out
keep hybrid
check the_same_bits_with_two_replicas same full4 hybrid
train 4 --data-parallel-replicate-degree 4 --data-parallel-shard-degree -1 --no-reshard-after-forward
check torchtitans_degrees_mean_hybrid grep -q 'HYBRID_SHARD_ZERO2$' out
keep hybrid
check the_same_bits_with_four_replicas same full4 hybrid
units() { grep -o 'FSDPT5[A-Za-z]*(' out | sort -u | tr -d '\n'; }
for wrap in --auto-wrap-policy=none --min-num-params=3000 --transformer-layer-cls-to-wrap=T5Stack,T5LayerFF; do
    train 2 --epochs 2 --validation-data validation.jsonl --evaluation-steps 2 --print-model $wrap
    keep other
    check "the_same_bits_with_$wrap" same full other
    units >>units
    echo >>units
done
check each_policy_has_its_units [ "$(cat units)" = "FSDPT5ForConditionalGeneration(
FSDPT5Block(FSDPT5ForConditionalGeneration(
FSDPT5ForConditionalGeneration(FSDPT5LayerFF(FSDPT5Stack(" ]
check the_tree_is_printed_once_with_shares [ "$(grep -Ec '^FSDPT5For.*\(  # float32, [0-9]+ of [0-9]+ elements$' out)" -eq 1 ]
train 2 --max-steps 1 --print-model fsdp1
check and_as_fsdp1_prints_it grep -q '^ *(_fsdp_wrapped_module): T5ForConditionalGeneration(' out
train 2 --max-steps 1 --use-orig-params --sync_module_states true --cpu_ram_efficient_loading yes --device-id 0
expect what_changes_nothing_is_told 0 '^fsdp train: note: --use-orig-params: parameters always keep their names'
check with_others_of_the_same_reason grep -q '^fsdp train: note: --sync-module-states, --cpu-ram-efficient-loading: each rank reads its own rows' err
check by_one_rank [ "$(grep -c 'note: --device-id: this build computes on the CPU' err)" -eq 1 ]
train 2 --transformer-layer-cls-to-wrap T5Blok
refused an_unknown_class_is_told 'T5Blok: .*did you mean T5Block. Units can be: T5Stack, '
train 2 --auto-wrap-policy NO_WRAP --min-num-params 5
refused a_contradiction_in_wrapping '--min-num-params is for --auto-wrap-policy SIZE_BASED_WRAP, not NO_WRAP'
train 2 --auto-wrap-policy size --transformer-layer-cls-to-wrap T5Block
refused classes_for_another_policy 'is for --auto-wrap-policy TRANSFORMER_BASED_WRAP, not SIZE_BASED_WRAP'
export FSDP_AUTO_WRAP_POLICY=TRANSFORMER_BASED_WRAP FSDP_TRANSFORMER_CLS_TO_WRAP=T5Stack FSDP_MIN_NUM_PARAMS=100000000
train 2 --max-steps 1 --print-model
unset FSDP_AUTO_WRAP_POLICY FSDP_TRANSFORMER_CLS_TO_WRAP FSDP_MIN_NUM_PARAMS
check accelerates_variables_are_known [ "$(units)" = "FSDPT5ForConditionalGeneration(FSDPT5Stack(" ]
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
train 2 --max-train-samples 32 --lr-schedule inverse_sqrt --warmup-steps 1 --lr 0.3 --max-steps 4 --epochs 2
check inverse_square_root_schedule [ "$(rates | sed 's/\(0\.[0-9]\{6\}\)[0-9]*/\1/g')" = "0.0 0.3 0.212132 0.173205 " ]
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
check the_configuration_is_printed_once [ "$(grep -c '^# batch-size: 4 ' out)" -eq 1 ]
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

# --- other tasks ---
mkdir llama bert tokens
cat >llama/config.json <<JSON
{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 67, "hidden_size": 21,
 "intermediate_size": 37, "num_hidden_layers": 2, "num_attention_heads": 3, "num_key_value_heads": 1,
 "head_dim": 6, "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
 "hidden_act": "silu", "initializer_range": 0.02, "tie_word_embeddings": false, "bos_token_id": 1,
 "eos_token_id": 2}
JSON
cat >bert/config.json <<JSON
{"model_type": "bert", "architectures": ["BertForSequenceClassification"], "vocab_size": 67,
 "hidden_size": 21, "intermediate_size": 37, "num_hidden_layers": 2, "num_attention_heads": 3,
 "max_position_embeddings": 40, "type_vocab_size": 2, "hidden_act": "gelu", "layer_norm_eps": 1e-12,
 "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1, "initializer_range": 0.2,
 "pad_token_id": 0, "id2label": {"0": "no", "1": "yes"}, "label2id": {"no": 0, "yes": 1}}
JSON
# nanoGPT's form: 201 tokens of two bytes, which are the letters A and @ in turn (65 and 64)
awk 'BEGIN { for (i = 0; i < 201; i++) printf "%s", i % 2 ? "@" : "A" }' | sed 's/./&\x00/g' >tokens/train.bin
head -c 82 tokens/train.bin >tokens/val.bin
awk 'BEGIN { for (i = 0; i < 24; i++) {
    printf "{\"input_ids\": [2, %d, %d, 3], \"label\": %d}\n", 5 + 30 * (i % 2) + i, 6 + 30 * (i % 2) + i, i % 2 } }' >classes.jsonl
train 2 --model llama --data tokens --validation-data tokens --max-seq-length 20 --epochs 3 --lr 0.01
check token_files_are_ten_rows_and_two [ "$(grep -c 'Size of .*: *\(10\|2\)$' out)" -eq 2 ]
check a_causal_model_learns falls
check perplexity_is_measured grep -q '"validation".*"perplexity": [0-9.]*}' m.jsonl
check perplexity_is_printed grep -Eq 'Validation Loss: [0-9.]*, Perplexity: ' out
check perplexity_has_a_column grep -q 'validation loss .*perplexity' out
for ranks in 1 2; do
    train $ranks --model llama --data tokens --validation-data tokens --max-seq-length 20 --lr 0.01 \
        --gradient-accumulation-steps $((2 / ranks)) --generate-examples 2 --max-target-length 3
    sed -n '/^example/,$p' out >examples.$ranks
done
check a_row_is_continued_the_same_on_any_ranks cmp examples.1 examples.2
check by_as_many_tokens_as_asked_for [ "$(grep -c '^generated:\( [0-9][0-9]*\)\{1,3\}$' examples.1)" -eq 2 ]
train 2 --model bert --data classes.jsonl --validation-data classes.jsonl --epochs 3 --lr 0.01
check a_classifier_learns falls
check accuracy_is_measured grep -q '"validation".*"accuracy": [0-9.]*, "f1": [0-9.]*}' m.jsonl
check accuracy_is_printed grep -Eq 'Accuracy: [0-9.]*, F1: ' out
train 2 --model bert --task causal-lm --data classes.jsonl
refused a_task_of_another_model '--task causal-lm: bert is a BertForSequenceClassification, which is for classification'
train 2 --model llama --data all.csv
refused a_causal_model_without_a_tokenizer 'all.csv: CSV needs a tokenizer .llama holds no spiece.model'
train 2 --model llama --data tokens/val.bin --max-seq-length 41
refused a_file_too_short_for_a_row 'val.bin: 41 tokens, fewer than a row of 41'
train 2 --model bert --data tokens
refused token_files_for_a_classifier 'token files are for causal language modeling'
sed 's/"label": 1/"label": 2/' classes.jsonl >three.jsonl
train 2 --model bert --data three.jsonl
refused a_class_beyond_the_model_s 'three.jsonl: line 2: .*label: expected an integer from 0 to 1'

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
train 2 --fp16 --init-scale 1e9
expect a_step_that_overflows_is_told 0 'step 1: gradients overflow with a loss scale of 1e.09: no update, the next scale is 5e.08'
train 2 --fp16 --init-scale 1e9 --backoff-factor 0.125 --max-steps 1
expect by_another_factor 0 'no update, the next scale is 1.25e.08'
train 2 --fp16 --init-scale 2 --growth-interval 1 --growth-factor 4 --max-steps 3
check and_grows_by_another_factor grep -q '"loss_scale": 32.0' m.jsonl
train 2 --fp16 --init-scale 1e9
check and_counted grep -q 'of the steps updated nothing: gradients overflowed' out
check and_marked_in_the_metrics grep -Eq '"grad_norm": ?"NaN".*"loss_scale": ?1000000000.*"skipped": ?true' m.jsonl
rm -rf o
train 2 --lr 1e30 --epochs 3
refused a_diverging_run_names_step_and_value 'at step 2, optimizer step: (fsdp train: )?step 2: the .* is NaN'
check its_metrics_are_whole_lines [ "$(grep -vc '^{.*}$' m.jsonl)" -eq 0 ]
cp -r saved best
run launch -n 2 train --model saved --data ids.jsonl --output best --overwrite-output --lr 1e30
if [ "$rc" -eq 1 ] && cmp -s best/model.safetensors saved/model.safetensors; then ok the_model_before_stays
else bad the_model_before_stays "exit code $rc"; fi

# --- what the run itself puts beside the model ---
train 2 --metrics o/m.jsonl --profile o/trace.json --max-steps 1
expect metrics_and_a_profile_may_lie_in_the_output 0
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
expect but_nothing_that_lay_there_before 1 'empty: the directory exists and is not empty'
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

tally
