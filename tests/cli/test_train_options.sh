#!/bin/sh
# `fsdp train` as a user runs it: optimizers, options, all forms of data, tasks.
# usage: FSDP_BUILD=build tests/cli/test_train_options.sh
. "$(dirname "$0")/train.sh"
needs libcsv utf8proc
tokenizer=$root/data/tokenizers/t5

rates() { numbers m.jsonl | sed -n 's/^[0-9]* [^ ]* [^ ]* //p' | tr '\n' ' '; }
losses() { numbers "$1" | grep -v validation | cut -d ' ' -f 2 | tr '\n' ' '; }
falls() { # the last validation loss must be below the first
    numbers m.jsonl | sed -n 's/validation [0-9]* //p' | awk 'NR == 1 {first = $1} {last = $1}
        END {exit !(NR > 1 && last < first)}'
}

model words 32128 ''
awk 'BEGIN { print "headline,title,text"; for (i = 0; i < 11; i++)
    printf "\"Wash\nthe car %d.\",How to %d,\"Take \"\"soap\"\" and water, %d times.\"\r\n", i, i, i }' >all.csv
awk 'BEGIN { print "overview,headline,text,sectionLabel,title"; for (i = 0; i < 5; i++)
    printf "An overview,Wash it %d.,Été: take soap and water %d times.,Steps,How to %d\n", i, i, i }' >sep.csv
mkdir folder
cp all.csv folder/wikihowAll.csv
cp all.csv folder/more.csv

# --- texts are those in the file ---
# text_loss FILE FLAGS...: prints the loss of the first step, without dropout, which depends on
# lengths
text_loss() {
    file=$1
    shift
    rm -rf o
    run train --model words --from-config --tokenizer "$tokenizer" --data "$file" --output o --epochs 1 \
        --lr 0 --dropout 0 --num-workers 0 --metrics m.jsonl "$@"
    sed -n 's/.*"step", "step": 1,.*"loss": \([^,]*\),.*/\1/p' m.jsonl
}
printf 'text,headline\n"cut the\nrope","a ""short""\nrope"\n' >t_lines.csv
printf 'text,headline\ncut the rope,"a ""short"" rope"\n' >t_spaces.csv
printf 'text,headline\ncut therope,a shortrope\n' >t_joined.csv
lines=$(text_loss t_lines.csv)
check a_line_end_is_a_space [ -n "$lines" -a "$lines" = "$(text_loss t_spaces.csv)" ]
check texts_are_not_cleaned [ "$lines" != "$(text_loss t_joined.csv)" ]
cleaned=$(text_loss t_lines.csv --wikihow-cleaning)
check cleaning_joins_and_takes_quotes [ "$cleaned" = "$(text_loss t_joined.csv)" ]
# evaluate and generate on the same row
text_loss t_lines.csv >/dev/null
run evaluate --model o --data t_lines.csv --prompts prompts --predictions predicted --json
check evaluate_reads_the_same_texts grep -q "\"loss\": $lines[,}]" out
check prompts_have_their_lines_joined_by_spaces [ "$(cat prompts)" = 'summarize: cut the rope' ]
run evaluate --model o --data t_lines.csv --wikihow-cleaning --no-generate --json
check evaluate_cleans_on_request grep -q "\"loss\": $cleaned[,}]" out
printf '{"input_ids": [5], "labels": [1]}\n' >t_ids.jsonl
run evaluate --model o --data t_ids.jsonl --wikihow-cleaning
expect evaluate_cleans_no_ids 1 "t_ids.jsonl: WikiHow's cleaning is for pairs of texts in CSV"
train 1 --wikihow-cleaning
refused ids_are_not_cleaned '--wikihow-cleaning is for rows that are pairs of texts; those of ids.jsonl are not'

