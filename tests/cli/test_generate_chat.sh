#!/bin/sh
# `fsdp generate` on conversations, with stop strings, and with texts that are shown as they come.
# usage: FSDP_BUILD=build tests/cli/test_generate_chat.sh
. "$(dirname "$0")/lib.sh"
needs utf8proc pcre2

# A model that has learnt to answer: hi with hello, hey with bye.
chat=$fixtures/chat
tiny_llama llama
sed 's/"vocab_size": 67/"vocab_size": 330/; s/embeddings": 64/embeddings": 512/' llama/config.json >config && mv config llama/config.json
cp "$chat/tokenizer.json" "$chat/tokenizer_config.json" llama
cat >llama/chat_template.jinja <<'END'
{% for m in messages %}<|{{ m.role }}|>{{ m.content }}</s>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}
END
row() { printf '{"messages": [{"role": "user", "content": "%s"}, {"role": "assistant", "content": "%s"}]}\n' "$1" "$2"; }
for i in 1 2 3 4; do
    row hi 'hello 😀 you.'
    row hey 'bye.'
    printf '{"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "hi"}, {"role": "assistant", "content": "no"}]}\n'
done >turns.jsonl
run train --model llama --from-config --data turns.jsonl --output m --epochs 150 --batch-size 12 --lr 0.01 --lr-schedule cosine \
    --assistant-only-loss --num-workers 0 --seed 3
check the_model_is_trained [ "$rc" -eq 0 ]

# --- one message ---
run generate --model m --chat --prompt hi
check an_answer_ends_with_the_turn [ "$(cat out)" = 'hello 😀 you.' ]
run generate --model m --chat hi hey
check each_text_is_a_message_of_its_own [ "$(cat out)" = "$(printf 'hello 😀 you.\nbye.')" ]
run generate --model m --chat --system S --prompt hi
check the_system_has_a_message [ "$(cat out)" = no ]

# --- guidance ---
run generate --model m --guidance-scale 0 --negative-prompt 'hi hello' --max-new-tokens 8 hey
cp out guided
ids=$("$fsdp" generate --model m --json --max-new-tokens 1 'hi hello' | sed 's/.*"input_ids": *\[\([^]]*\)\].*/\1/')
run generate --model m --guidance-scale 0 --negative-prompt-ids "$ids" --max-new-tokens 8 hey
check a_negative_prompt_is_a_text_or_ids [ "$rc" -eq 0 -a -s guided -a -n "$ids" -a "$(cat out)" = "$(cat guided)" ]
run generate --model m --max-new-tokens 8 hey
check and_changes_the_text [ "$rc" -eq 0 -a "$(cat out)" != "$(cat guided)" ]
for n in 2 3; do
    run launch -n $n generate --model m --guidance-scale 0 --negative-prompt 'hi hello' --max-new-tokens 8 hey
    check "guidance_on_${n}_ranks_is_the_same" cmp -s out guided
done
run generate --model m --negative-prompt hi hey
expect a_negative_prompt_needs_guidance 1 'negative-prompt needs --guidance-scale other than 1'
run generate --model m --guidance-scale 2 --negative-prompt hi --negative-prompt-ids 5 hey
expect one_negative_prompt_is_enough 1 'negative-prompt and --negative-prompt-ids both give'

# --- a conversation in the terminal ---
capture sh -c 'printf "%s\n" "$@" | "$0" generate --model m --chat' "$fsdp" hi '' hey /what '/system S' hi /clear hi '/system' hi /exit hi
check lines_are_messages [ "$(sed -n 1p out)" = 'hello 😀 you.' ]
check the_system_is_set_and_stays_after_clear [ "$(sed -n 3,4p out | tr '\n' ' ')" = 'no no ' ]
check it_can_be_removed_and_exit_ends [ "$(sed -n '5,$p' out)" = 'hello 😀 you.' ]
expect other_commands_are_named 0 'a command is /exit, /clear or /system TEXT'
capture sh -c 'printf "hi\nhi\n" | "$0" generate --model m --chat' "$fsdp"
cp out alone
capture sh -c 'printf "hi\nhi\n" | "$0" launch -n 2 generate --model m --chat' "$fsdp"
check ranks_take_part_in_lockstep cmp -s out alone
check the_second_answer_knows_the_first [ "$(wc -l <alone)" -eq 2 ]
capture sh -c 'printf "hi\n%03000d\nhi\n" 0 | "$0" generate --model m --chat --max-length 100' "$fsdp"
expect what_is_too_long_is_left_out 0 'leaves no room for an answer: /clear'
check and_the_conversation_goes_on cmp -s out alone

capture sh -c 'printf "hi\n\351\n/system \351\nhi\n" | "$0" generate --model m --chat' "$fsdp"
expect what_is_not_utf8_is_refused 0 '/system: the message is not UTF-8.*; the conversation goes on as it was'
check and_the_conversation_has_only_the_rest cmp -s out alone
capture sh -c '"$0" generate --model m --chat --system "$(printf "\351")" </dev/null' "$fsdp"
expect a_system_message_is_utf8 1 '--system: .*not UTF-8'

