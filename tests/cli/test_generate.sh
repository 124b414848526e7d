#!/bin/sh
# `fsdp generate` as a user runs it: ids and texts, ranks, files of prompts, errors.
# usage: FSDP_BUILD=build tests/cli/test_generate.sh
. "$(dirname "$0")/lib.sh"
model=$golden/generation/t5_model
spiece=$root/data/tokenizers/t5/spiece.model

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
[250, 1]
[196, 73, 1]
[116, 50, 71, 210, 252, 72, 130, 82, 29, 96, 229, 254, 146, 161, 107, 53, 83, 1]
END
run generate --model "$model" --input-ids "$dir/prompts.jsonl" --max-new-tokens 20
same ids_are_transformers
fails_on_a_full_disk ids_on_a_full_disk generate --model "$model" --input-ids "$dir/prompts.jsonl" --max-new-tokens 2
run generate --model "$model" --input-ids "$dir/prompts.jsonl" --max-new-tokens 20 --batch-size 1
same a_prompt_at_a_time_gives_the_same
for n in 2 4; do
    run launch -n $n generate --model "$model" --input-ids "$dir/prompts.jsonl" --max-new-tokens 20 --batch-size 1
    same "ranks_${n}_give_the_same_in_order"
done
run launch -n 2 generate --model "$model" --input-ids "$dir/prompts.jsonl" --max-new-tokens 20 --reshard-after-forward
same gathering_for_every_token_gives_the_same
for dtype in bf16 fp16; do
    run generate --model "$model" --input-ids "$dir/prompts.jsonl" --param-dtype $dtype --max-new-tokens 1
    if [ "$rc" -eq 0 ] && [ "$(wc -l <"$dir/out")" -eq 3 ]; then ok "${dtype}_runs"
    else bad "${dtype}_runs" "exit code $rc"
    fi
done
run generate --model "$model" --input-ids "$dir/prompts.jsonl" --json --max-new-tokens 2
expect json_has_prompt_and_ids 0 '^\{"index": 1, "sequence": 0, "input_ids": \[196, .*, 1\], "ids": \[0, 196, 73\], "new_ids": \[196, 73\]\}$' out

# --- lengths, and options for texts only ---
printf '{"input_ids": [250, 250, 250, 299, 299, 299, 1], "labels": [7, 1]}\n' >"$dir/long.jsonl"
printf '[250, 250, 250, 299, 1]\n' >"$dir/cut.jsonl"
run generate --model "$model" --input-ids "$dir/long.jsonl" --max-new-tokens 20 --max-source-length 5
check ids_are_cut_if_a_length_is_given [ "$(cat out)" = '[250, 1]' ]
expect which_is_said 0 '1 of 1 prompts cut to their first 5 tokens'
expect what_is_not_used_is_said 0 "long.jsonl: not used: 'labels' \(line 1\)"
run generate --model "$model" --input-ids "$dir/cut.jsonl" --task-prefix 'a: '
expect ids_take_no_prefix 1 '--task-prefix is put before texts; --input-ids .*cut.jsonl has only ids'
printf '<!DOCTYPE html>\n<html>\n' >"$dir/page.jsonl"
run generate --model "$model" --input-ids "$dir/page.jsonl"
expect what_is_no_json_is_named 1 'page.jsonl: not JSON, but a web page'
printf '{"input_ids": [250, 1], "position_ids": [3, 4]}\n' >"$dir/keys.jsonl"
run generate --model "$model" --input-ids "$dir/keys.jsonl"
expect arguments_of_models_are_refused 1 'position_ids: expected none'

