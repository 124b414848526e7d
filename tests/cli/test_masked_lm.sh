#!/bin/sh
# `fsdp train --task masked-lm` and `fsdp evaluate` of its model: rows of ids, masked or with labels.
# usage: FSDP_BUILD=build tests/cli/test_masked_lm.sh
. "$(dirname "$0")/train.sh"

cp -r "$golden/bert_mlm/model" bert
printf '%s\n' '[PAD]' a b '[UNK]' '[MASK]' '[CLS]' '[SEP]' c d e f g h i j k l >bert/vocab.txt
awk 'BEGIN { for (i = 0; i < 12; i++) { printf "{\"input_ids\": [5"
    for (k = 0; k < 5 + i % 4; k++) printf ", %d", 7 + (i * 3 + k) % 10; print ", 6]}" } }' >ids.jsonl

# train RANKS: prints the losses of a run with four rows a step
train() {
    rm -rf o
    ranks=$1
    shift
    run launch -n "$ranks" train --task masked-lm --model bert --data ids.jsonl --validation-data ids.jsonl \
        --epochs 2 --batch-size 1 --gradient-accumulation-steps $((4 / ranks)) --lr 0.01 --dropout 0 \
        --mlm-probability 0.4 --output o --metrics m.jsonl --threads-per-rank 1 "$@"
    numbers m.jsonl
}
alone=$(train 1)
cp o/model.safetensors alone.safetensors
check it_trains [ "$rc" -eq 0 -a -n "$alone" ]
check perplexity_is_reported grep -q '"perplexity"' m.jsonl
check it_is_saved_as_what_it_is grep -q '"BertForMaskedLM"' o/config.json
check its_tokenizer_goes_with_it [ -s o/vocab.txt ]
check nothing_else_is_saved [ ! -e o/generation_config.json ]
for ranks in 2 4; do
    check the_losses_are_those_of_one_rank [ "$(train $ranks)" = "$alone" ]
    check the_weights_are_those_of_one_rank cmp -s o/model.safetensors alone.safetensors
done

# --- texts ---
printf 'a b c d e f g\nh i j k l a b\n' >text.txt
printf '{"text": "a b c d e f", "label": "good"}\n{"text": "g h i j k l", "label": "bad"}\n' >text.jsonl
learn() {
    rm -rf o2
    run train --task masked-lm --model bert --from-config --epochs 2 --batch-size 2 --lr 0.01 --output o2 "$@"
}
learn --data text.txt --document-separator line
expect it_trains_on_lines 0 'Training'
learn --data text.jsonl
expect a_key_label_is_no_class 0 'Training'

# --- evaluate ---
loss() { sed -n 's/.*"loss": \([^,]*\),.*/\1/p' out; }
run evaluate --model o --data ids.jsonl --json --mlm-probability 0.4
check evaluate_masks_as_the_validation_of_training \
    [ "$(loss | cut -c1-7)" = "$(echo "$alone" | tail -1 | sed 's/.* //' | cut -c1-7)" ]
run evaluate --model o --data ids.jsonl --json --mlm-probability 0.4 --seed 9
other=$(loss)
run evaluate --model o --data ids.jsonl --json --mlm-probability 0.4
check another_seed_masks_other_tokens [ -n "$other" -a "$other" != "$(loss)" ]
awk 'BEGIN { for (i = 0; i < 6; i++)
    printf "{\"input_ids\": [5, 4, %d, 8, 6], \"labels\": [-100, %d, -100, 8, -100]}\n", 7 + i, 9 + i }' >labels.jsonl
run evaluate --model o --data labels.jsonl --json --seed 1
given=$(loss)
run evaluate --model o --data labels.jsonl --json --seed 9
check rows_with_labels_are_not_masked [ -n "$given" -a "$given" = "$(loss)" ]

# --- without --task ---
# A folder of a masked language model is what evaluate takes it for, unless the rows have labels.
cp -r "$golden/bert_mlm/model" plain && cp o/vocab.txt plain && rm -rf o
auto() {
    data=$1
    shift
    run train --model plain --from-config --data "$data" --no-save-model --max-steps 1 "$@"
}
auto text.txt --document-separator line
expect plain_text_is_for_the_masked_language_model 0 \
    '^plain is a BertForMaskedLM, and the rows have no labels, so the task is masked-lm .with --task classification' out
check its_head_is_trained grep -q '^BertForMaskedLM plain' out
auto ids.jsonl
expect rows_of_ids_are_too 0 '^BertForMaskedLM plain' out
auto labels.jsonl
expect labels_of_tokens_are_no_classes 0 '^BertForMaskedLM plain' out
auto text.jsonl
expect rows_with_labels_make_a_classifier 0 'but the rows have labels, so it becomes a classifier .with --task masked-lm' out
check the_classes_are_those_of_the_rows grep -q '2 classes, from the labels of text.jsonl: bad, good' out
printf 'text,label\na b,x\nc d,y\n' >text.csv
auto text.csv
expect csv_with_labels_makes_a_classifier 0 '^BertForSequenceClassification plain' out
auto ids.jsonl --num-labels 2
refused options_for_classes_make_a_classifier 'label'
run train --model plain --from-config --task classification --data text.txt --no-save-model --max-steps 1
refused plain_text_has_no_labels 'text.txt is plain text, and rows for classification have labels .*--task masked-lm'
run generate --model plain 'a b'
refused it_does_not_generate "a BertForMaskedLM does not generate: it is for masked-lm; 'fsdp evaluate' measures it"

# --- what does not fit ---
rm -rf o
run train --task masked-lm --model "$golden/qwen2/model" --data ids.jsonl --output p --epochs 1
refused a_model_without_the_head 'a Qwen2ForCausalLM is for causal-lm, and has no head for masked-lm'
rm bert/vocab.txt
run train --task masked-lm --model bert --data ids.jsonl --output p --epochs 1
refused no_mask_token 'the id of the mask token is not known; it is read from tokenizer.json or vocab.txt'
run train --task classification --model bert --data ids.jsonl --output p --epochs 1 --mlm-probability 0.2
refused another_task 'as --mlm-probability for masked-lm'
run evaluate --model "$golden/bert/model" --data ids.jsonl --mlm-probability 0.2
refused a_classifier '--mlm-probability is for masked language models'
run plan --task masked-lm --model bert --data ids.jsonl --batch-size 4
check a_plan_knows_the_task [ "$rc" -eq 0 ]
# Labels of rows are tokens here, and no classes, whatever the folder's config.json is read as.
tiny_bert mlm
for i in 1 2 3 4; do echo '{"input_ids": [5, 6, 7, 8], "labels": [-100, 6, -100, -100]}'; done >given.jsonl
run train --task masked-lm --model mlm --from-config --data given.jsonl --no-save-model --max-steps 1
check labels_are_no_classes [ "$rc" -eq 0 ]
check and_none_are_printed [ -z "$(grep classes out err)" ]
tally
