#!/bin/sh
# models/t5-debian-mini: it has the promised size and a card, and computes and generates the same
# as transformers with it (tools/golden_text.py), on other numbers of ranks too.
# usage: FSDP_BUILD=build tests/cli/test_shipped_model.sh
. "$(dirname "$0")/lib.sh"
needs utf8proc
model=$root/models/t5-debian-mini
texts=$root/tests/fixtures/t5_debian_mini

check it_has_no_more_than_16_mb test "$(cat "$model"/* | wc -c)" -le 16000000
check it_is_bf16 grep -q '"dtype": "bfloat16"' "$model/config.json"
for section in Data Training Figures Limits; do
    check "the_card_has_$section" grep -q "^## $section" "$model/README.md"
done
for n in 1 2 3; do
    run launch -n $n verify "$golden/t5_debian_mini"
    expect "transformers_numbers_on_${n}_ranks" 0 '^verify: 2 compared, 0 failed, 0 not compared$' out
done
run generate --model "$model" --input "$texts/prompts.txt" --max-new-tokens 32
check the_texts_of_transformers cmp "$dir/out" "$texts/texts.txt"
run launch -n 2 generate --model "$model" --input "$texts/prompts.txt" --max-new-tokens 32
check and_on_two_ranks cmp "$dir/out" "$texts/texts.txt"
awk 'BEGIN { for (i = 0; i < 600; i++) printf "apt "; print "" }' >long.txt
run generate --model "$model" --input long.txt --max-new-tokens 1 --json
check a_source_has_512_tokens test "$(grep -o '"input_ids": [^]]*' out | tr ',' '\n' | wc -l)" -eq 512
expect and_it_is_said 0 '1 of 1 prompts cut to their first 512 tokens'
check the_last_of_which_is_the_end grep -q '"input_ids": [^]]*, 1\]' out
tally