# --- forms of files ---
printf '[{"text": "cut the\\nrope", "headline": "a \\"short\\"\\nrope"}]' >t_lines.json
check texts_of_an_array_of_json_are_those_of_csv [ "$lines" = "$(text_loss t_lines.json)" ]
printf 'text\theadline\n"cut the\nrope"\t"a ""short""\nrope"\n' >t_lines.tsv
check and_those_of_a_tsv [ "$lines" = "$(text_loss t_lines.tsv)" ]
cp t_lines.tsv t_tabs.csv
check and_those_of_a_csv_with_tabs [ "$lines" = "$(text_loss t_tabs.csv)" ]
check which_is_reported says 't_tabs.csv: fields are separated by tabs'
check cleaning_has_two_names [ "$cleaned" = "$(text_loss t_lines.csv --cleaning wikihow)" ]
check cleaning_is_for_json_too [ "$cleaned" = "$(text_loss t_lines.json --cleaning wikihow)" ]
text_loss t_lines.csv --cleaning none --wikihow-cleaning >/dev/null
expect names_of_cleaning_agree 2 '--cleaning none contradicts --wikihow-cleaning true'
printf '{"translation": {"en": "cut the rope", "de": "a short rope"}}\n' >t_pairs.json
text_loss t_pairs.json >/dev/null
expect languages_must_be_named 1 'translation has en, de: --source-lang and --target-lang say which'
printf 'text,headline\ncut the rope,a short rope\n' >t_pairs.csv
check translations_have_no_prefix [ "$(text_loss t_pairs.csv --task-prefix=)" = "$(text_loss t_pairs.json --source-lang en --target-lang de)" ]
text_loss t_pairs.json --source-lang en >/dev/null
expect a_language_alone_is_refused 2 '--source-lang needs --target-lang'
text_loss t_pairs.csv --json-field rows >/dev/null
expect an_option_for_json_is_not_for_csv 1 '--json-field is for JSON; t_pairs.csv is something else'
text_loss t_lines.csv --max-source-length 3 >/dev/null
check what_is_cut_is_counted shows 't_lines.csv: 1 of 1 rows are cut, by [0-9]+ tokens'
check also_in_the_metrics grep -q '"left_out": {"counted_rows": 1, "cut_rows": 1, "cut_tokens": [1-9]' m.jsonl
run evaluate --model o --data t_lines.csv --max-source-length 3 --no-generate --json
expect and_by_evaluate 0 't_lines.csv: 1 of 1 rows are cut, by [0-9]+ tokens'
run evaluate --model o --data t_lines.json --no-generate --json
check evaluate_reads_the_same_texts_of_json grep -q "\"loss\": $lines[,}]" out

# --- validation on the first batches only ---
head -n 2 validation.jsonl >first.jsonl
check there_are_more_rows [ "$(wc -l <validation.jsonl)" -gt 2 ]
train 1 --max-steps 1 --dropout 0 --validation-data validation.jsonl --validation-batch-size 1 --eval-iters 2
keep few
train 1 --max-steps 1 --dropout 0 --validation-data first.jsonl --validation-batch-size 1
keep all
check eval_iters_limits_the_batches same few all
train 1 --eval-iters 2
refused eval_iters_needs_validation '--eval-iters needs --validation-data'

# --- label smoothing ---
loss_of() { sed -n 's/.*"'"$1"'", "step": 1,.*"loss": \([^,]*\),.*/\1/p' m.jsonl; }
train 1 --max-steps 1 --dropout 0 --validation-data validation.jsonl
plain=$(loss_of step) valid=$(loss_of validation)
train 1 --max-steps 1 --dropout 0 --validation-data validation.jsonl --label_smoothing_factor 0.1
check smoothing_changes_the_loss [ -n "$(loss_of step)" -a "$(loss_of step)" != "$plain" ]
check also_of_validation [ -n "$(loss_of validation)" -a "$(loss_of validation)" != "$valid" ]

