#!/bin/sh
# examples/nlp_example: the tutorial's BERT on pairs, on several ranks, saved and resumed; labels of
# all problem types through `fsdp train` and `fsdp evaluate`.
# usage: FSDP_BUILD=build tests/cli/test_nlp_example.sh
. "$(dirname "$0")/lib.sh"
needs libcsv utf8proc

mkdir bert
printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' '[MASK]' a b c d e f g h >bert/vocab.txt
echo '{"tokenizer_class": "BertTokenizer", "do_lower_case": true}' >bert/tokenizer_config.json
cat >bert/config.json <<'END'
{"model_type": "bert", "architectures": ["BertForSequenceClassification"], "vocab_size": 13, "hidden_size": 16,
 "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 24,
 "type_vocab_size": 2, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "initializer_range": 0.1}
END
awk 'BEGIN { split("a b c d e f g h", w, " "); print "label,sentence1,sentence2"
    for (i = 0; i < 48; i++) {
        x = w[1 + i % 4]; y = w[5 + int(i / 2) % 4]
        printf "%s,%s %s %s,%s %s\n", i % 2 ? "equivalent" : "not_equivalent", x, x, y, i % 2 ? "a" : "h", y } }' >train.csv
cp train.csv dev.csv

# example RANKS FLAGS...: the losses are in $dir/losses
example() {
    ranks=$1
    shift
    capture "$fsdp" launch -n "$ranks" "$build/examples/nlp_example" --cpu --model_name_or_path bert --from_config \
        --train_file train.csv --logging_steps 1 --num_warmup_steps 4 --lr 0.01 --seed 3 "$@"
    grep '^step ' out >losses
}
numbers_of() { sed -n "s/^epoch 2: {'accuracy': \([0-9.]*\), 'f1': \([0-9.]*\)}$/\1 \2/p" out; }

example 2 --batch_size 4
expect the_tutorial_runs_on_two_ranks 0
check each_epoch_has_accuracy_and_f1 [ "$(grep -c "^epoch [012]: {'accuracy': [0-9.]*, 'f1': [0-9.]*}$" out)" -eq 3 ]
check an_epoch_has_as_many_steps_as_accelerate_takes [ "$(wc -l <losses)" -eq 18 ]
check pairs_are_learned [ "$(numbers_of)" = "1 1" ]
check warmup_begins_at_0 grep -q '^step 1: loss [0-9.]*, lr 0$' losses
check and_the_schedule_ends_near_0 grep -q '^step 18: loss [0-9.]*, lr 0.000625$' losses
cp losses whole
example 2 --batch_size 4 --checkpointing_steps 8 --output_dir states
check states_are_saved [ -d states/step_8 -a -d states/step_16 ]
example 2 --batch_size 4 --resume_from_checkpoint states/step_8
expect a_run_is_resumed 0 '^Resumed from checkpoint: states/step_8, at step 8$' out
tail -n +9 whole >rest
check with_the_same_losses cmp losses rest
# As in Python, a limit of the size of files is an error with a message, and no signal ends the program.
(
    ulimit -f 20
    exec "$build/examples/nlp_example" --cpu --model_name_or_path bert --from_config --train_file train.csv \
        --batch_size 8 --checkpointing_steps 2 --output_dir full
) >out 2>err
rc=$?
expect a_file_that_is_too_large_is_an_error 1 'full/step_2.*File too large'
check nothing_half_written_is_left [ -z "$(ls full)" ]
example 1 --batch_size 8 --num_warmup_steps 2 --num_epochs 1
cp losses one
example 2 --batch_size 4 --num_warmup_steps 4 --num_epochs 1
check the_first_loss_does_not_depend_on_the_ranks [ "$(head -n 1 one)" = "$(head -n 1 losses)" ]
example 1 --batch_size 32 --num_epochs 1
check a_large_batch_is_accumulated [ "$(wc -l <losses)" -eq 1 ]
# What the flags leave open, a file of Accelerate decides.
example 2 --batch_size 4 --num_epochs 1 --mixed_precision bf16
cp losses bf16
cat >fsdp.yaml <<'END'
distributed_type: FSDP
mixed_precision: bf16
num_processes: 2
fsdp_config:
  fsdp_version: 1
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_transformer_layer_cls_to_wrap: BertLayer
  fsdp_sharding_strategy: SHARD_GRAD_OP
  fsdp_activation_checkpointing: true
  fsdp_activation_checkpointing_offload: true
  fsdp_state_dict_type: FULL_STATE_DICT
