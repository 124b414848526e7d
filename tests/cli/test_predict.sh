#!/bin/sh
# `fsdp train --predict-with-generate`: ROUGE of texts that are generated in validation, and the best
# model by it.
# usage: FSDP_BUILD=build tests/cli/test_predict.sh
. "$(dirname "$0")/train.sh"
needs utf8proc pcre2

tiny_t5 t5 12 3 4 24 1 330
cp "$fixtures/chat/tokenizer.json" "$fixtures/chat/tokenizer_config.json" t5
awk 'BEGIN { for (i = 0; i < 12; i++)
    printf "{\"source\": \"runner %d went home\", \"target\": \"the cat %d runs\"}\n", i, i % 3 }' >rows.jsonl

# on RANKS FLAGS...: trains with validation after each epoch; the metrics are in m.jsonl
on() {
    rm -rf o m.jsonl
    ranks=$1
    shift
    run launch -n "$ranks" train --model t5 --from-config --data rows.jsonl --validation-data rows.jsonl \
        --output o --epochs 3 --batch-size 2 --lr 0.05 --num-workers 0 --task-prefix '' --max-source-length 16 \
        --max-target-length 12 --metrics m.jsonl "$@"
}
# scores: prints the scores of each validation
scores() {
    sed -n 's/.*"validation".*"rouge1": \([^,]*\), "rouge2": \([^,]*\), "rougeL": \([^,]*\), "rougeLsum": \([^,]*\), "gen_len": \([^,}]*\).*/\1 \2 \3 \4 \5/p' m.jsonl
}
on 1 --predict-with-generate
check a_validation_has_scores [ "$rc" -eq 0 -a "$(scores | wc -l)" -eq 3 ]
one=$(scores)
expect they_are_printed 0 '^ROUGE-1: [0-9.]*, ROUGE-2: [0-9.]*, ROUGE-L: [0-9.]*, ROUGE-Lsum: [0-9.]*, [0-9.]* tokens a text$' out
cp -r o saved
# the model that was saved is that of the least loss; with the last epoch it is the one that is there
best=$(sed -n 's/.*"validation".*"loss": \([^,]*\),.*/\1/p' m.jsonl | awk '{ if (NR == 1 || $1 < least) { least = $1; at = NR } } END { print at }')
of_best=$(scores | sed -n "${best}p" | cut -d ' ' -f 3)
run evaluate --model saved --data rows.jsonl --task-prefix '' --max-source-length 16 --max-new-tokens 12 --json
found=$(number rougeL)
check they_are_those_of_evaluate sh -c 'awk -v a="$1" -v b="$2" "BEGIN { exit !(a > 0 && (a - b) ^ 2 < 1e-20) }"' sh "$of_best" "$found"
on 2 --predict-with-generate
check ranks_give_the_same_scores_in_lockstep [ "$rc" -eq 0 -a "$(scores | wc -l)" -eq 3 ]
on 1 --predict-with-generate --generation-max-length 4
check a_length_limits_the_texts sh -c 'cut -d " " -f 5 | awk "\$1 > 3 { exit 1 }"' sh <<END
$(scores)
END
check which_changes_the_scores [ "$(scores)" != "$one" ]
# As in transformers' scripts, the length counts the decoder's first token, which is not generated. The model of these
# runs does not learn, and never ends a text.
lengths() { on 1 --predict-with-generate --epochs 1 --lr 0 "$@"; scores | cut -d ' ' -f 5; }
check the_longest_target_counts_the_first_token [ "$(lengths)" = 11.0 ]
check also_that_of_validation [ "$(lengths --val_max_target_length 7)" = 6.0 ]
check and_that_of_generation [ "$(lengths --generation_max_length 7)" = 6.0 ]
check one_token_is_generated_at_least [ "$(lengths --val_max_target_length 1)" = 1.0 ]
on 1 --predict-with-generate --generation-num-beams 3
check beams_are_searched [ "$rc" -eq 0 -a "$(scores | wc -l)" -eq 3 ]
on 1 --predict-with-generate --metric-for-best-model rougeL --greater-is-better
expect a_score_decides_which_model_is_saved 0 'New Record of rougeL: ' out
greatest=$(scores | cut -d ' ' -f 3 | sort -g | tail -n 1)
check the_last_record_is_the_greatest_score \
    [ "$(sed -n 's/.*New Record of rougeL: //p' out | tail -n 1)" = "$(printf '%.4f' "$greatest")" ]
refused_by() {
    text=$1
    shift
    on 1 "$@"
    refused "${text%% *}" "$text"
}
refused_by '--generation-max-length needs --predict-with-generate' --generation-max-length 5
refused_by 'needs --predict-with-generate' --metric-for-best-model rouge1
refused_by '--greater-is-better true contradicts' --greater-is-better
refused_by 'accuracy and F1 are for classification' --metric-for-best-model accuracy
refused_by '--predict-with-generate: a row of --packing has several prompts' --predict-with-generate --packing bfd

# The best loss is known when another measure decided before.
on 1 --predict-with-generate --metric-for-best-model rougeL --checkpoint-dir c --save-strategy epoch
least=$(sed -n 's/.*"validation".*"loss": \([^,]*\),.*/\1/p' m.jsonl | sort -g | head -n 1)
run train --model t5 --from-config --data rows.jsonl --validation-data rows.jsonl --output o --overwrite-output --epochs 5 \
    --batch-size 2 --lr 2 --num-workers 0 --task-prefix '' --max-source-length 16 --max-target-length 12 --checkpoint-dir c --resume
check no_worse_model_is_a_record_after_resuming sh -c '[ "$3" -eq 0 ] && sed -n "s/.*New Val Loss Record: //p" "$1" |
    awk -v least="$2" "\$1 > least { exit 1 }"' sh out "$least" "$rc"

# A causal model continues the prompt of a row. A prompt without room is an error before the first epoch.
tiny_llama llama
sed 's/"vocab_size": 67/"vocab_size": 330/' llama/config.json >config && mv config llama/config.json
cp t5/tokenizer.json t5/tokenizer_config.json llama
printf '{"prompt": "a", "completion": " b"}\n{"prompt": "runner went home", "completion": " the cat"}\n' >lm.jsonl
lm() { run launch -n "$1" train --model llama --from-config --data lm.jsonl --validation-data lm.jsonl --output lo --overwrite-output \
    --epochs 1 --batch-size 1 --num-workers 0 --predict-with-generate --generation-max-length "$2"; }
lm 2 4
check a_prompt_without_room_is_refused grep -q -- '--predict-with-generate: lm.jsonl: row 2: its prompt of .* leaves no room' err
check before_any_step sh -c '! grep -q "Train Epoch" out'
lm 2 40
check prompts_with_room_are_continued [ "$rc" -eq 0 ]
rm t5/tokenizer.json t5/tokenizer_config.json
id_rows 12 >rows.jsonl
on 1 --predict-with-generate
refused_or() { if grep -Eq -- "$2" err; then ok "$1"; else bad "$1" "no '$2'"; fi; }
refused_or ids_without_a_tokenizer_have_no_texts '--predict-with-generate needs a tokenizer'
echo '{"stop_strings": ["x"], "decoder_start_token_id": 0, "eos_token_id": 1}' >t5/generation_config.json
on 1 --generate-examples 1
check stop_strings_without_a_tokenizer_leave_examples_out sh -c '[ "$1" -eq 0 ] && grep -q "no examples: .*stop_strings" err' sh "$rc"
tally