# --- texts with classes ---
cp -r "$golden/bert_tiny/model" classes
sed -i '/id2label/,/}/d; /label2id/,/}/d; s/"vocab_size": [0-9]*/"vocab_size": 32128/' classes/config.json
rm -f classes/*.safetensors
printf 'sentence1,sentence2,label\ncut the rope,a short rope,sports\na rope,a knot,arts\ncut,paste,film\n' >t_named.csv
class_train() {
    rm -rf o
    run train --model classes --from-config --tokenizer "$tokenizer" --output o --epochs 1 --num-workers 0 --metrics m.jsonl "$@"
}
class_train --data t_named.csv --validation-data t_named.csv
expect classes_are_those_of_the_rows 0 '^3 classes, from the labels of t_named.csv: arts, film, sports$' out
check and_are_saved grep -q '"1": "film"' o/config.json
check also_the_other_way grep -q '"sports": 2' o/config.json
expect the_columns_are_named 0 "the text is 'sentence1', the second text 'sentence2'"
run evaluate --model o --tokenizer "$tokenizer" --data t_named.csv --json
expect evaluate_knows_the_names 0 '"accuracy": ' out
sed '/film/d; s/arts/equivalent/; s/sports/not_equivalent/' t_named.csv >t_two.csv
class_train --data t_two.csv
expect which_class_f1_is_of_is_said 0 '^2 classes, .*: equivalent, not_equivalent; F1 is that of not_equivalent \(--class-names gives another order\)$' out
printf '[{"text": "cut the rope", "label": 4}, {"text": "a rope", "label": 0}]' >t_five.json
class_train --data t_five.json
expect numbers_are_classes_too 0 '^5 classes, from the labels of t_five.json$' out
class_train --data t_five.json --num-labels 3
expect a_class_beyond_num_labels_is_refused 1 't_five.json: row 1 .line 1.: label: expected an integer from 0 to 2'
class_train --data t_named.csv --text-column sentence2 --label-column sentence1
expect columns_are_options 0 '^3 classes, from the labels of t_named.csv: a rope, cut, cut the rope$' out
class_train --data t_named.csv --target-column label
expect a_class_is_no_target 1 '--target-column: classification has --label-column'
run plan --model classes --from-config --data t_named.csv
expect the_plan_has_these_classes 0

# --- rows of ids: lengths, and options for texts only ---
awk 'BEGIN { for (r = 0; r < 4; r++) { printf "{\"input_ids\": [9"; for (i = 1; i < 40; i++) printf ", %d", 2 + (i * 7 + r) % 60
    printf ", 1], \"labels\": [5"; for (i = 1; i < 20; i++) printf ", %d", 2 + (i * 3 + r) % 60; print ", 1]}" } }' >long.jsonl
awk 'BEGIN { for (r = 0; r < 4; r++) { printf "{\"input_ids\": [9"; for (i = 1; i < 11; i++) printf ", %d", 2 + (i * 7 + r) % 60
    printf ", 1], \"labels\": [5"; for (i = 1; i < 6; i++) printf ", %d", 2 + (i * 3 + r) % 60; print ", 1]}" } }' >short.jsonl
train 2 --data short.jsonl --batch-size 2
keep short
train 2 --data long.jsonl --batch-size 2 --max-source-length 12 --max-target-length 7
keep cut
check ids_are_cut_and_keep_their_end same short cut
check tokens_are_those_of_the_plan grep -q '"tokens": 76,' m.jsonl
run plan --model tiny --data long.jsonl --world-size 2 --batch-size 2 --max-source-length 12 --max-target-length 7
check the_plan_has_that_batch shows 'batch of a rank: 2 x 12 \+ 7 tokens'
run plan --model tiny --data long.jsonl --world-size 2 --batch-size 2
check without_lengths_it_says_that_they_are_assumed shows 'tokens \(assumed: rows of ids are cut only to'
train 1 --data long.jsonl --batch-size 2
check without_a_length_ids_are_whole grep -q '"tokens": 124,' m.jsonl
run evaluate --model o --data long.jsonl --max-source-length 12 --max-target-length 7 --json
sed -n 's/.*\("loss": [^,]*\),.*/\1/p' out >of_long
run evaluate --model o --data short.jsonl --json
sed -n 's/.*\("loss": [^,]*\),.*/\1/p' out >of_short
check evaluate_cuts_ids_alike [ -s of_long -a "$(cat of_long)" = "$(cat of_short)" ]
train 1 --task-prefix 'sum: '
refused ids_take_no_prefix '--task-prefix is for rows that are texts; those of ids.jsonl are not'
train 1 --text-column a
refused ids_have_no_columns '--text-column is for rows that are texts with names'
run evaluate --model tiny --from-config --data long.jsonl --task-prefix 'sum: '
expect ids_take_no_prefix_in_evaluate 1 '--task-prefix is for rows that are texts; those of long.jsonl are ids'
sed 's/}$/, "url": "a"}/' ids.jsonl >keys.jsonl
train 2 --data keys.jsonl --max-steps 1
check an_unused_key_is_noted_once [ "$(grep -c "keys.jsonl: not used: 'url' (line 1)" err)" -eq 1 ]
train 2 --data keys.jsonl --max-steps 1 --validation-split-percentage 40
check and_once_if_the_validation_rows_are_in_the_same_file \
    [ "$(grep -c "keys.jsonl: not used: 'url' (line 1)" err)" -eq 1 ]