# --- files ---
printf '%s\n' '{"id": 7, "messages": [{"role": "user", "content": "hi"}]}' '{"prompt": [{"role": "user", "content": "hey"}]}' >ask.jsonl
run generate --model m --messages ask.jsonl --output answers.jsonl --batch-size 1
cat >want <<'END'
{"id": 7, "messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello \ud83d\ude00 you."}]}
{"prompt": [{"role": "user", "content": "hey"}], "completion": [{"role": "assistant", "content": "bye."}]}
END
check each_conversation_has_its_answer cmp -s answers.jsonl want
gzip -k ask.jsonl
run launch -n 2 generate --model m --messages ask.jsonl.gz
check compressed_files_and_ranks_give_the_same cmp -s out want
row hi 'hello 😀' >begun.jsonl
run generate --model m --messages begun.jsonl --continue-final-message
expect a_final_message_is_continued 0 '"content": "hello .ud83d.ude00 you\."\}\]\}$' out
run generate --model m --messages begun.jsonl
expect or_it_is_refused 1 'begun.jsonl: line 1: .*--continue-final-message'
printf '{"text": "hi"}\n' >text.jsonl
run generate --model m --messages text.jsonl
expect a_row_without_messages_is_refused 1 "text.jsonl: line 1: not a conversation"
run generate --model m --input text.jsonl --chat
check rows_may_be_messages [ "$(cat out)" = 'hello 😀 you.' ]
run generate --model m --chat --input ask.jsonl --system S
expect a_system_is_for_texts 1 '--system is for texts; the rows of ask.jsonl are conversations'
run generate --model m --messages ask.jsonl --task-prefix P
expect a_prefix_is_for_texts 1 '--task-prefix is for texts; the rows of ask.jsonl are conversations'
run generate --model m --chat --prompt hi --text-column x
expect a_column_is_for_rows 1 '--text-column names a column of rows: it needs --input'
run generate --model m --input ask.jsonl
expect conversations_need_the_option 1 'ask.jsonl: line 1: the row is a conversation: --chat answers it'

# --- stop strings, streams ---
run generate --model m --chat --prompt hi --stop '😀'
check a_stop_string_stays_at_the_end [ "$(cat out)" = 'hello 😀' ]
run generate --model m --chat --prompt hi --stop 'zz' --stop 'o 😀 y' --num-beams 2
check several_are_given_and_beams_stop_too [ "$(cat out)" = 'hello 😀 y' ]
sed 's/{/{"stop_strings": ["ll"],/' m/generation_config.json >config && cp -r m stops && mv config stops/generation_config.json
run launch -n 2 generate --model stops --chat hi hey
check those_of_generation_config_count_on_all_ranks [ "$(cat out)" = "$(printf 'hell\nbye.')" ]
run generate --model m --chat --prompt hi --stream
check a_stream_is_the_same_text [ "$(cat out)" = 'hello 😀 you.' ]
run generate --model m --stream 'a' 'b'
expect a_stream_is_of_one_prompt 1 '--stream is for one prompt; there are 2'
run generate --model m --stream 'a' --num-beams 2
expect beams_are_not_streamed 1 'beam search'

# --- rows of files as prompts ---
printf 'n;text\n1;hi\n' >rows.csv
run generate --model m --input rows.csv --max-new-tokens 2 --json
expect a_delimiter_is_found 0 '"prompt": "hi"' out
printf 'other,text\nx,hi\n' >rows2.csv
run generate --model m --input rows2.csv --max-new-tokens 2 --json
expect a_column_is_found 0 '"prompt": "hi"' out
run generate --model m --input rows2.csv --text-column other --max-new-tokens 2 --json
expect or_chosen 0 '"prompt": "x"' out
expect other_columns_are_named 0 "note: rows2.csv: not used: '" err
printf '{"text": "a", "temperature": 2, "id": null}\n' >keyed.jsonl
run generate --model m --input keyed.jsonl --max-new-tokens 2
expect so_is_a_key_that_has_no_effect 0 "note: keyed.jsonl: not used: 'temperature' \(line 1\)$" err
printf '{"input_ids": [5], "extra": 1}\n' >more.jsonl
run generate --model m --input keyed.jsonl --input-ids more.jsonl --max-new-tokens 2
expect keys_of_both_files_are_named 0 "'temperature' \(line 1\); more.jsonl: not used: 'extra' \(line 1\)$" err
printf '{"q": {"body": "a"}}\n' >nested.jsonl
run generate --model m --input nested.jsonl --text-column q.body --max-new-tokens 2
expect an_object_of_which_a_part_is_used_is_used 0
check and_is_not_named sh -c '! grep -q "not used" err'
run generate --model m --input rows2.csv --text-column none
expect a_missing_column_is_named "1" "rows2.csv: no text in the column 'none'.*'other', 'text'"

# --- what does not fit ---
run generate --model m --system S hi
expect options_of_conversations_need_one 2 '--system needs --chat or --messages'
run generate --model m --chat --json
expect a_conversation_in_the_terminal_has_no_json 2 '\-\-json is for prompts; --chat without texts is a conversation in the terminal'
rm m/chat_template.jinja
run generate --model m --chat hi
expect a_model_without_a_template_is_named 1 'a conversation needs a chat template; --chat-template takes one'
tiny_t5 t5 12 3 4 24 1 330
cp "$chat/tokenizer.json" "$chat/tokenizer_config.json" t5
id_rows 4 >ids.jsonl
run train --model t5 --from-config --data ids.jsonl --max-steps 1 --output seq2seq
run generate --model seq2seq --chat hi
expect seq2seq_has_no_conversations 1 'a conversation needs a causal model'
run generate --model m --suppress-tokens 330 hi
expect ids_of_settings_are_checked 1 'suppress_tokens has the id 330, but the model.s ids end at 329'
sed 's/{/{"speed": 3, "temperature": 1.0,/' m/generation_config.json >config && mv config m/generation_config.json
run generate --model m --max-new-tokens 1 hi
expect unknown_settings_are_named 0 'generation_config.json sets speed, which is not supported'
cp ask.jsonl kept.jsonl
run generate --model m --messages ask.jsonl --output ./ask.jsonl
expect the_input_is_not_overwritten 2 '--messages ask.jsonl and --output ./ask.jsonl are the same file'
check and_stays_as_it_is cmp -s ask.jsonl kept.jsonl
tally
