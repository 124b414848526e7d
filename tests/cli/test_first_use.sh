#!/bin/sh
# What a first user reads and runs: the prefix of a fine-tuned model, the learning rate of the defaults, and hints.
# usage: FSDP_BUILD=build tests/cli/test_first_use.sh
. "$(dirname "$0")/train.sh"
needs utf8proc pcre2

tiny_t5 t5 12 3 4 24 1 330
cp "$fixtures/chat/tokenizer.json" "$fixtures/chat/tokenizer_config.json" t5
awk 'BEGIN { for (i = 0; i < 8; i++) printf "{\"question\": \"runner %d went home\", \"answer\": \"the cat %d runs\"}\n", i, i % 3 }' >faq.jsonl
# on FOLDER FLAGS...: trains the model in FOLDER
on() {
    folder=$1
    shift
    run train --model "$folder" --data faq.jsonl --batch-size 4 --num-workers 0 --metrics m.jsonl "$@"
}
losses() { sed -n 's/.*"kind": "step".*"loss": \([^,]*\),.*/\1/p' m.jsonl; }
# prefix FOLDER: prints the prefix in its config.json, with its quotes
prefix() { sed -n 's/^ *"prefix": \(.*[^,]\),*$/\1/p' "$1/config.json"; }
# ids_of FOLDER FLAGS...: prints the ids of the prompt
ids_of() {
    folder=$1
    shift
    run generate --model "$folder" --max-new-tokens 1 --json "$@"
    sed -n 's/.*"input_ids": \(\[[^]]*\]\).*/\1/p' out
}