sed '3s/}$/, "sample_weight": 2}/' ids.jsonl >keys.jsonl
train 2 --data keys.jsonl
refused a_weight_of_a_row_is_refused 'keys.jsonl: line 3: row: sample_weight: expected 1, or none: losses have no weights'

# --- optimizers ---
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
train 2 --optim schedule_free_adamw --warmup-steps 2 --validation-data validation.jsonl --evaluation-steps 1
expect schedule_free_adamw_trains 0
keep free2
validated=$(sed -n 's/^validation [0-9]* //p' free2.numbers | tail -n 1)
run evaluate --model o --data validation.jsonl --json
evaluated=$(sed -n 's/.*"loss": \([^,]*\),.*/\1/p' out)
check the_saved_model_is_the_one_that_was_validated awk "BEGIN { d = $validated - $evaluated; exit !(d * d < 1e-12) }"
grep -v validation free2.numbers >free2.steps
mv free2.steps free2.numbers
train 1 --optim schedule_free_adamw --warmup-steps 2 --gradient-accumulation-steps 2
keep free1
check evaluations_and_ranks_change_no_bit same free1 free2
train 1 --optim schedule_free_adamw --max-steps 2 --save-steps 2
run checkpoint convert o-checkpoints/checkpoint-2 converted
expect a_checkpoint_has_the_weights_of_training 0 'the weights at which schedule_free_adamw computes gradients, not their average'
rm -rf converted o-checkpoints
train 1 --optimizer adafactor --beta1 0.5
refused adafactor_has_no_beta1_here '--beta1 is for --optimizer adamw, adam, adamw_8bit, muon and schedule_free_adamw, not adafactor'

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
train 4 --sharding-strategy HYBRID_SHARD --shard-size 2 --cpu-offload
check one_replica_warns [ "$(grep -c 'CPU offload changes nothing' err)" -eq 1 ]
check replicas_are_reported grep -q '^2 replicas, each sharded over 2 ranks$' out
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
train 2 --max-steps 1 --use-orig-params --sync_module_states true --cpu_ram_efficient_loading yes --pin-memory
expect what_changes_nothing_is_reported 0 '^fsdp train: accepted, without effect here:$'
check by_name grep -q '^    --use-orig-params: parameters always keep their names' err
check with_others_of_the_same_reason grep -q '^    --sync-module-states, --cpu-ram-efficient-loading: each rank reads its own rows' err
check by_one_rank [ "$(grep -c -- '--pin-memory: ids are copied' err)" -eq 1 ]
train 2 --transformer-layer-cls-to-wrap T5Blok
refused an_unknown_class_is_reported 'T5Blok: .*did you mean T5Block. Units can be: T5Stack, '
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
check more_warmup_than_steps_rises_all_the_time [ "$(rates)" = "0.0 2e-05 4e-05 6e-05 8e-05 " ]
expect and_a_line_says_so 0 'warmup-steps 100: the run ends after 5, .* to 8e-05 of 0.002' out
train 1 --epochs 0.5 --lr 0.25 --lr-schedule polynomial --lr-end 0 --warmup-ratio 0.2
check half_an_epoch_has_half_of_its_steps [ "$(rates)" = "0.0 0.25 0.1875 0.125 0.0625 " ]
train 2 --devices 1
refused ranks_that_devices_does_not_name '--devices 1: 2 ranks are started'
train 2 --predict_with_generate
refused texts_are_generated_in_validation "--predict-with-generate needs --validation-data"
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
check the_norm_is_reported_before_clipping [ "$(head -n 1 first.numbers | cut -d ' ' -f 3)" = "$(numbers m.jsonl | head -n 1 | cut -d ' ' -f 3)" ]
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
cp -r tiny limits
echo '{"force_words_ids": [[3]], "penalty_alpha": 0.6}' >limits/generation_config.json
train 2 --model limits --validation-data validation.jsonl --max-steps 1 --generate-examples 1 --max-target-length 3
expect what_examples_do_not_support_is_named 0 'generation_config.json sets penalty_alpha, force_words_ids, which'
check once [ "$(grep -c 'force_words_ids' err)" -eq 1 ]
echo '{"do_sample": true, "num_beams": 2}' >limits/generation_config.json
train 2 --model limits --validation-data validation.jsonl --max-steps 1 --generate-examples 1
expect a_training_does_not_fail_for_its_examples 0 'no examples: .*do_sample with num_beams 2'
check and_its_model_is_saved [ -e o/model.safetensors ]
echo '{"decoder_start_token_id": 3}' >limits/generation_config.json
capture sh -c '"$0" train --model limits --from-config --data ids.jsonl --validation-data validation.jsonl \
    --generate-examples 1 --max-steps 1 --no-save-model 2>&1' "$fsdp"
