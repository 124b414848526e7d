#!/bin/sh
# `fsdp evaluate` as a user runs it: the numbers do not depend on the number of ranks and agree
# with those of training; all kinds of data; errors.
# usage: FSDP_BUILD=build tests/cli/test_evaluate.sh
. "$(dirname "$0")/lib.sh"
needs libcsv utf8proc

# on RANKS COMMAND...: runs the command on so many ranks
on() {
    ranks=$1
    shift
    if [ "$ranks" -gt 1 ]; then set -- launch -n "$ranks" "$@"; fi
    run "$@"
}

# A T5 of 24 dimensions with 3 heads and T5's vocabulary.
mkdir "$dir/shape"
sed -e 's/"d_model": [0-9]*/"d_model": 24/' -e 's/"d_ff": [0-9]*/"d_ff": 40/' \
    -e 's/"d_kv": [0-9]*/"d_kv": 8/' -e 's/"num_heads": [0-9]*/"num_heads": 3/' \
    -e 's/"num_layers": [0-9]*/"num_layers": 1/' -e 's/"num_decoder_layers": [0-9]*/"num_decoder_layers": 2/' \
    "$root/data/models/t5-demo/config.json" >"$dir/shape/config.json"
cp "$root/data/tokenizers/t5/spiece.model" "$dir/shape/"
data=$root/data/debian

# --- a model saved by training: evaluate reports the same numbers ---
on 2 train --model "$dir/shape" --from-config --data "$data/validation.csv" --max-train-samples 16 \
    --validation-data "$data/test.csv" --max-validation-samples 7 --validation-batch-size 2 \
    --epochs 1 --lr 0.01 --output "$dir/model" --metrics "$dir/metrics.jsonl"
check a_model_is_trained test $rc -eq 0
trained=$(grep '"validation"' "$dir/metrics.jsonl" | tail -n 1 | sed 's/.*"loss": \([0-9.e+-]*\),.*/\1/')
for ranks in 1 2 3; do
    on $ranks evaluate --model "$dir/model" --data "$data/test.csv" --max-samples 7 --batch-size 2 \
        --max-new-tokens 6 --json --predictions "$dir/texts$ranks"
    check "evaluate_says_what_training_said_on_${ranks}_ranks" test "$(number loss)" = "$trained"
    check "every_row_has_a_text_on_${ranks}_ranks" test "$(wc -l <"$dir/texts$ranks")" -eq 7
    check "texts_are_the_same_on_${ranks}_ranks" cmp -s "$dir/texts1" "$dir/texts$ranks"
    sed 's/"[a-z]*_s": [0-9.e-]*//g' "$dir/out" >"$dir/json$ranks"
    check "figures_are_the_same_on_${ranks}_ranks" cmp -s "$dir/json1" "$dir/json$ranks"
done
check rows_are_counted test "$(number rows)" -eq 7

# --- `fsdp generate` writes the same texts, on another number of ranks too ---
on 2 evaluate --model "$dir/model" --data "$data/test.csv" --max-samples 7 --max-new-tokens 6 \
    --prompts "$dir/prompts" --predictions "$dir/texts"
on 3 generate --model "$dir/model" --input "$dir/prompts" --max-new-tokens 6
check generate_writes_the_same_texts cmp -s "$dir/texts" "$dir/out"

# --- settings of the model that are not supported are named once ---
cp -r "$dir/model" "$dir/limits"
echo '{"dola_layers": 0.5, "force_words_ids": [[3]]}' >"$dir/limits/generation_config.json"
on 2 evaluate --model "$dir/limits" --data "$data/test.csv" --max-samples 1 --max-new-tokens 2
check what_is_not_supported_is_named says 'generation_config.json sets dola_layers, force_words_ids, which'
check and_only_once test "$(grep -c force_words_ids "$dir/err")" -eq 1

# --- errors that prevent generating texts are reported before the loss is computed ---
echo '{"decoder_start_token_id": 3}' >"$dir/limits/generation_config.json"
on 2 evaluate --model "$dir/limits" --data "$data/test.csv" --max-samples 2
check another_start_is_refused says "limits: the generation's decoder_start_token_id is 3, the model's is 0"
check before_the_loss test "$(grep -c '^loss: ' "$dir/err")" -eq 0
on 2 evaluate --model "$dir/model" --data "$data/test.csv" --max-samples 2 --max-length 1
check no_room_is_refused says 'max_length 1 includes the start token'
check before_the_loss_too test "$(grep -c '^loss: ' "$dir/err")" -eq 0

# --- random weights; several models; the constant sentence ---
on 2 evaluate --model "$dir/shape" --from-config --data "$data/test.csv" --max-samples 3 \
    --no-generate --json