# --- settings without effect ---
vain() {
    text=$1
    shift
    run generate --model "$model" --input-ids "$dir/cut.jsonl" "$@"
    expect "${1#--}_is_refused" 1 "$text"
}
vain '--length-penalty needs --num-beams above 1' --length-penalty 2
vain '--early-stopping needs --num-beams above 1' --early-stopping true
vain '--temperature needs --do-sample' --temperature 0.5
vain '--top-k needs --do-sample' --top-k 5
vain '--top-p needs --do-sample' --top-p 0.5
vain '--min-p needs --do-sample' --min-p 0.5
vain '--seed needs --do-sample' --seed 3
vain '--max-length contradicts --max-new-tokens' --max-length 5 --max-new-tokens 4
vain '--min-length contradicts --min-new-tokens' --min-length 2 --min-new-tokens 1
run generate --model "$model" --input-ids "$dir/cut.jsonl" --temperature 1 --top-p 1 --length-penalty 1
expect values_that_ask_for_nothing_are_accepted 0

# --- beams, samples, settings ---
run generate --model "$model" --input-ids "$dir/prompts.jsonl" --num-beams 4 --max-new-tokens 20
expect beams_are_transformers 0 '^\[250, 156, 42, 127, 89, 305, 158, 195, 178, 132, 99, 12, 149, 168, 207, 288, 108, 153, 36, 1\]$' out
run generate --model "$model" --input-ids "$dir/prompts.jsonl" --num-beams 4 --num-return-sequences 2 --max-new-tokens 20 --json
expect beams_have_scores 0 '"index": 2, "sequence": 1, .*"score": -0.773' out
for n in 1 2; do
    run launch -n $n generate --model "$model" --input-ids "$dir/prompts.jsonl" --do-sample --seed 3 --top-k 0 --batch-size $n
    cp "$dir/out" "$dir/sampled.$n"
done
if [ "$rc" -eq 0 ] && cmp -s "$dir/sampled.1" "$dir/sampled.2"; then ok samples_are_the_same_on_any_ranks
else bad samples_are_the_same_on_any_ranks "other ids"
fi
cp -r "$model" "$dir/settings"
sed 's/{/{"num_beams": 4, "max_new_tokens": 20, "penalty_alpha": 0.5,/' "$model/generation_config.json" >"$dir/settings/generation_config.json"
run generate --model "$dir/settings" --input-ids "$dir/prompts.jsonl"
expect generation_config_is_the_default 0 '^\[250, 156, 42, 127' out
expect what_is_not_supported_is_named 0 'note: generation_config.json sets penalty_alpha'
run generate --model "$model" --input-ids "$dir/prompts.jsonl" --num-beam-groups 2
expect settings_that_are_missing_say_what_to_use 2 'num-beam-groups: 2 is not supported: there is no diverse beam search.*--do-sample with --num-return-sequences'
run generate --model "$model" --input-ids "$dir/prompts.jsonl" --watermarking-config '{"seeding_scheme": "selfhash"}'
expect watermarks_are_refused 2 'texts are not watermarked'
cat >"$dir/rows.jsonl" <<'END'
{"input_ids": [250, 250, 250, 299, 1], "id": "q-7"}
{"idx": 12, "input_ids": [116, 116, 116, 61, 116, 1]}
[196, 178, 311, 1]
END
run generate --model "$model" --input-ids "$dir/rows.jsonl" --max-new-tokens 2 --json
expect results_have_the_ids_of_their_rows 0 '"id": "q-7"' out
if grep -q '^{.*"idx": 12.*"index": 1,' "$dir/out" && [ "$(grep -Ec '"(id|idx|guid)"' "$dir/out")" -eq 2 ]; then ok other_names_of_ids
else bad other_names_of_ids "$(cat "$dir/out")"
fi
run launch -n 2 generate --model "$model" --input-ids "$dir/rows.jsonl" --max-new-tokens 2 --output "$dir/ids.jsonl"
expect ids_are_in_the_file_of_two_ranks 0 '' ids.jsonl
if [ "$(sed -n 's/.*"id": "\(q-7\)".*/\1/p; s/.*"idx": \([0-9]*\).*/\1/p' "$dir/ids.jsonl" | tr '\n' ' ')" = 'q-7 12 ' ]; then ok each_with_its_row
else bad each_with_its_row "$(cat "$dir/ids.jsonl")"
fi
run generate --model "$model" --use-cache --num-beam-groups 1 --input-ids "$dir/prompts.jsonl" --max-new-tokens 20
same what_is_always_so_is_accepted
run generate --model "$dir/settings" --input-ids "$dir/prompts.jsonl" --num-beams 1
same flags_win_over_generation_config
run generate --model "$model" --input-ids "$dir/prompts.jsonl" --top-p 0.5 --print-config
expect settings_that_were_not_given_are_null 0 '^# num-beams: null +# default' out
expect given_settings_are_printed 0 '^top-p: 0.5 +# flag' out
run generate --model "$model" --input-ids "$dir/prompts.jsonl" --num-return-sequences 2
expect more_texts_than_beams_are_refused 1 'num_return_sequences 2.*num_beams, 1'
run generate --model "$model" --input-ids "$dir/prompts.jsonl" --num-beams 2 --do-sample
expect sampled_beams_are_refused 1 'do_sample with num_beams 2'
run generate --model "$model" --input-ids "$dir/prompts.jsonl" --early-stopping soon
expect early_stopping_is_one_of_three 2 'early-stopping.*false, true or never'