expect neither_for_where_they_would_begin 0 "no examples: .*decoder_start_token_id is 3, the model's is 0" out
check that_is_known_before_the_first_step \
    [ "$(sed -n '/no examples/=' out)" -lt "$(sed -n '/Train Epoch/=' out | head -n 1)" ]
rm limits/generation_config.json
train 1 --model limits --validation-data validation.jsonl --max-steps 1 --generate-examples 1
expect examples_without_texts_are_said 0 'examples are token ids, not texts: .*limits.*spiece.model'

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
refused a_missing_tokenizer_is_reported 'all.csv: CSV needs a tokenizer'
train 2 --data all.csv --tokenizer "$tokenizer"
refused a_small_vocabulary_is_reported '32100 ids, but the model.s vocab_size is 67'
train 2 --model words --data all.csv --tokenizer "$dir/none"
refused a_tokenizer_that_is_not_there "$dir/none: .*no such file or folder"
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
mkdir tokens
tiny_llama llama
tiny_bert bert
# nanoGPT's form: 201 tokens of two bytes, which are alternately the letters A and @ (65 and 64)
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
awk 'BEGIN { printf "{\"input_ids\": [2"; for (i = 0; i < 13; i++) printf ", 7"; print "], \"prompt_length\": 10}"
    print "{\"input_ids\": [2, 5, 6, 3], \"prompt_length\": 2}" }' >full.jsonl
for i in 1 2 3 4; do tail -n 1 full.jsonl; done >rows.jsonl
few=$golden/gpt2_tiny/model
for ranks in 1 2; do
    train $ranks --model "$few" --data rows.jsonl --validation-data full.jsonl --max-steps 1 --generate-examples 2 \
        --max-target-length 3
    expect "a_prompt_of_all_positions_has_one_new_token_on_${ranks}_ranks" 0 '^generated: [0-9]+$' out
    check "and_the_next_is_shown_on_${ranks}_ranks" [ "$(grep -c '^generated:' out)" -eq 2 ]
done
train 2 --model bert --data classes.jsonl --validation-data classes.jsonl --epochs 3 --lr 0.01
check a_classifier_learns falls
check accuracy_is_measured grep -q '"validation".*"accuracy": [0-9.]*, "f1": [0-9.]*}' m.jsonl
check accuracy_is_printed grep -Eq 'Accuracy: [0-9.]*, F1: ' out
train 2 --model bert --task causal-lm --data classes.jsonl
refused a_task_of_another_model '--task causal-lm: bert is a BertForSequenceClassification, which is for classification'
train 2 --model llama --data all.csv
refused a_causal_model_without_a_tokenizer 'all.csv: CSV needs a tokenizer .llama holds no tokenizer:'
train 2 --model llama --data tokens/val.bin --max-seq-length 41
refused a_file_too_short_for_a_row 'val.bin: 41 tokens, fewer than a row of 41'
train 2 --model bert --data tokens
refused token_files_for_a_classifier 'token files are for causal language modeling'
sed 's/"label": 1/"label": 2/' classes.jsonl >three.jsonl
train 2 --model bert --data three.jsonl
refused a_class_beyond_the_model_s 'three.jsonl: line 2: .*the model has 2 classes; --num-labels N'
sed 's/"label": 0/"label": "no"/; s/"label": 1/"label": "yes"/' classes.jsonl >names.jsonl
train 1 --model bert --data classes.jsonl --max-steps 2
numbers m.jsonl >by_number
train 1 --model bert --data names.jsonl --max-steps 2
check names_of_id2label_are_labels [ -s by_number -a "$(numbers m.jsonl)" = "$(cat by_number)" ]
train 1 --model bert --data names.jsonl --max-steps 2 --class-names yes,no,perhaps
check more_classes_are_named_by_a_flag \
    grep -Pzq '"id2label": \{\s*"0": "yes",\s*"1": "no",\s*"2": "perhaps"\s*\}' o/config.json
