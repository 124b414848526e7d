#!/bin/sh
# models/t5-debian-mini: as large as was promised, with a card, and it computes and writes what
# transformers computes and writes with it (tools/golden_text.py), on other numbers of ranks too.
# usage: FSDP_BUILD=build tests/cli/test_shipped_model.sh
. "$(dirname "$0")/lib.sh"
needs sentencepiece
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
tally