random=$(number loss)
on 1 evaluate --model "$dir/model" --untrained --data "$data/test.csv" --max-samples 3 --no-generate --json
check untrained_is_from_config_with_the_same_seed test "$(number loss 1)" = "$random"
check and_training_lowered_the_loss awk "BEGIN { exit !($(number loss 2) < $random) }"
long=$(awk 'BEGIN { for (i = 0; i < 120; i++) printf "ä" }')
for before in '' x; do
    ln -s model "$dir/$before$long"
    on 1 evaluate --model "$dir/$before$long" --data "$data/test.csv" --max-samples 1 --no-generate --json
    check "a_long_name_is_whole$before" shows '"model": "[^"]*/'$before'(\\u00e4){120}"'
done
on 2 evaluate --model "$dir/model,$dir/shape" --data "$data/test.csv" --max-samples 2 --no-generate
check a_folder_without_weights_is_named says "$dir/shape.*(weights|safetensors)"
on 1 evaluate --model "$dir/model" --data "$data/test.csv" --max-samples 4 --max-new-tokens 4 \
    --baseline-data "$data/train.csv" --examples 2
check tables_are_shown shows 'ROUGE-L'
check the_constant_sentence_is_shown shows '^the best constant sentence: .'
check examples_are_shown test "$(grep -c '^  reference ' "$dir/out")" -eq 2

# --- rows of ids: with a tokenizer they have texts, without one only a loss ---
printf '{"input_ids": [21603, 10, 5], "labels": [37, 1]}\n{"input_ids": [5], "labels": [8, 9, 1]}\n' >"$dir/ids.jsonl"
on 2 evaluate --model "$dir/model" --data "$dir/ids.jsonl" --max-new-tokens 3 --json
check ids_with_a_tokenizer_have_texts shows '"rougeL"'
rm "$dir/model/spiece.model"
on 2 evaluate --model "$dir/model" --data "$dir/ids.jsonl"
check ids_without_a_tokenizer_have_a_loss test $rc -eq 0
check and_it_says_why_there_are_no_texts shows '^no texts to compare: '
on 1 evaluate --model "$dir/model" --data "$dir/ids.jsonl" --predictions "$dir/none"
check predictions_without_texts_fail test $rc -eq 1
check and_leave_no_file test ! -e "$dir/none"
on 2 evaluate --model "$dir/model" --data "$dir/ids.jsonl" --prompts "$dir/./ids.jsonl"
expect what_is_read_is_not_written_over 1 'prompts .*ids.jsonl and --data .* are the same file'
on 1 evaluate --model "$dir/model" --data "$dir/ids.jsonl" --prompts "$dir/p" --predictions "$dir/p"
expect nor_is_a_file_written_twice 1 'predictions .* and --prompts .* are the same file'

# --- causal models: loss and perplexity; classifiers: loss, accuracy and F1 ---
mkdir "$dir/body"
tiny_llama "$dir/llama"
tiny_bert "$dir/bert"
sed 's/BertForSequenceClassification/BertModel/' "$dir/bert/config.json" >"$dir/body/config.json"
awk 'BEGIN { for (i = 0; i < 13; i++) {
    printf "{\"input_ids\": [2, %d, %d, 3], \"prompt_length\": 2, \"label\": %d}\n", 5 + i, 6 + 30 * (i % 2) + i, i % 2 } }' >"$dir/rows.jsonl"
for model in llama bert; do
    on 2 train --model "$dir/$model" --from-config --data "$dir/rows.jsonl" --validation-data "$dir/rows.jsonl" \
        --validation-batch-size 2 --epochs 1 --lr 0.01 --output "$dir/trained-$model" --metrics "$dir/$model.jsonl"
    check "${model}_is_trained" test $rc -eq 0
    for ranks in 1 2; do
        on $ranks evaluate --model "$dir/trained-$model" --data "$dir/rows.jsonl" --batch-size 2 --json
        for key in loss $([ $model = bert ] && echo accuracy f1 || echo perplexity); do
            trained=$(grep '"validation"' "$dir/$model.jsonl" | tail -n 1 | sed "s/.*\"$key\": \([0-9.e+-]*\).*/\1/")
            check "${key}_of_${model}_is_what_training_said_on_${ranks}_ranks" test "$(number $key)" = "$trained"
        done
    done
