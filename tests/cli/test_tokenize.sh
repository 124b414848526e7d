#!/bin/sh
# `fsdp tokenize` as a user runs it: what it writes trains like the texts, whatever interrupts it, with
# bounded memory.
# usage: FSDP_BUILD=build tests/cli/test_tokenize.sh
. "$(dirname "$0")/train.sh"

tokenizer=$fixtures/chat
tiny_llama llama
sed 's/"vocab_size": 67/"vocab_size": 330/' llama/config.json >config && mv config llama/config.json
cp "$tokenizer/tokenizer.json" "$tokenizer/tokenizer_config.json" llama

# corpus BYTES: prints documents between blank lines
corpus() {
    awk -v most="$1" 'BEGIN { for (i = 0; n < most; i++) {
        text = "document " i * 7919 "\n"
        for (k = 0; k < i % 40; k++) text = text "hello world in Paris, " k * i " times.\n"
        printf "%s\n", text; n += length(text) + 1 } }'
}
# losses DATA [FLAGS]: prints the numbers of a short run
losses() {
    rm -rf o m.jsonl
    data=$1
    shift
    run train --model llama --from-config --data "$data" --output o --max-steps 3 --batch-size 2 --lr 0.01 \
        --num-workers 0 --shuffle false --metrics m.jsonl "$@"
    [ ! -e m.jsonl ] || numbers m.jsonl
}
same() { cmp -s "$1" "$2"; }

# --- token files and Arrow folders train like the texts ---
corpus 20000 >text.txt
run tokenize --tokenizer llama --data text.txt --output text.bin
expect tokens_are_written 0 '^text.bin: nanoGPT, uint16, [0-9]+ tokens$' out
check the_summary_says_how_much shows '^text.txt: [0-9]+ documents, [0-9]+ tokens, [0-9.]+ bytes a token; .* tokens/s$'
wanted=$(losses text.txt --max-seq-length 32)
check the_text_trains [ "$rc" -eq 0 -a -n "$wanted" ]
check token_files_train_like_the_text [ "$(losses text.bin --max-seq-length 32)" = "$wanted" ]
run tokenize --tokenizer llama --data - --output never.bin
expect standard_input_is_no_data 1 '^fsdp tokenize: -: standard input; data are read more than once.*COMMAND >rows.jsonl'
run tokenize --tokenizer llama --data text.txt --output wide.bin --token-dtype int32
expect the_option_for_train_is_named 0 'read it with --token-dtype uint32' out
check and_train_takes_it [ "$(losses wide.bin --max-seq-length 32 --token-dtype uint32)" = "$wanted" ]
run tokenize --tokenizer llama --data text.txt --output parts --format llm.c --validation-fraction 0.3
expect a_folder_has_both_parts 0 'parts: llm.c, uint16, [0-9]+ tokens and [0-9]+ for validation' out
check the_parts_have_names_that_train_knows [ -n "$(losses parts --max-seq-length 32 --validation-data parts)" -a "$rc" -eq 0 ]
printf '%s\n' '{"prompt": "What is ", "completion": "in Paris?", "id": 7}' '{"text": "hello"}' >rows.jsonl
if lacks FlatBuffers; then
    skip arrow_folders "built without FlatBuffers"
else
    run tokenize --tokenizer llama --data rows.jsonl --output rows
    expect rows_are_written 0 '^rows: Arrow, 2 rows$' out
    check unused_keys_are_named shows "^rows.jsonl: not used: 'id' \(line 1\)$"
    check arrow_rows_train_like_the_texts [ "$(losses rows)" = "$(losses rows.jsonl)" ]
fi
run tokenize --tokenizer llama --data rows.jsonl --output rows.bin
expect labels_that_are_lost_are_counted 0 'in 1 rows a part has no loss' out

# --- compressed data ---
for tool in gzip zstd; do
    case $tool in gzip) library=zlib ending=gz ;; zstd) library=libzstd ending=zst ;; esac
    if lacks $library || ! command -v $tool >/dev/null; then
        skip "${tool}_is_read" "no $tool here"
        continue
    fi
    $tool -c text.txt >"text.txt.$ending"
    run tokenize --tokenizer llama --data "text.txt.$ending" --output "$tool.bin"
    check "${tool}_is_read" same "$tool.bin" text.bin
done

