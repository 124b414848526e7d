#!/bin/sh
# `fsdp train` and `fsdp evaluate` on conversations: chat templates, and what has a loss.
# usage: FSDP_BUILD=build tests/cli/test_chat.sh
. "$(dirname "$0")/train.sh"

chat=$fixtures/chat
tiny_llama llama
sed "s/\"vocab_size\": 67/\"vocab_size\": 330/; s/embeddings\": 64/embeddings\": 1024/" llama/config.json >config && mv config llama/config.json
cp "$chat/tokenizer.json" "$chat/tokenizer_config.json" llama
cp "$chat/tool_types.jinja" llama/chat_template.jinja

# The conversations of tests/fixtures/chat, and the same as ids with transformers' assistant mask.
grep '"ids"' "$chat/expected.jsonl" | grep '"generation_prompt": false' >chat.jsonl
awk '{
    ids = mask = $0
    sub(/.*"ids": \[/, "", ids); sub(/\].*/, "", ids)
    sub(/.*"mask": \[/, "", mask); sub(/\].*/, "", mask)
    n = split(ids, id, ", "); split(mask, m, ", ")
    printf "{\"input_ids\": [%s], \"labels\": [", ids
    for (i = 1; i <= n; i++) printf "%s%s", (i > 1 ? ", " : ""), (m[i] ? id[i] : -100)
    print "]}"
}' chat.jsonl >ids_of_chat.jsonl

# on DATA FLAGS...: prints the numbers of a run
on() {
    rm -rf o m.jsonl
    data=$1
    shift
    run train --model llama --from-config --data "$data" --output o --epochs 2 --batch-size 1 --lr 0.01 \
        --num-workers 0 --shuffle false --metrics m.jsonl "$@"
    [ ! -e m.jsonl ] || numbers m.jsonl
}
wanted=$(on ids_of_chat.jsonl)
check a_run_on_ids [ "$rc" -eq 0 -a -n "$wanted" ]
found=$(on chat.jsonl --assistant-only-loss)
check training_on_conversations_is_training_on_the_ids_and_mask_of_transformers [ "$found" = "$wanted" ]
check the_template_goes_with_the_model cmp -s o/chat_template.jinja llama/chat_template.jinja
check without_the_option_all_has_a_loss [ "$(on chat.jsonl)" != "$wanted" ]

# --- families, completions ---
printf '%s\n' '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}' >turns.jsonl
printf '%s\n' '{"prompt": [{"role": "user", "content": "a"}], "completion": [{"role": "assistant", "content": "b"}]}' >parts.jsonl
printf '%s\n' '{"text": "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n"}' >text.jsonl
all=$(on turns.jsonl --chat-template chatml)
last=$(on turns.jsonl --chat-template chatml --completion-only-loss)
check a_family_is_chosen_by_name [ "$rc" -eq 0 -a -n "$all" -a "$all" != "$last" ]
check one_turn_is_the_completion [ "$(on turns.jsonl --chat-template chatml --assistant-only-loss)" = "$last" ]
check a_prompt_has_no_loss [ "$(on parts.jsonl --chat-template chatml)" = "$last" ]
check a_prompt_has_a_loss_on_request [ "$(on parts.jsonl --chat-template chatml --no-completion-only-loss)" = "$all" ]
check another_family_writes_another_text [ "$(on turns.jsonl --chat-template zephyr)" != "$all" ]
run evaluate --model o --data turns.jsonl --chat-template chatml --assistant-only-loss --json
some=$(sed -n 's/.*"loss": \([^,]*\),.*/\1/p' out)
run evaluate --model o --data turns.jsonl --chat-template chatml --json
check evaluate_has_the_same_options [ -n "$some" -a "$some" != "$(sed -n 's/.*"loss": \([^,]*\),.*/\1/p' out)" ]
printf '{{ k }}{%% for m in messages %%}{{ m.content }}{%% endfor %%}' >own.jinja
check a_template_may_be_a_file [ -n "$(on turns.jsonl --chat-template own.jinja)" ]
check variables_of_the_template_are_given \
    [ "$(on turns.jsonl --chat-template own.jinja --chat-template-kwargs '{"k": "x"}')" != "$(on turns.jsonl --chat-template own.jinja)" ]

# --- what does not fit ---
on turns.jsonl --chat-template chatm >/dev/null
refused an_unknown_family "did you mean 'chatml'"
on text.jsonl --assistant-only-loss >/dev/null
refused texts_have_no_assistant '--assistant-only-loss is for rows that are conversations; those of text.jsonl are not'
on text.jsonl --completion-only-loss >/dev/null
refused texts_have_no_prompt '--completion-only-loss is for rows that are conversations, or have a prompt'
rm llama/chat_template.jinja
on turns.jsonl >/dev/null
refused a_conversation_without_a_template 'turns.jsonl: line 1: a conversation needs a chat template .llama: no chat template'
printf '\n{{ x|xmlattr }}' >llama/chat_template.jinja
on turns.jsonl >/dev/null
refused a_template_that_is_not_supported "chat_template.jinja: chat template: line 2: filter 'xmlattr' is not supported"
on turns.jsonl --chat-template chatml >/dev/null
check another_template_is_used_instead [ "$rc" -eq 0 ]
tally