# --- the prefix ---
on t5 --from-config --epochs 1 --output tuned
expect the_default_prefix_is_said 0 "^'summarize: ' is put before each source text, the default of seq2seq; --task-prefix '' puts" out
check a_trained_model_has_its_prefix [ "$(prefix tuned)" = '"summarize: "' ]
mkdir plain && sed '/"prefix"/d' tuned/config.json >plain/config.json && cp tuned/model.safetensors tuned/tokenizer* plain
check the_other_keys_stay [ "$(sed '/"prefix"/d' tuned/config.json | wc -l)" -gt 15 ]
want=$(ids_of tuned --task-prefix 'summarize: ' 'the cat')
check a_prefix_that_is_given_says_nothing sh -c '[ -n "$1" ] && ! grep -q config.json err' sh "$want"
check generate_uses_it [ "$(ids_of tuned 'the cat')" = "$want" ]
expect and_says_so 0 "note: config.json of tuned: 'summarize: ' is put before each text, as in training; --task-prefix '' puts"
check the_prompt_of_a_result_is_what_was_given grep -q '"prompt": "the cat"' out
check not_twice [ "$(ids_of tuned 'summarize: the cat')" = "$want" ]
check then_nothing_is_said sh -c '! grep -q config.json err'
printf 'the cat\nsummarize: the cat\n' >two.txt
check each_text_of_a_file_decides [ "$(ids_of tuned --input two.txt)" = "$want
$want" ]
check a_prefix_that_is_given_is_always_put [ "$(ids_of tuned --task-prefix 'summarize: ' 'summarize: the cat')" != "$want" ]
none=$(ids_of tuned --task-prefix '' 'the cat')
check an_empty_prefix_puts_nothing [ -n "$none" -a "$none" != "$want" ]
check a_folder_without_the_key_has_no_prefix [ "$(ids_of plain 'the cat')" = "$none" ]
check and_says_nothing sh -c '! grep -q "put before" err'
echo '[7, 8, 1]' >faq.ids
run generate --model tuned --input-ids faq.ids --max-new-tokens 1
check ids_have_no_prefix sh -c '[ "$1" -eq 0 ] && ! grep -q "put before" err' sh "$rc"

# a later run, and evaluate, use the prefix of the folder
sed 's/"summarize: "/"ask: "/' tuned/config.json >plain/config.json
on plain --epochs 1 --output again
expect a_later_run_says_it 0 "^config.json of plain: 'ask: ' is put before each source text; --task-prefix ''" out
ours=$(losses)
check a_later_run_keeps_it [ "$(prefix again)" = '"ask: "' ]
on plain --task seq2seq --epochs 1 --no-save-model
check also_if_the_task_is_given [ "$(losses)" = "$ours" ]
on plain --epochs 1 --no-save-model --task-prefix 'ask: '
check it_is_that_of_the_flag sh -c '[ "$1" = "$2" ] && ! grep -q "put before" out' sh "$(losses)" "$ours"
on plain --epochs 1 --output none --task-prefix ''
check a_flag_takes_precedence [ "$(losses)" != "$ours" -a "$(prefix none)" = '""' ]
on none --epochs 1 --no-save-model
expect an_empty_prefix_is_said 0 '^config.json of none: nothing is put before source texts; --task-prefix TEXT' out
run evaluate --model plain --data faq.jsonl --max-new-tokens 1 --prompts prompts.txt
expect evaluate_says_it 0 "config.json of .*plain: 'ask: ' is put before each source text; --task-prefix ''"
check evaluate_uses_it [ "$(head -n 1 prompts.txt)" = 'ask: runner 0 went home' ]
run evaluate --model none --data faq.jsonl --max-new-tokens 1 --prompts prompts.txt
check also_an_empty_one [ "$(head -n 1 prompts.txt)" = 'runner 0 went home' ]
run evaluate --model plain --data faq.jsonl --max-new-tokens 1 --task-prefix 'b: ' --prompts prompts.txt
check not_if_one_is_given [ "$(head -n 1 prompts.txt)" = 'b: runner 0 went home' ]
on plain --epochs 1 --validation-data faq.jsonl --no-save-model --generate-examples 1
expect examples_of_a_run_have_it 0 '^source: *ask: runner 0 went home$' out
mkdir odd && sed 's/"summarize: "/[1]/' tuned/config.json >odd/config.json && cp tuned/model.safetensors tuned/tokenizer* odd
run generate --model odd a
expect a_prefix_is_a_text 1 'odd/config.json: prefix'
on plain --epochs 1 --output bytes --task-prefix "$(printf 'a\344')"
expect a_prefix_is_utf8 1 '--task-prefix: byte 2 is not UTF-8, so config.json cannot store the text'
check and_nothing_is_trained [ ! -e bytes ]
# rows of ids have no prefix: the folder's stays
echo '{"input_ids": [7, 8, 1], "labels": [9, 1]}' >ids.jsonl
run train --model plain --data ids.jsonl --epochs 1 --output of_ids --num-workers 0
check rows_of_ids_do_not_change_it sh -c '[ "$1" = "\"ask: \"" ] && ! grep -q "put before" out' sh "$(prefix of_ids)"

# a run that is resumed keeps that of its checkpoint
on plain --max-steps 2 --save-steps 2 --output kept --task-prefix "$(printf 'a\n: ')"
on plain --max-steps 4 --save-steps 2 --output kept --resume
expect a_resumed_run_keeps_its_prefix 0 "^as in the run that is resumed, 'a.n: ' is put before each source text; --task-prefix TEXT changes it" out
check and_no_option_differs sh -c '! grep -q "resuming with --task-prefix" out'
check its_model_has_it [ "$(prefix kept)" = '"a\n: "' ]
on plain --max-steps 6 --save-steps 2 --output kept --resume --task-prefix 'b: '
expect another_one_is_said 0 '^resuming with --task-prefix b: , which was a.n: $' out
check and_used [ "$(prefix kept)" = '"b: "' ]
run generate --model kept --max-new-tokens 1 'the cat'
sed -i 's/"prefix": .*/"prefix": "x\\ny",/' kept/config.json
run generate --model kept --max-new-tokens 1 'the cat'
expect a_line_end_in_a_prefix_is_escaped 0 "config.json of kept: 'x.ny' is put before each text"

# sources that begin with the prefix
printf '{"source": "ask: a", "target": "b"}\n{"source": "a", "target": "b"}\n' >begun.jsonl
run train --model plain --data begun.jsonl --epochs 1 --no-save-model --num-workers 0
expect a_prefix_that_comes_twice_is_said 0 "begun.jsonl: 1 of 2 sources begin with 'ask: ' already and get it twice, as in transformers' run_summarization; --task-prefix '' puts nothing there"
run train --model plain --data begun.jsonl --epochs 1 --no-save-model --num-workers 0 --task-prefix ''
check not_without_a_prefix sh -c '! grep -q twice out err'
sed '/"prefix"/d' plain/config.json >none/config.json
run evaluate --model none --data faq.jsonl --max-new-tokens 1
expect evaluate_says_the_default 0 "'summarize: ' is put before each source text, the default of seq2seq; --task-prefix '' puts nothing there"

# ids made ahead have it, too
if lacks FlatBuffers; then skip ids_made_ahead_have_it 'built without FlatBuffers'; else
    run tokenize --task seq2seq --tokenizer plain --data faq.jsonl --output ahead
    expect tokenize_says_it 0 "note: plain/config.json: 'ask: ' is put before source texts; --task-prefix ''"
    run train --model plain --data ahead --epochs 1 --no-save-model --batch-size 4 --num-workers 0 --metrics m.jsonl
    check ids_made_ahead_have_it [ "$rc" -eq 0 -a "$(losses)" = "$ours" ]
    run tokenize --task seq2seq --tokenizer plain --data faq.jsonl --output other --task-prefix 'b: '
    check not_if_tokenize_is_given_one sh -c '[ "$1" -eq 0 ] && ! grep -q "put before" err' sh "$rc"
    run tokenize --task seq2seq --tokenizer odd --data faq.jsonl --output nothing
    expect a_bad_prefix_is_refused 1 'odd/config.json: prefix'
fi

# --- the learning rate ---
on t5 --from-config --epochs 8 --no-save-model
expect the_schedule_is_said 0 '^learning rate: 0.002, times 0.7 each epoch \(--lr-schedule step, the default of seq2seq\)$' out
expect a_rate_that_falls_is_noted 0 '^note: the learning rate falls by a factor of 0.7 each epoch, to 0.082 of 0.002 in the last one; --lr-schedule linear or constant' out
on t5 --from-config --epochs 7 --no-save-model
check seven_epochs_are_not sh -c '! grep -q "the learning rate falls" out'
for schedule in step linear; do
    on t5 --from-config --epochs 8 --no-save-model --lr-schedule $schedule
    check "a_choice_is_not_noted_$schedule" sh -c '[ "$1" -eq 0 ] && ! grep -q "the learning rate falls" out' sh "$rc"
done
expect a_line_is_said 0 '^learning rate: 0.002, falls to 0 in 16 steps \(--lr-schedule linear\)$' out
on t5 --from-config --max-steps 3 --no-save-model --lr-schedule constant --warmup-steps 1
expect a_warmup_is_said 0 '^learning rate: 0.002, after a warmup of 1 step \(--lr-schedule constant\)$' out
on t5 --from-config --max-steps 1 --no-save-model --step-size 2 --schedule-unit step
expect steps_are_said 0 '^learning rate: 0.002, times 0.7 every 2 steps \(--lr-schedule step\)$' out
on t5 --from-config --max-steps 1 --no-save-model --optimizer adafactor --relative-step
expect the_optimizers_rate_is_said 0 '^learning rate: chosen by Adafactor' out
tiny_bert bert
id_labels() { awk -v n="$1" 'BEGIN { for (i = 0; i < n; i++) printf "{\"input_ids\": [%d, 5, 6], \"label\": %d}\n", 7 + i, i % 2 }'; }
id_labels 8 >classes.jsonl
rm -f m.jsonl
run train --model bert --from-config --data classes.jsonl --epochs 1 --batch-size 2 --num-workers 0 --metrics m.jsonl --no-save-model
expect a_classifiers_rate_falls_along_a_line 0 '^learning rate: 2e-05, falls to 0 in 4 steps \(--lr-schedule linear, the default of classification\)$' out
rates=$(sed -n 's/.*"kind": "step".*"lr": \([^,]*\),.*/\1/p' m.jsonl | awk '{ printf "%g ", $1 }')
check its_rates_are_those_of_the_line [ "$rates" = '2e-05 1.5e-05 1e-05 5e-06 ' ]
check a_classifier_generates_nothing sh -c '! grep -q "^try it" out'

# --- hints ---
run generate --model tuned --max-new-tokens 1 how do I reset
expect lone_words_are_noted 0 'note: 4 prompts; put a text in quotes to make it one$'
for texts in "'how do I'" 'how' "how 'do I'"; do
    eval "run generate --model tuned --max-new-tokens 1 $texts"
    check "not_$(echo "$texts" | tr -c 'a-zI\n' _)" sh -c '[ "$1" -eq 0 ] && ! grep -q "in quotes" err' sh "$rc"
done
on t5 --from-config --epochs 1 --output "my faq"
expect the_end_says_what_to_try 0 "^try it: ([^ ]*/)?fsdp generate --model 'my faq' 'your text'$" out
check it_can_be_run sh -c 'command=$(sed -n "s/^try it: //p" out); eval "$command --max-new-tokens 1" >run 2>&1'
expect no_validation_is_said 0 '^no validation loss: --validation-data FILE names rows to measure it on$' out
check once [ "$(grep -c 'no validation loss' out)" -eq 1 ]
on t5 --from-config --epochs 1 --output faq
check a_plain_path_has_no_quotes grep -q "fsdp generate --model faq 'your text'$" out
mkdir bin && cp "$fsdp" bin/fsdp
for way in bin/fsdp fsdp; do
    PATH=$dir/bin:$PATH "$way" train --model t5 --from-config --data faq.jsonl --epochs 1 --num-workers 0 --output faq.$$ >out 2>err
    rm -rf faq.$$
    check "a_program_on_the_path_is_named_alone_$(basename "$(dirname "$way")")" grep -q "^try it: fsdp generate" out
done
bin/fsdp train --model t5 --from-config --data faq.jsonl --epochs 1 --num-workers 0 --output faq2 --metrics new/er/m.jsonl >out 2>err
rc=$?
expect another_is_named_by_its_path 0 "^try it: bin/fsdp generate --model faq2 'your text'$" out
(cd bin && ./fsdp train --model ../t5 --from-config --data ../faq.jsonl --epochs 1 --num-workers 0 --output ../faq3) >out 2>err
expect one_beside_the_user_gets_a_slash 0 "^try it: ./fsdp generate --model ../faq3 'your text'$" out
check the_folder_of_metrics_is_made [ -s new/er/m.jsonl ]
run train --model t5 --from-config --data faq.jsonl --epochs 1 --no-save-model --metrics faq.jsonl/m.jsonl
expect a_folder_that_cannot_be_made_is_refused 1 'faq.jsonl' err
on t5 --from-config --epochs 1 --validation-data faq.jsonl --no-save-model
check not_with_validation sh -c '! grep -q "no validation loss" out'
check without_a_model_there_is_nothing_to_try sh -c '! grep -q "^try it" out'
run launch -n 2 train --model t5 --from-config --data faq.jsonl --epochs 1 --batch-size 2 --num-workers 0 --output ranks
check one_rank_says_it [ "$rc" -eq 0 -a "$(grep -c '^try it: ' out)" -eq 1 -a "$(prefix ranks)" = '"summarize: "' ]
tiny_llama llama
sed 's/"vocab_size": 67/"vocab_size": 330/' llama/config.json >config.json && mv config.json llama
cp "$fixtures/chat/tokenizer.json" "$fixtures/chat/tokenizer_config.json" llama
sed 's/question/prompt/; s/answer/completion/' faq.jsonl >lm.jsonl
run train --model llama --from-config --data lm.jsonl --epochs 1 --num-workers 0 --output lm --task-prefix "it's: "
cat >want <<'END'
fsdp generate --model lm --task-prefix 'it'\''s: ' 'your text'
END
check a_causal_models_prefix_is_in_the_command grep -qFf want out
check its_config_has_none [ -z "$(prefix lm)" ]
# --- `make` in a fresh clone counts what it compiles ---
if command -v make >/dev/null; then
    env -u MAKEFLAGS -u MAKELEVEL make -n -C "$root" BUILD="$dir/fresh" NVCC= 2>/dev/null |
        sed -n 's/.*"  C[CX]*X* \[\([0-9]*\)\/\([0-9]*\)\] .*/\1 \2/p' >counts
    check make_counts_what_it_compiles awk '
        $1 != NR || NR > 1 && $2 != n { bad = 1 }
        { n = $2 }
        END { exit bad || NR < 100 || n != NR }' counts
else
    skip make_counts_what_it_compiles "no make here"
fi

tally