# --- interruptions ---
corpus 6000000 >large.txt
run tokenize --tokenizer llama --data large.txt --output whole.bin --threads 2
expect a_larger_text 0
"$fsdp" tokenize --tokenizer llama --data large.txt --output killed.bin --journal-bytes 1MB --threads 1 >/dev/null 2>err &
process=$!
while kill -0 $process 2>/dev/null && [ ! -e killed.bin.partial/journal.json ]; do sleep 0.01; done
kill -s KILL $process
wait $process 2>/dev/null
check a_killed_run_leaves_no_output [ ! -e killed.bin -a -e killed.bin.partial/journal.json ]
run tokenize --tokenizer llama --data large.txt --output killed.bin
expect it_is_not_forgotten 1 'killed.bin.partial: left by a run that was interrupted: --resume'
run tokenize --tokenizer llama --data large.txt --output killed.bin --resume --threads 2
expect it_goes_on 0 '^killed.bin: goes on after [1-9][0-9]* rows$' out
check to_the_same_bytes same killed.bin whole.bin
check and_cleans_up [ ! -e killed.bin.partial ]
(ulimit -f 4000 && "$fsdp" tokenize --tokenizer llama --data large.txt --output full.bin >out 2>err)
rc=$?
expect a_full_disk_is_an_error_that_names_the_file 1 'full.bin.partial/out/train.bin: .*with --resume'
run tokenize --tokenizer llama --data large.txt --output full.bin --resume
check and_the_run_goes_on_when_there_is_room same full.bin whole.bin
fails_on_a_full_disk a_check_that_cannot_be_printed tokenize --tokenizer llama --data text.txt --check
run tokenize --tokenizer llama --data text.txt --output text.bin
expect an_output_is_not_replaced 1 'text.bin: exists; --overwrite replaces it'
run tokenize --tokenizer llama --data text.txt --output documents
expect documents_are_rows_and_it_is_said 0 "^text.txt: each document is a row; 'fsdp train' joins .* --block-size" out
cp text.bin private.bin && chmod 640 private.bin
run tokenize --tokenizer llama --data text.txt --output private.bin --overwrite
check who_may_read_an_output_stays_so [ "$rc $(stat -c %a private.bin)" = '0 640' ]
mkdir disk && : >disk/real.bin && ln -s disk/real.bin sym.bin && ln -s disk/new.bin dangling.bin
for link in sym dangling; do
    run tokenize --tokenizer llama --data text.txt --output $link.bin --overwrite
    check "a_link_stays_one_$link" [ "$rc" -eq 0 -a -L $link.bin ]
    check "and_its_target_has_the_tokens_$link" cmp -s text.bin $link.bin
done
check nothing_is_left_beside_the_target [ "$(echo disk/*)" = 'disk/new.bin disk/real.bin' ]
if ! sanitized; then
    (ulimit -v 400000 && "$fsdp" tokenize --tokenizer llama --data large.txt --output small.bin --threads 2 >out 2>err)
    rc=$?
    expect memory_is_bounded 0
fi

# --- the line about rows for validation counts rows and documents of the file, not those they become ---
for k in 1 2 3 4 5 6 7 8 9 10; do echo "{\"text\": \"a row with the number $k\"}"; done >ten.jsonl
sed 's/.*: "\(.*\)"}/\1\n/' ten.jsonl >ten.txt
losses ten.jsonl --max-seq-length 64 --packing bfd --validation-split-percentage 20 --max-train-samples 6 >/dev/null
check rows_that_are_split_are_those_of_the_file shows \
    '^validation: 2 rows, the first 20 % of ten.jsonl, packed into 1 row; training has 6 of the 8 rows after them, packed into [2-4] rows$'
losses ten.txt --max-seq-length 16 --validation-split-percentage 20 --max-train-samples 3 >/dev/null
check so_are_documents shows \
    '^validation: 2 documents, the first 20 % of ten.txt, joined and cut into [1-9] rows?; training has the 8 documents after them, joined and cut, of which the first 3 rows are used$'