done
on 1 evaluate --model "$dir/trained-bert" --data "$dir/rows.jsonl"
check accuracy_and_f1_are_shown shows 'Accuracy.*F1'
on 2 evaluate --model "$dir/body" --from-config --data "$dir/rows.jsonl"
check a_model_without_a_head_is_refused says 'body: a BertModel has no head'
on 1 evaluate --model "$dir/trained-llama" --data "$dir/rows.jsonl" --examples 2
check texts_of_causal_models_are_refused says '--examples is for seq2seq models; a LlamaForCausalLM is for causal-lm'
run evaluate --model "$golden/qwen2/model" --data ids.jsonl --devices 2
check ranks_are_started_by_the_launcher says "--devices: not supported: 'fsdp launch -n N evaluate"
on 1 evaluate --model "$dir/trained-llama,$dir/trained-bert" --data "$dir/rows.jsonl"
check models_of_two_tasks_are_refused says 'trained-bert: .* different tasks cannot be compared'

# --- a loss that is not finite ---
mkdir "$dir/large"
sed 's/"initializer_range": [0-9.]*/"initializer_range": 100/' "$golden/llama3/model/config.json" >"$dir/large/config.json"
for ranks in 1 2; do
    on $ranks evaluate --model "$dir/large" --from-config --data "$dir/rows.jsonl" --batch-size 3 --param-dtype float16
    expect "a_forward_that_overflows_names_rows_and_dtype_on_${ranks}_ranks" 1 \
        'large: .*rows.jsonl: the loss of rows 0 to 2 is NaN in float16: .*bfloat16 has'
done
on 1 evaluate --model "$dir/large" --from-config --data "$dir/rows.jsonl" --param-dtype bfloat16
check and_is_measured_in_bfloat16 test $rc -eq 0
on 1 train --model "$dir/large" --from-config --data "$dir/rows.jsonl" --epochs 1 --lr 0 --bf16 --output "$dir/saved-large"
echo '[5, 6]' >"$dir/prompt.jsonl"
on 1 generate --model "$dir/saved-large" --input-ids "$dir/prompt.jsonl" --max-new-tokens 2 --param-dtype float16
expect generating_says_it_too 1 'row 0: the logits are NaN: float16.s largest value is 65504'
cp -r "$dir/trained-llama" "$dir/nans"
size=$(wc -c <"$dir/nans/model.safetensors")
{ head -c $((size - 8)) "$dir/trained-llama/model.safetensors"; printf '\377\377\377\177\377\377\377\177'; } >"$dir/nans/model.safetensors"
on 2 evaluate --model "$dir/nans" --data "$dir/rows.jsonl" --param-dtype float16
expect weights_that_are_nan_are_named 1 'the loss of rows 0 to 7 is NaN: parameter .* has values that are not finite'

# --- wrong use ---
on 1 evaluate --model "$dir/model" --data "$data/test.csv" --no-generate --examples 3
check examples_need_texts test $rc -eq 2
on 2 evaluate --model "$dir/model" --data "$data/test.csv" --predictions "$dir/nowhere/texts"
check a_missing_folder_is_an_error_before_the_work says 'nowhere/texts: there is no such folder'
check nothing_was_computed test ! -s "$dir/out"
on 2 evaluate --model "$dir/model,$dir/nowhere" --data "$dir/nothing.csv"
check a_missing_second_model_is_an_error_before_the_first_is_measured says "$dir/nowhere.: no such directory"
on 1 evaluate --data "$data/test.csv"
check a_model_is_required test $rc -eq 2
on 2 evaluate --model "$dir/model" --tokenizer "$root/data/tokenizers/t5" --data "$dir/nothing.csv"
check missing_data_are_named says "$dir/nothing.csv"
check with_code_1 test $rc -eq 1

# --- options without effect ---
# vain TEXT FLAGS...: checks that a note says so
vain() {
    text=$1
    shift
    on 1 evaluate --model "$dir/model" --tokenizer "$dir/shape" --data "$data/test.csv" --max-samples 1 "$@"
    check "${1#--}_is_refused" says "$text"
}
vain '--num-beams needs texts; --no-generate gives none' --num-beams 2 --no-generate
vain '--length-penalty needs --num-beams above 1' --length-penalty 2
vain '--top-p needs --do-sample' --top-p 0.5
vain '--seed needs --do-sample, --untrained or --from-config' --seed 2
vain '--max-seq-length is for causal-lm and classification' --max-seq-length 9
printf '{"input_ids": [7, 8, 9]}\n' >"$dir/ids.jsonl"
for flag in '--num-beams 2' '--max-source-length 9' '--max-target-length 9' --generate --wikihow-cleaning; do
    # shellcheck disable=SC2086
    on 1 evaluate --model "$golden/llama3/model" --data "$dir/ids.jsonl" $flag
    name=${flag%% *}
    check "${name#--}_is_for_seq2seq" says "$name is for seq2seq models; a LlamaForCausalLM is for causal-lm"
done

tally