END
# with_file FLAGS...: as example, with ranks and settings of fsdp.yaml
with_file() {
    capture "$fsdp" launch --config_file fsdp.yaml "$build/examples/nlp_example" --cpu --model_name_or_path bert \
        --from_config --train_file train.csv --logging_steps 1 --num_warmup_steps 4 --lr 0.01 --seed 3 --num_epochs 1 "$@"
    grep '^step ' out >losses
}
if ! lacks libyaml; then
    with_file --batch_size 4 --checkpointing_steps epoch --output_dir full
    expect a_file_of_accelerate_is_followed 0
    check with_its_precision cmp losses bf16
    check and_its_kind_of_state [ -f full/epoch_0/pytorch_model_fsdp.bin -a -f full/epoch_0/optimizer.bin ]
    sed -i 's/BertLayer/T5Block/' fsdp.yaml
    with_file
    expect a_class_of_another_model_is_refused 1 'T5Block'
    example 2 --batch_size 4 --num_epochs 1
    [ "$rc" -eq 0 ] && cp losses exact
    ACCELERATE_GRADIENT_ACCUMULATION_STEPS=2 example 2 --batch_size 2 --num_epochs 1
    check accumulation_of_the_environment_counts [ "$(wc -l <losses)" -eq "$(wc -l <exact)" ]
fi
example 1 --checkpointing_steps often
expect what_is_no_number_of_steps_is_refused 1 'checkpointing_steps often: expected a number of steps, or epoch'
example 1 --checkpointing_steps -1
expect minus_one_is_not_each_epoch 1 'checkpointing_steps -1: expected a number of steps, or epoch'
sed 's/^equivalent/maybe/' dev.csv >wrong.csv
example 1 --validation_file wrong.csv
expect a_label_of_another_task_is_refused 1 'wrong.csv: line 3: label: expected one of "not_equivalent", "equivalent"'

# --- problem types ---
learn() {
    rm -rf o
    capture "$fsdp" launch -n 2 train --model bert --from-config --output o --epochs 12 --batch-size 8 --lr 0.01 \
        --lr-schedule linear --metrics m.jsonl --overwrite-output --num-workers 0 "$@"
}
check_saved() { grep -q "$1" o/config.json; }
awk 'BEGIN { split("a b c d e", w, " "); print "sentence1,sentence2,label"
    for (i = 0; i < 40; i++) printf "%s,f %s,%.2f\n", w[1 + i % 5], w[1 + i % 5], i % 5 + 0.25 }' >real.csv
learn --data real.csv --validation-data real.csv
expect numbers_are_regression 0 '^regression of 1 number, from the labels of real.csv$' out
check its_measures_are_printed grep -q 'Validation Loss: [0-9.]*, MSE: [0-9.]*, Pearson: [0-9.]*, Spearman: [0-9.]*' out
check it_is_saved check_saved '"problem_type": "regression"'
check with_one_label check_saved '"0": "LABEL_0"'
# The saved model is the one with the lowest loss.
trained=$(sed -n 's/.*"validation".*"loss": \([0-9.e-]*\),.*"mse": \([0-9.e-]*\), "pearson": \([0-9.e-]*\), "spearmanr": \([0-9.e-]*\).*/\1 \2 \3 \4/p' m.jsonl |
    sort -n | head -n 1 | cut -d' ' -f2-)
for ranks in 1 2; do
    capture "$fsdp" launch -n $ranks evaluate --model o --data real.csv --json
    found=$(sed -n 's/.*"mse": \([0-9.e-]*\), "pearson": \([0-9.e-]*\), "spearmanr": \([0-9.e-]*\).*/\1 \2 \3/p' out)
    check "evaluate_on_${ranks}_ranks_says_what_training_said" [ -n "$found" -a "$found" = "$trained" ]
done
cp -r o regression
learn --data real.csv --label-smoothing 0.1
expect numbers_are_not_smoothed 1 '--label-smoothing 0.1: is for one class of several; the labels are numbers'
capture "$fsdp" plan --model regression --from-config --data real.csv
expect regression_can_be_planned 0
learn --data real.csv --problem-type single-label --num-labels 5
expect numbers_that_are_no_classes_are_refused 1 'real.csv: line 2: label: expected an integer from 0 to 4'
learn --data train.csv --problem-type regression
expect names_are_no_numbers 1 'label: expected a number: the problem type is regression'
learn --data real.csv --num-labels 1 --problem-type single-label
expect one_class_is_no_choice 1 'single_label_classification needs two classes or more'
awk 'BEGIN { for (i = 0; i < 40; i++) printf "{\"text\": \"%s %s\", \"labels\": [%s%s%s]}\n", i % 2 ? "a b" : "c", i % 3 ? "d" : "e f",
    i % 2 ? "\"red\"" : "", i % 2 && i % 3 ? ", " : "", i % 3 ? "\"green\"" : "" }' >sets.jsonl