# --- a causal model ---
llama=$golden/generation/llama3_model
echo '[1, 204, 120, 190]' >"$dir/causal.jsonl"
run generate --model "$llama" --input-ids "$dir/causal.jsonl"
expect a_causal_model_shows_what_is_new 0 '^\[86, 300, 2\]$' out
run generate --model "$root/models/t5-debian-mini" --task-prefix '' --max-new-tokens 2 --json no --do-sample false
expect a_prompt_that_is_a_boolean_is_no_value 0 '"prompt": "no"' out
run generate --model "$llama" --input-ids "$dir/causal.jsonl" --json
expect json_also_has_the_whole 0 '"ids": \[1, 204, 120, 190, 86, 300, 2\], "new_ids": \[86, 300, 2\]' out
run generate --model "$llama" --input-ids "$dir/causal.jsonl" --max-length 4
expect a_full_prompt_is_named 1 'prompt 1 has 4 ids: there is no room for new ones \(max_length is 4\)'
echo '[[2, 3, 4, 5], [2, 3]]' >"$dir/positions.json"
run generate --model "$golden/gpt2_tiny/model" --input-ids "$dir/positions.json" --max-new-tokens 6
expect positions_that_end_early_are_said 0 'note: the model has 8 positions: for 1 of 2 prompts they end before'
run generate --model "$golden/gpt2_tiny/model" --input-ids "$dir/positions.json" --max-new-tokens 5
expect the_last_new_token_needs_no_position 0 '^\[29, 18, 18, 18, 18\]$' out
# a device other than the CPU is noted there
check positions_that_suffice_are_not sh -c '! grep -v "note: device:" "$1"' sh "$dir/err"
cp -r "$llama" "$dir/endless" && sed -i 's/"eos_token_id": 2/"eos_token_id": [2, 86]/' "$dir/endless/config.json"
echo '{}' >"$dir/endless/generation_config.json"
run generate --model "$dir/endless" --input-ids "$dir/causal.jsonl" --max-new-tokens 5
expect a_generation_config_without_an_end_ends_nothing 0 '^\[86, 300, 2, 2, 2\]$' out
expect and_it_is_said 0 'note: generation_config.json has no eos_token_id'
rm "$dir/endless/generation_config.json"
run generate --model "$dir/endless" --input-ids "$dir/causal.jsonl" --max-new-tokens 5
expect without_one_all_ends_of_config_json_count 0 '^\[86\]$' out
run generate --model "$llama" 'a text'
expect texts_of_a_causal_model_need_a_tokenizer 1 'need a tokenizer'