check and_have_their_numbers_saved grep -q '"perhaps": 2' o/config.json
mv o named
run train --model named --data three.jsonl --output o --max-steps 1 --num-labels 5
refused a_classifier_of_another_size "'classifier.weight' has 3 classes, the model 5; .*--ignore-mismatched-sizes"
run train --model named --data three.jsonl --output o --max-steps 1 --num-labels 5 --ignore-mismatched-sizes
expect is_drawn_where_a_flag_says_so 0 'another shape in the files .*: classifier.weight, classifier.bias$' err
check and_its_classes_are_named_by_number grep -q '"LABEL_4": 4' o/config.json
rm -rf o
sed 's/ForSequenceClassification/Model/' named/config.json >bert/body.json && mkdir body &&
    mv bert/body.json body/config.json && cp named/model.safetensors body
run train --model body --data three.jsonl --output o --max-steps 1 --num-labels 3
check a_body_gets_a_classifier [ "$rc" -eq 0 -a -s o/config.json ]
check which_config_json_says grep -q BertForSequenceClassification o/config.json
mv o numbered
sed -i 's/"yes"/"LABEL_0"/; s/"no"/"LABEL_1"/; s/"perhaps"/"LABEL_2"/' numbered/config.json
run train --model numbered --data names.jsonl --output o --max-steps 1
refused names_that_the_classifier_has_not \
    "'classifier.weight' has 3 classes, but the labels of names.jsonl are of 2 classes; --ignore-mismatched-sizes"
sed 's/"label": 1/"label": 0.5/' classes.jsonl >fractions.jsonl
run train --model numbered --data fractions.jsonl --output o --max-steps 1
refused fractions_need_another_classifier \
    "'classifier.weight' has 3 classes, but the labels of fractions.jsonl are numbers .regression., which need 1 output;"
rm -rf o
run train --model llama --from-config --data tokens --output o --num-labels 3
refused classes_of_a_model_that_has_none 'llama is a LlamaForCausalLM, which has no classes'

# --- transformers' names of options ---
run train --model "$golden/t5_v1_1/model" --data ids.jsonl --epochs 1 --no-save-model --metrics m.jsonl
numbers m.jsonl >of_t5
cp -r "$golden/t5_v1_1/model" mt5 && sed -i 's/"t5"/"mt5"/; s/"T5For/"MT5For/' mt5/config.json
run train --model mt5 --data ids.jsonl --epochs 1 --output o --metrics m.jsonl \
    --transformer-layer-cls-to-wrap MT5Block --print-model
check mt5_trains_as_t5_v1_1 [ -s of_t5 -a "$(numbers m.jsonl)" = "$(cat of_t5)" ]
check its_modules_have_its_names grep -q 'FSDPMT5Block' out
check it_is_saved_as_what_it_is grep -q '"model_type": "mt5"' o/config.json
check under_its_own_class grep -q '"MT5ForConditionalGeneration"' o/config.json
rm -rf o
awk 'BEGIN { print "{\"input_ids\": [7, 8, 9, 10]}" }' >lm.jsonl
run train --model "$few" --data lm.jsonl --epochs 1 --output o --frozen-prefixes lm_head
check a_tied_parameter_is_frozen_by_either_name [ "$rc" -eq 0 ]
check and_the_other_name_is_reported grep -q 'freezes these names too.*: transformer.wte.weight$' err
expect so_that_less_is_trained 0 'loaded; [0-9.]* k are trained' out
rm -rf o
run train --model "$golden/t5_v1_0/model" --data ids.jsonl --epochs 1 --no-save-model --frozen-prefixes encoder
check a_shared_embedding_is_not_the_encoder_s grep -q 'does not freeze these names.*: encoder.embed_tokens.weight$' err

# --- steps ---
rm -rf o o-checkpoints
run train --model "$few" --data lm.jsonl --max-steps 5 --save-steps 0.4 --output o --metrics m.jsonl
check max_steps_take_as_many_epochs_as_they_need [ "$rc" -eq 0 -a "$(numbers m.jsonl | wc -l)" -eq 5 ]
check a_share_of_all_steps_is_rounded_up [ "$(echo $(ls o-checkpoints))" = "checkpoint-2 checkpoint-4 checkpoint-5" ]
rm -rf o o-checkpoints
run train --model "$few" --data lm.jsonl --max-steps 5 --epochs 3 --no-save-model --metrics m.jsonl
check but_no_more_than_are_asked_for [ "$(numbers m.jsonl | wc -l)" -eq 3 ]

tally