# --- looking, and making a tokenizer ---
run tokenize --tokenizer llama --data rows.jsonl --check --rows 1
expect pieces_are_shown 0 '"What is in Paris\?"' out
check with_what_has_a_loss shows 'loss'
printf '{"input_ids": [5, 6]}\n' >ids.jsonl
run tokenize --tokenizer llama --data ids.jsonl --check
expect ids_have_no_text 0 '^1 rows; no text was compared with what its ids decode to$' out
# lines_with PATTERN: prints how many lines of the output of the last run have the pattern
lines_with() { grep -cE -e "$1" out; }
cat >wordpiece.txt <<'END'
[PAD]
[UNK]
[CLS]
[SEP]
[MASK]
a
##b
c
d
END
mkdir bert && mv wordpiece.txt bert/vocab.txt
printf 'sentence1,sentence2,label\nab,"c d",yes\nd,"a\r\nc",no\n' >pairs.csv
run tokenize --tokenizer bert --data pairs.csv --task classification --check
expect a_pair_shows_both_texts 0 '^input_ids: 7 tokens, "ab", "c d"$' out
check offsets_of_the_second_text_begin_at_0 shows '"d" +│ +2-3 │ "d"'
check special_tokens_have_no_offsets [ "$(lines_with '"\[SEP\]" +│ +│ +│')" = 4 ]
check line_ends_of_a_field_are_shown shows '^input_ids: 6 tokens, "d", "a\\r\\nc"$'
check each_text_is_decoded_alone [ "$(lines_with '^decoded: the same text$')" = 2 ]
check and_the_second_one_too [ "$(lines_with '^decoded second text: ')" = 2 ]
check with_the_label shows '^label: 1, yes$'
run tokenize --tokenizer bert --data pairs.csv --task classification --check --rows 1 --max-seq-length 5
expect a_pair_that_is_cut_is_shown_as_it_is_trained 0 '^pairs.csv: row 1, cut$' out
check with_offsets_of_both_texts [ "$(lines_with '"(a|c)" +│ +0-1 │ "(a|c)"')" = 2 ]
check and_is_not_compared shows '^1 rows; no text was compared'
printf '{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}]}\n' >talk.jsonl
run tokenize --tokenizer llama --data talk.jsonl --chat-template chatml --check --assistant-only-loss
expect a_conversation_is_shown_as_the_template_writes_it 0 'tokens, "<\|im_start\|>user\\nhi<\|im_end\|>' out
check its_tokens_have_offsets shows '0-12 │ "<\|im_start\|>" +│ +│$'
check and_what_the_assistant_says_has_a_loss shows '"y" +│ +yes +│$'
check special_tokens_of_the_template_are_decoded shows '^1 rows; decoding gives each text back$'
run tokenize --train-vocab 280 --data large.txt --output own
expect a_tokenizer_is_made 0 '^own: a byte-level BPE tokenizer of 280 tokens, [0-9]+ merges$' out
run tokenize --tokenizer own --data text.txt --check --rows 3
expect which_gives_texts_back 0 '^3 rows; decoding gives each text back$' out