# --- texts: a model with random weights and the tokenizer's vocabulary always generates the same
# text ---
if lacks utf8proc; then
    skip a_tokenizer_larger_than_the_model_is_refused "built without utf8proc"
elif [ -f "$spiece" ]; then
    run generate --model "$model" --tokenizer "$spiece" 'a text'
    expect a_tokenizer_larger_than_the_model_is_refused 1 'they do not belong together'
fi
# --- a model that has learnt to generate only line ends (id 13) ---
if lacks utf8proc; then
    skip line_i_is_prompt_i "built without utf8proc"
else
    tiny_llama "$dir/ends"
    sed -i 's/"vocab_size": 67/"vocab_size": 520/' "$dir/ends/config.json"
    cp "$fixtures/text/llama/tokenizer.model" "$dir/ends/"
    for i in 1 2 3 4; do echo '{"input_ids": [1, 300, 13, 13, 13, 13, 13], "prompt_length": 2}'; done >"$dir/ends.jsonl"
    run train --model "$dir/ends" --from-config --data "$dir/ends.jsonl" --max-steps 40 --lr 0.05 --batch-size 4 --output "$dir/ended"
    printf 'a\n\nb\n' >"$dir/lines.txt"
    run generate --model "$dir/ended" --input "$dir/lines.txt" --max-new-tokens 3
    printf '   \n   \n   \n' >"$dir/spaces"
    check line_i_is_prompt_i cmp -s "$dir/out" "$dir/spaces"
    run generate --model "$dir/ended" --input "$dir/lines.txt" --max-new-tokens 3 --json
    expect json_keeps_line_ends 0 '"index": 1, .*"prompt": "", .*"text": "\\n\\n\\n"' out
    awk 'BEGIN { for (i = 0; i < 300; i++) printf "x y "; print ""; print "z" }' >"$dir/long.txt"
    run generate --model "$dir/ended" --input "$dir/long.txt" --max-new-tokens 1 --json
    check what_is_to_be_continued_is_not_cut test "$(head -n 1 out | grep -o '"input_ids": [^]]*' | tr ',' '\n' | wc -l)" -gt 512
    run generate --model "$dir/ended" --input "$dir/long.txt" --max-source-length 7 --max-new-tokens 3
    expect what_is_cut_is_said 0 'note: --max-source-length: 1 of 2 prompts cut to their first 7 tokens'
fi
cp -r "$model" "$dir/broken"
echo none >"$dir/broken/spiece.model"
run generate --model "$dir/broken" --input-ids "$dir/prompts.jsonl" --max-new-tokens 20
same ids_need_no_tokenizer_that_can_be_read
if ! lacks utf8proc; then expect but_it_is_said 0 'note: only ids, no texts: .*broken/spiece.model'; fi
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
expect no_prompt_is_an_error 1 'no prompts to generate from'
echo '[1, 320]' >"$dir/bad.jsonl"
run generate --model "$model" --input-ids "$dir/bad.jsonl"
expect an_id_beyond_the_vocabulary_is_named 1 'bad.jsonl.*320'
run launch -n 2 generate --model "$model" --input-ids "$dir/bad.jsonl"
expect an_id_beyond_the_vocabulary_is_named_on_2_ranks 1 'bad.jsonl.*320'
mkfifo "$dir/pipe"
cat "$dir/prompts.jsonl" >"$dir/pipe" &
writer=$!
run generate --model "$model" --input-ids "$dir/pipe" --max-new-tokens 20
kill $writer 2>/dev/null
same one_rank_reads_a_pipe
run launch -n 2 generate --model "$model" --input-ids "$dir/pipe"
expect several_ranks_refuse_a_pipe 1 'input-ids .*/pipe: not a regular file'
cp -r "$model" "$dir/spoilt" && truncate -s 400000 "$dir/spoilt/model.safetensors"
run generate --model "$dir/spoilt" --input-ids "$dir/prompts.jsonl"
expect a_truncated_model_is_an_error 1 'model.safetensors'

tally
