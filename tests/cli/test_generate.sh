#!/bin/sh
# `fsdp generate` from outside: ids and texts, ranks, files of prompts, errors.
# usage: FSDP_BUILD=build tests/cli/test_generate.sh
fsdp=${FSDP_BUILD:-build}/fsdp
case $fsdp in /*) ;; *) fsdp=$(pwd)/$fsdp ;; esac
tests=$(cd "$(dirname "$0")/.." && pwd) || exit 1
model=$tests/golden/generation/t5_model
spiece=$tests/../data/tokenizers/t5/spiece.model
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
passed=0 failed=0

ok() { passed=$((passed + 1)); echo "ok $1"; }
bad() {
    failed=$((failed + 1))
    echo "FAIL $1: $2"
    head -n 5 "$dir/out" | cut -c 1-200 | sed 's/^/    out: /'
    head -n 5 "$dir/err" | cut -c 1-200 | sed 's/^/    err: /'
}
# run ARGUMENTS...: output in $dir/out and $dir/err, exit code in $rc
run() {
    timeout -s KILL 120 "$fsdp" "$@" >"$dir/out" 2>"$dir/err"
    rc=$?
}
# expect NAME RC TEXT: the exit code, and TEXT (extended regular expression) in the output
expect() {
    if [ "$rc" -ne "$2" ]; then bad "$1" "exit code $rc, not $2"
    elif ! cat "$dir/out" "$dir/err" | grep -Eq -- "$3"; then bad "$1" "no '$3'"
    else ok "$1"
    fi
}
same() {
    if [ "$rc" -ne 0 ]; then bad "$1" "exit code $rc"
    elif ! cmp -s "$dir/out" "$dir/want"; then bad "$1" "other ids"
    else ok "$1"
    fi
}

# --- ids ---
cat >"$dir/prompts.jsonl" <<'END'
[250, 250, 250, 299, 1]
{"input_ids": [196, 196, 196, 196, 196, 196, 178, 311, 1]}
[116, 116, 116, 61, 116, 1]
END
cat >"$dir/want" <<'END'
[0, 250, 1]
[0, 196, 73, 1]
[0, 116, 50, 71, 210, 252, 72, 130, 82, 29, 96, 229, 254, 146, 161, 107, 53, 83, 1]
END
run generate --model "$model" --input-ids "$dir/prompts.jsonl" --max-new-tokens 20
same ids_are_transformers
run generate --model "$model" --input-ids "$dir/prompts.jsonl" --max-new-tokens 20 --batch-size 1
same a_prompt_at_a_time_gives_the_same
for n in 2 4; do
    run launch -n $n generate --model "$model" --input-ids "$dir/prompts.jsonl" --max-new-tokens 20 --batch-size 1
    same "ranks_${n}_give_the_same_in_order"
done
run launch -n 2 generate --model "$model" --input-ids "$dir/prompts.jsonl" --max-new-tokens 20 --reshard-after-forward
same gathering_for_every_token_gives_the_same
run generate --model "$model" --input-ids "$dir/prompts.jsonl" --param-dtype bf16 --max-new-tokens 1
if [ "$rc" -eq 0 ] && [ "$(wc -l <"$dir/out")" -eq 3 ]; then ok bfloat16_runs
else bad bfloat16_runs "exit code $rc"
fi
run generate --model "$model" --input-ids "$dir/prompts.jsonl" --json --max-new-tokens 2
expect json_has_prompt_and_ids 0 '^\{"index": 1, "input_ids": \[196, .*, 1\], "ids": \[0, 196, 73\]\}$'

# --- texts: a model of the tokenizer's size, with drawn weights, says something, and always the same ---
if [ -f "$spiece" ]; then
    run generate --model "$model" --tokenizer "$spiece" 'a text'
    expect a_tokenizer_larger_than_the_model_is_refused 1 'they do not belong together'
fi
run generate --model "$model" 'a text'
expect texts_need_a_tokenizer 1 'need a tokenizer.*spiece.model'

# --- errors ---
run generate --model "$dir/nowhere" x
expect no_folder_is_an_error 1 'nowhere'
HF_HUB_CACHE=$dir/cache run generate --model org/name x
expect a_hub_name_names_the_folders_searched 1 'models--org--name'
run generate 'a text'
expect no_model_is_misuse 2 '--model'
run generate --model "$model"
expect no_prompt_is_an_error 1 'nothing to generate from'
echo '[1, 320]' >"$dir/bad.jsonl"
run generate --model "$model" --input-ids "$dir/bad.jsonl"
expect an_id_beyond_the_vocabulary_is_named 1 'bad.jsonl.*320'
run launch -n 2 generate --model "$model" --input-ids "$dir/bad.jsonl"
expect an_id_beyond_the_vocabulary_is_named_on_2_ranks 1 'bad.jsonl.*320'
cp -r "$model" "$dir/spoilt" && truncate -s 400000 "$dir/spoilt/model.safetensors"
run generate --model "$dir/spoilt" --input-ids "$dir/prompts.jsonl"
expect a_truncated_model_is_an_error 1 'model.safetensors'

echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