learn --data sets.jsonl --validation-data sets.jsonl
expect lists_are_several_classes 0 '^2 classes, several a row, from the labels of sets.jsonl: green, red$' out
check their_measures_are_printed grep -q 'Accuracy: 1.0000, F1: 1.0000, F1 macro: 1.0000' out
check they_are_saved check_saved '"problem_type": "multi_label_classification"'
check with_their_names check_saved '"1": "red"'
capture "$fsdp" evaluate --model o --data sets.jsonl
expect evaluate_shows_their_measures 0 'Accuracy.*F1.*F1 macro' out
capture "$fsdp" evaluate --model o,regression --data sets.jsonl
expect other_problem_types_are_not_compared 1 'regression: its problem type is not that of the first model'
# The same sets as lists of classes and as a 0 or 1 for each class, in JSON and in CSV.
awk -v OFS= 'BEGIN { print "text,labels" >"hot.csv"; print "text,labels" >"listed.csv"
    for (i = 0; i < 42; i++) {
        red = i % 2; green = i % 3 > 0; text = (red ? "a b " : "c ") (green ? "d" : "e f")
        list = (red ? "2" : "") (red && green ? ", " : "") (green ? "0" : "")
        print "{\"text\": \"", text, "\", \"labels\": [", list, "]}" >"classes.jsonl"
        print text, ",\"[", list, "]\"" >"listed.csv"
        print text, ",\"", green, ",0,", red, "\"" >"hot.csv" } }'
for file in classes.jsonl listed.csv hot.csv; do
    learn --data $file --problem-type multi-label
    expect "classes_of_a_row_are_read_from_$file" 0 "^3 classes, several a row, from the labels of $file" out
    sed -n 's/.*"step", .*"loss": \([^,]*\),.*/\1/p' m.jsonl >"losses.$file"
done
check their_losses_are_known [ "$(wc -l <losses.hot.csv)" -gt 10 ]
check lists_of_classes_train_like_numbers_for_each cmp -s losses.classes.jsonl losses.hot.csv
check in_csv_too cmp -s losses.listed.csv losses.hot.csv
capture "$fsdp" evaluate --model o --data classes.jsonl --json
cp out by_class
capture "$fsdp" evaluate --model o --data hot.csv --json
check evaluate_reads_both_alike [ -s out -a "$(sed -n 's/.*"loss": \([^,]*\),.*/\1/p' out)" = \
    "$(sed -n 's/.*"loss": \([^,]*\),.*/\1/p' by_class)" ]
printf '{"text": "a", "labels": [0, 1]}\n{"text": "b", "labels": [1, 0]}\n' >unclear.jsonl
learn --data unclear.jsonl
expect what_the_lists_do_not_show_is_asked 1 'unclear.jsonl: label: lists such as that of line 1 .*--label-lists'
learn --data unclear.jsonl --label-lists indices
expect and_an_option_says_it 0 '^2 classes, several a row, from the labels of unclear.jsonl' out
learn --data real.csv --label-lists indices
expect lists_need_their_problem_type 1 '.--label-lists. are for multi_label_classification'
learn --data sets.jsonl
printf '{"text": "a", "labels": ["blue"]}\n' >blue.jsonl
capture "$fsdp" evaluate --model o --data blue.jsonl
expect another_name_is_refused 1 'blue.jsonl: line 1: label: expected a list of 2 numbers from 0 to 1, one for each class, or a list of names'
learn --data sets.jsonl --label-smoothing 0.1
expect several_classes_are_not_smoothed 1 '--label-smoothing 0.1: is for one class of several; the labels are several'
printf 'sentence1,sentence2,label\na,b,\nb,c,0\n' >empty.csv
learn --data empty.csv
expect an_empty_label_is_no_class 1 'empty.csv: line 2: label: is empty; expected a class'
printf 'sentence1,sentence2,label\na,b,1\nb,c,nan\n' >nan.csv
learn --data nan.csv
expect nan_is_no_class 1 'nan.csv: line 3: label: is not a number'
printf 'sentence1,sentence2,label\na,b,-1\nb,c,-1\n' >glue.csv
learn --data glue.csv
expect minus_one_is_no_class 1 'found -1, which rows without a label have in GLUE'
tally