# --- what does not fit ---
refused() {
    name=$1 text=$2
    shift 2
    run tokenize "$@"
    expect "$name" 2 "$text"
}
for flag in --resume --overwrite --journal-bytes=1MiB --format=arrow --token-dtype=uint32 --block-size=8 \
    --validation-data=text.txt --validation-fraction=0.1 --task-prefix=x --no-append-eos --no-add-special-tokens \
    --max-seq-length=9 --chat-template=chatml '--chat-template-kwargs={}' --assistant-only-loss --completion-only-loss; do
    word=${flag#--}
    word=${word#no-}
    refused "a_vocabulary_has_no_${word%%=*}" "--${word%%=*} is for runs that write tokens" --train-vocab 280 --data text.txt --output vocab "$flag"
done
run tokenize --train-vocab 280 --data text.txt --output vocab --delimiter ';'
expect a_vocabulary_of_plain_text_has_no_columns 1 '--delimiter'
run tokenize --train-vocab 280 --data text.txt --output vocab --text-column a
expect and_no_names_of_them 1 '--text-column is for rows that are texts'
refused an_output_is_needed '--output is required' --tokenizer llama --data text.txt
refused a_tokenizer_is_needed '--tokenizer is required' --data text.txt --output x
refused a_folder_has_no_name_of_a_file '--output x.parquet: the name is that of a file; --output x writes a folder, and a name that ends in .bin a token file' --tokenizer llama --data text.txt --output x.parquet
refused nor_that_of_a_spreadsheet '--output x.xlsx: the name is that of a file' --tokenizer llama --data text.txt --output x.xlsx
printf '{"text": "a", "labels": ["x", "y"]}\n{"text": "b", "labels": []}\n' >several.jsonl
run tokenize --tokenizer llama --data several.jsonl --task classification --output several.bin
expect token_files_have_no_classes 1 '--task classification needs --format arrow'
run tokenize --tokenizer llama --data several.jsonl --task classification --output several
expect a_row_may_have_several_classes 0 "^several.jsonl: 2 classes, several a row: labels are a list of the row's classes \(ClassLabel\)\$" out
run tokenize --tokenizer llama --data several.jsonl --task classification --check
expect their_names_are_shown 0 '^label: 0, x; 1, y$' out
expect and_their_texts_are_compared 0 '^2 rows; decoding gives each text back$' out
printf 'text,label\na,"3, 1"\nb,"0, 2"\n' >listed.csv
run tokenize --tokenizer llama --data listed.csv --task classification --output listed
expect numbers_with_commas_may_be_one_class 1 '--problem-type multi_label_classification takes it as several classes'
run tokenize --tokenizer llama --data listed.csv --task classification --output listed --problem-type multi_label_classification
expect or_several_as_the_option_says 0 '^listed.csv: 4 classes, several a row' out
refused label_lists_are_for_classes '--label-lists is for --task classification' --tokenizer llama --data text.txt --output x --label-lists indices
refused problem_types_are_for_classes '--problem-type is for --task classification' --tokenizer llama --data text.txt --output x --problem-type regression
refused options_of_other_runs '--rows needs --check' --tokenizer llama --data text.txt --output x --rows 3
refused options_of_other_tasks '--max-source-length needs --task seq2seq' --tokenizer llama --data text.txt --output x --max-source-length 3
# An environment variable is meant for several commands.
FSDP_MAX_SOURCE_LENGTH=3 FSDP_MAX_TARGET_LENGTH=3 run tokenize --tokenizer llama --data text.txt --output from_env
expect but_not_if_the_environment_has_them 0
run tokenize --tokenizer llama --data text.txt --output without_env
check and_they_change_nothing sh -c 'for file in from_env/*.arrow from_env/*.bin; do [ ! -e "$file" ] || cmp "$file" "without_env/${file##*/}" || exit 1; done'
refused packing_is_for_train "--packing is done by 'fsdp train'" --tokenizer llama --data rows.jsonl --output x --packing bfd
check nothing_is_left [ ! -e x -a ! -e x.partial ]

# --- special tokens in texts are reported by every command that reads texts ---
printf '{"text": "hello"}\n{"text": "hello </s> world"}\n{"text": "<pad>"}\n' >special.jsonl
said="^special.jsonl: special tokens are in the texts of 2 of 3 rows, first '</s>' in"
run tokenize --tokenizer llama --data special.jsonl --output special.bin
expect tokenize_reports_special_tokens 0 "$said line 2 of special.jsonl; each becomes its id" out
losses special.jsonl --max-seq-length 8 >/dev/null
expect train_reports_special_tokens 0 "$said row 2; each becomes its id" out
check and_counts_them_in_the_metrics grep -q '"special_rows": 2' m.jsonl
run evaluate --model o --data special.jsonl
expect evaluate_reports_special_tokens 0 "data: $(echo "$said" | tr -d '^') row 2; each becomes its id"
printf 'hello\nhello </s>\n' >prompts.txt
run generate --model o --input prompts.txt --max-new-tokens 1
expect generate_reports_special_tokens 0 "in the texts of 1 of 2 prompts, first '</s>' in prompt 2; each becomes its id"
printf '{"text": "hello"}\n{"text": "hello < /s> world"}\n' >plain.jsonl
run tokenize --tokenizer llama --data plain.jsonl --output plain.bin
check nothing_is_reported_without_them sh -c '[ "$1" -eq 0 ] && ! grep -q special out err' sh "$rc"

# --- the same for characters that the tokenizer does not know: T5's vocabulary lacks some ---
t5=$root/models/t5-debian-mini
printf 'text,headline\none,two\nthree,Søren\nMädchen,Søren\n' >names.csv
said="names.csv: 2 of 3 rows have characters or words that the tokenizer does not know, first 'ø' in "
if lacks utf8proc; then
    skip unknown_characters 'built without utf8proc'
else
    run tokenize --tokenizer "$t5" --data names.csv --output names --task seq2seq
    check tokenize_names_unknown_characters grep -qF "${said}row 2 of names.csv; the model can neither read nor write them" out
    run train --model "$t5" --data names.csv --no-save-model --max-steps 1 --metrics m.jsonl
    check train_names_unknown_characters grep -qF "${said}the target of row 2; the model can" out
    check and_counts_their_rows_in_the_metrics grep -q '"unknown_rows": 2' m.jsonl
    run evaluate --model "$t5" --data names.csv
    check evaluate_names_unknown_characters grep -qF "data: ${said}the target of row 2; the model can" err
    run generate --model "$t5" --max-new-tokens 1 one 'Zoë' 'Søren'
    check generate_names_unknown_characters \
        grep -qF "2 of 3 prompts have characters or words that the tokenizer does not know, first 'ë' in prompt 2;" err
    check once [ "$(grep -c 'does not know' err)" -eq 1 ]
    printf 'text,headline\none,two\n' >known.csv
    run train --model "$t5" --data known.csv --no-save-model --max-steps 1
    check nothing_is_named_without_them sh -c '[ "$1" -eq 0 ] && ! grep -q "does not know" out err' sh "$rc"
fi
tally
