#!/bin/sh
# `fsdp evaluate` from outside: the numbers do not depend on the number of ranks, agree with what
# training said, and every kind of data and wrong use has its answer.
# usage: FSDP_BUILD=build tests/cli/test_evaluate.sh
fsdp=${FSDP_BUILD:-build}/fsdp
case $fsdp in /*) ;; *) fsdp=$(pwd)/$fsdp ;; esac
root=$(cd "$(dirname "$0")/../.." && pwd)
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
passed=0 failed=0

ok() { passed=$((passed + 1)); echo "ok $1"; }
bad() {
    failed=$((failed + 1))
    echo "FAIL $1: $2"
    head -n 5 "$dir/out" | cut -c 1-300 | sed 's/^/    out: /'
    tail -n 5 "$dir/err" | cut -c 1-300 | sed 's/^/    err: /'
}
# run RANKS COMMAND...: output in $dir/out and $dir/err, exit code in $rc
run() {
    ranks=$1
    shift
    if [ "$ranks" -gt 1 ]; then set -- launch -n "$ranks" "$@"; fi
    timeout -s KILL 120 "$fsdp" "$@" >"$dir/out" 2>"$dir/err"
    rc=$?
}
# first_number KEY [N]: the n-th value of a key in the JSON that was printed
first_number() { tr ',{' '\n\n' <"$dir/out" | sed -n "s/.*\"$1\": \([-0-9.e+]*\).*/\1/p" | head -n "${2:-1}" | tail -n 1; }
check() { # NAME CONDITION...
    name=$1
    shift
    if "$@"; then ok "$name"; else bad "$name" "exit code $rc, not: $*"; fi
}
says() { grep -Eq -- "$1" "$dir/err"; }
shows() { grep -Eq -- "$1" "$dir/out"; }

# A T5 of 24 dimensions with 3 heads and T5's vocabulary.
mkdir "$dir/shape"
sed -e 's/"d_model": [0-9]*/"d_model": 24/' -e 's/"d_ff": [0-9]*/"d_ff": 40/' \
    -e 's/"d_kv": [0-9]*/"d_kv": 8/' -e 's/"num_heads": [0-9]*/"num_heads": 3/' \
    -e 's/"num_layers": [0-9]*/"num_layers": 1/' -e 's/"num_decoder_layers": [0-9]*/"num_decoder_layers": 2/' \
    "$root/data/models/t5-demo/config.json" >"$dir/shape/config.json"
cp "$root/data/tokenizers/t5/spiece.model" "$dir/shape/"
data=$root/data/debian

# --- one model that training saved: evaluate says of it what training said ---
run 2 train --model "$dir/shape" --from-config --data "$data/validation.csv" --max-train-samples 16 \
    --validation-data "$data/test.csv" --max-validation-samples 7 --validation-batch-size 2 \
    --epochs 1 --lr 0.01 --output "$dir/model" --metrics "$dir/metrics.jsonl"
check a_model_is_trained test $rc -eq 0
trained=$(grep '"validation"' "$dir/metrics.jsonl" | tail -n 1 | sed 's/.*"loss": \([0-9.e+-]*\),.*/\1/')
for ranks in 1 2 3; do
    run $ranks evaluate --model "$dir/model" --data "$data/test.csv" --max-samples 7 --batch-size 2 \
        --max-new-tokens 6 --json --predictions "$dir/texts$ranks"
    check "evaluate_says_what_training_said_on_${ranks}_ranks" test "$(first_number loss)" = "$trained"
    check "every_row_has_a_text_on_${ranks}_ranks" test "$(wc -l <"$dir/texts$ranks")" -eq 7
    check "texts_are_the_same_on_${ranks}_ranks" cmp -s "$dir/texts1" "$dir/texts$ranks"
    sed 's/"[a-z]*_s": [0-9.e-]*//g' "$dir/out" >"$dir/json$ranks"
    check "figures_are_the_same_on_${ranks}_ranks" cmp -s "$dir/json1" "$dir/json$ranks"
done
check rows_are_counted test "$(first_number rows)" -eq 7

# --- `fsdp generate` writes the same texts, on another number of ranks too ---
run 2 evaluate --model "$dir/model" --data "$data/test.csv" --max-samples 7 --max-new-tokens 6 \
    --prompts "$dir/prompts" --predictions "$dir/texts"
run 3 generate --model "$dir/model" --input "$dir/prompts" --max-new-tokens 6
check generate_writes_the_same_texts cmp -s "$dir/texts" "$dir/out"

# --- random weights; several models; the constant sentence ---
run 2 evaluate --model "$dir/shape" --from-config --data "$data/test.csv" --max-samples 3 \
    --no-generate --json
random=$(first_number loss)
run 1 evaluate --model "$dir/model" --untrained --data "$data/test.csv" --max-samples 3 --no-generate --json
check untrained_is_from_config_with_the_same_seed test "$(first_number loss 1)" = "$random"
check and_training_lowered_the_loss awk "BEGIN { exit !($(first_number loss 2) < $random) }"
run 2 evaluate --model "$dir/model,$dir/shape" --data "$data/test.csv"
check a_folder_without_weights_is_named says "$dir/shape.*(weights|safetensors)"
run 1 evaluate --model "$dir/model" --data "$data/test.csv" --max-samples 4 --max-new-tokens 4 \
    --baseline-data "$data/train.csv" --examples 2
check tables_are_shown shows 'ROUGE-L'
check the_constant_sentence_is_shown shows '^the best constant sentence: .'
check examples_are_shown test "$(grep -c '^  reference ' "$dir/out")" -eq 2

# --- ready-made ids: with a tokenizer they have texts, without one only a loss ---
printf '{"input_ids": [21603, 10, 5], "labels": [37, 1]}\n{"input_ids": [5], "labels": [8, 9, 1]}\n' >"$dir/ids.jsonl"
run 2 evaluate --model "$dir/model" --data "$dir/ids.jsonl" --max-new-tokens 3 --json
check ids_with_a_tokenizer_have_texts shows '"rougeL"'
rm "$dir/model/spiece.model"
run 2 evaluate --model "$dir/model" --data "$dir/ids.jsonl"
check ids_without_a_tokenizer_have_a_loss test $rc -eq 0
check and_it_says_why_there_are_no_texts shows '^no texts to compare: '
run 1 evaluate --model "$dir/model" --data "$dir/ids.jsonl" --predictions "$dir/none"
check predictions_without_texts_fail test $rc -eq 1
check and_leave_no_file test ! -e "$dir/none"

# --- wrong use ---
run 1 evaluate --model "$dir/model" --data "$data/test.csv" --no-generate --examples 3
check examples_need_texts test $rc -eq 2
run 2 evaluate --model "$dir/model" --data "$data/test.csv" --predictions "$dir/nowhere/texts"
check a_missing_folder_is_an_error_before_the_work says 'nowhere/texts: there is no such folder'
check nothing_was_computed test ! -s "$dir/out"
run 1 evaluate --data "$data/test.csv"
check a_model_is_required test $rc -eq 2
run 2 evaluate --model "$dir/model" --tokenizer "$root/data/tokenizers/t5" --data "$dir/nothing.csv"
check missing_data_are_named says "$dir/nothing.csv"
check with_code_1 test $rc -eq 1

echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
