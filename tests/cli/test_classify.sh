#!/bin/sh
# `fsdp classify`: labels and scores are those of transformers' pipeline("text-classification"), which
# tests/golden has no copy of: the models here are trained on the spot, and their scores are compared
# with the loss that `fsdp evaluate` computes for the label.
# usage: FSDP_BUILD=build tests/cli/test_classify.sh
. "$(dirname "$0")/lib.sh"
needs libcsv utf8proc

# bert DIR [MORE]: config.json, and a tokenizer of single letters
bert() {
    mkdir -p "$1"
    printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' '[MASK]' a b c d e f g h >"$1/vocab.txt"
    echo '{"tokenizer_class": "BertTokenizer", "do_lower_case": true}' >"$1/tokenizer_config.json"
    cat >"$1/config.json" <<END
{"model_type": "bert", "architectures": ["${3:-BertForSequenceClassification}"], "vocab_size": 13, "hidden_size": 16,
 "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 24,
 "type_vocab_size": 2, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "initializer_range": 0.3${2:-}}
END
}
# learn OUTPUT FLAGS...: trains a model of the folder bert
learn() {
    out=$1
    shift
    run train --model bert --from-config --output "$out" --overwrite-output --batch-size 8 --lr 0.01 --num-workers 0 "$@"
    [ "$rc" -eq 0 ] || bad "training $out" "exit code $rc"
}
# field NAME [N]: the value of a key in the n-th line of out
field() { sed -n "${2:-1}s/.*\"$1\": \"\{0,1\}\([^,\"}]*\).*/\1/p" out; }
# near A B: numbers that differ by less than 1e-6
near() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a != "" && b != "" && (a - b) ^ 2 < 1e-12) }'; }

bert bert
awk 'BEGIN { print "text,label"; for (i = 0; i < 32; i++) print (i % 2 ? "a b c" : "f g h") "," (i % 2 ? "good" : "bad") }' >train.csv
learn two --data train.csv --epochs 4
expect training_says_how_texts_are_classified 0 "^to label new texts: fsdp classify --model two TEXT$" out

# --- names of classes in the rows, and --num-labels ---
awk 'BEGIN { print "text,label"; for (i = 0; i < 24; i++) print (i % 3 ? i % 3 > 1 ? "a b" : "c d" : "g h") "," (i % 3 ? i % 3 > 1 ? "up" : "even" : "down") }' >three.csv
learn three --data three.csv --epochs 1 --num-labels 3
expect num_labels_takes_names_from_rows 0 '^3 classes, from the labels of three.csv: down, even, up$' out
check and_saves_them grep -q '"even": 1' three/config.json
run train --model bert --from-config --data three.csv --output no --num-labels 2
expect another_number_is_an_error 1 '--num-labels is 2, but the labels of three.csv have 3 names: down, even, up; leave out'
run train --model bert --from-config --data three.csv --output no --num-labels 5
expect more_classes_than_names_are_an_error 1 '--num-labels is 5, but the labels of three.csv have 3 names.*--class-names'

# --- texts ---
run classify --model two 'a b c' 'f g h' ''
expect texts_of_the_command_line_are_classified 0
check each_is_a_line [ "$(wc -l <out)" -eq 3 ]
check labels_have_names [ "$(field label) $(field label 2)" = 'good bad' ]
check an_empty_text_is_a_text [ "$(field text 3)" = '' -a -n "$(field label 3)" ]
best=$(field score)
echo 'a b c' >line.txt
printf 'text,label\na b c,good\n' >one.csv
for flag in 'task-prefix x' 'target-column label'; do
    run evaluate --model two --data one.csv --text-column text --$flag
    expect "a_classifier_has_no_${flag%% *}" 1 "--${flag%% *} is for .* texts; a BertForSequenceClassification reads none from one.csv"
done
loss=$("$fsdp" evaluate --model two --data one.csv --json | tr ',' '\n' | sed -n 's/.*"loss": \([-0-9.e]*\).*/\1/p' | head -n 1)
check the_score_is_the_probability near "$best" "$(awk -v l="$loss" 'BEGIN { printf "%.9f", exp(-l) }')"
run classify --model two --top-k all 'a b c'
check all_labels_are_a_list grep -q '"predictions": \[{"label": "good", "score": [0-9.e-]*}, {"label": "bad", "score": [0-9.e-]*}\]' out
cp out all
run classify --model two --top-k 99 'a b c'
check more_than_all_are_all cmp out all
run classify --model two --top-k 1 'a b c'
check one_is_a_list_of_one grep -q '"predictions": \[{"label": "good", "score": [0-9.e-]*}\]}' out
printf 'a b c\r\n\nf g h' | "$fsdp" classify --model two >out 2>err
check lines_of_standard_input_are_texts [ "$(field label) $(field label 3) $(wc -l <out)" = 'good bad 3' ]
check with_the_same_scores near "$(field score)" "$best"
run classify --model two --input line.txt
check lines_of_a_file_are_texts [ "$(field score)" = "$best" ]
run classify --model two 'a b c d e f g h a b c d e f g h a b c d e f g h a b'
expect a_long_text_is_cut_and_counted 0 '1 of 1 texts cut to 24 tokens'
run classify --model two --max-seq-length 4 'a b c' 'a b'
expect to_the_length_that_is_given 0 '1 of 2 texts cut to 4 tokens, as --max-seq-length says'
run classify --model two --max-seq-length 25 a
expect a_length_beyond_the_model_is_refused 1 '--max-seq-length 25: the model takes up to 24'
printf 'a\000b\n' | "$fsdp" classify --model two >out 2>err
rc=$?
expect a_nul_is_refused 1 'standard input: line 1: NUL character at column 2'
printf 'a\n\377\n' | "$fsdp" classify --model two >out 2>err
rc=$?
expect bytes_that_are_no_text_are_refused 1 'standard input: line 2: not UTF-8'
"$fsdp" classify --model two </dev/null >out 2>err
rc=$?
expect no_texts_are_an_error 1 'there are no texts'

# --- rows ---
printf 'id,text\n7,a b c\n8,"f ""g"", h"\n' >rows.csv
run classify --model two -i rows.csv
expect rows_need_no_label 0
check rows_are_kept [ "$(field id) $(field id 2) $(field label)" = '7 8 good' ]
run classify --model two -i rows.csv -o result.csv
expect a_file_of_csv_is_written 0
check its_rows_are_kept_too grep -q '^8,"f ""g"", h",bad,0[.0-9]*' result.csv
run classify --model two -i rows.csv -o result.jsonl
check or_of_json_lines [ "$(wc -l <result.jsonl)" -eq 2 -a ! -s out ]
run classify --model two -i rows.csv -o rows.csv
expect the_input_is_not_overwritten 2 'are the same file'
run classify --model two -i rows.csv -o result.tsv
expect other_forms_are_not_written 2 "--output result.tsv: fields are separated by commas, not tabs; --output result.csv writes CSV"
run classify --model two -i rows.csv -o sub.x/result.xlsx
expect a_spreadsheet_is_not_written 2 "--output sub.x/result.xlsx: spreadsheets are not written; --output sub.x/result.csv writes CSV"
run classify --model two -i rows.csv -o result.parquet
expect parquet_is_not_written 2 "Arrow and Parquet files are not written; --output result.jsonl writes JSON lines"
run classify --model two -i rows.csv -o result.csv.gz
expect a_compressed_file_is_not_written 2 "compressed files are not written; --output result.csv writes CSV"
run generate --model two -i rows.csv -o result.csv
expect generate_writes_json_lines 2 "--output result.csv: the results are JSON lines, not CSV; --output result.jsonl writes JSON lines"
run evaluate --model two --data rows.csv --generate --predictions result.xlsx
expect predictions_are_no_spreadsheet 1 "--predictions result.xlsx: spreadsheets are not written; --predictions result.txt writes one text a line"
"$fsdp" classify --model two -o line.txt <line.txt >out 2>err
rc=$?
expect the_redirected_input_is_not_overwritten 2 'standard input and --output line.txt are the same file'
# --- pipes ---
for pipe in - /dev/stdin; do
    cat line.txt | "$fsdp" classify --model two -i $pipe >out 2>err
    rc=$?
    expect "a pipe is read: $pipe" 0
    check "its lines are texts: $pipe" [ "$(field score)" = "$best" ]
done
run classify --model two -i https://example.org/rows.csv
expect a_url_is_not_a_file 1 'https://example.org/rows.csv: No such file or directory: nothing is downloaded: get the file first, with curl -LO URL'
run train --model two --data imdb --output never --epochs 1
expect data_sets_of_the_hub_are_not_downloaded 1 'imdb: No such file or directory: data sets of the Hugging Face hub are not downloaded: in Python, datasets.load_dataset'
run train --model two --data rows.csv,train.csv --output never --epochs 1
expect several_files_are_a_pattern 1 'rows.csv,train.csv: No such file or directory: several files are given as a folder or as a pattern'
mkfifo named.csv
cat rows.csv >named.csv &
run classify --model two -i named.csv
expect a_named_pipe_of_csv_is_read 0
check its_rows_are_those_of_the_file [ "$(field id) $(field id 2) $(field label)" = '7 8 good' ]
printf '{"text": "a b c", "n": 3}\n' | "$fsdp" classify --model two -i - >out 2>err
rc=$?
expect rows_of_json_are_found_in_a_pipe 0 'standard input: rows of JSON'
check and_their_text_is_classified grep -q '^{"text": "a b c", "n": 3, "label": "good"' out
run train --model two --data named.csv --output never --epochs 1
expect what_is_read_more_than_once_is_no_pipe 1 'named.csv: neither a regular file nor a directory; data are read more than once.*write them to a file'
printf '{"text": "a", "n": "b"}\n\n{"text": "a", "n": "b\\u0000c"}\n' >nul.jsonl
run classify --model two -i nul.jsonl -o nul.csv
expect a_nul_in_a_column_of_csv_is_refused 1 "nul.jsonl: line 3: 'n' contains a NUL character, which CSV cannot: write JSON lines"
check and_no_row_is_written [ ! -e nul.csv ]
run classify --model two -i nul.jsonl -o /dev/stdout
expect json_lines_keep_it 0
run classify --model two -i rows.csv -o none/result.csv
expect a_folder_that_is_missing_is_an_error 1 'none'
run classify --model two -i train.csv
expect a_label_of_the_row_is_kept 0 "the results are 'predicted_label' and 'predicted_score'"
check beside_the_result grep -q '"label": "bad", "predicted_label": "bad", "predicted_score"' out
printf '{"text": "a b c", "more": {"x": [1, 2]}}\n{"text": null}\n' >rows.jsonl
run classify --model two -i rows.jsonl -o broken.jsonl
expect a_row_without_a_text_is_an_error 1 'rows.jsonl: line 2: .*text'
check and_nothing_is_written [ ! -e broken.jsonl ]
printf '{"text": "a b c", "more": {"x": [1, 2]}}\n' >rows.jsonl
run classify --model two -i rows.jsonl
check objects_are_kept grep -q '"more": {"x": \[1, 2\]}, "label": "good"' out
run classify --model two -i rows.jsonl -o result.csv
check in_csv_as_json grep -q '^a b c,"{""x"":\[1,2\]}",good,' result.csv
printf '\357\273\277Nr;Frage\r\n1;a b, c\r\n2;"f ; h"\r\n' >excel.csv
run classify --model two -i excel.csv
expect an_unknown_column_is_named_with_the_flag 1 "no column 'text'; the header has Nr, Frage; --text-column names .*separated by semicolons"
run classify --model two -i excel.csv --text-column frage
expect the_flag_names_it 0 'fields are separated by semicolons'
check its_rows_are_read grep -q '^{"Nr": "1", "Frage": "a b, c", "label": ' out
run classify --model two -i excel.csv --text-column Farge
expect a_near_name_is_shown 1 "no column 'Farge'; the header has Nr, Frage; --text-column Farge: did you mean 'Frage'"
for ranks in 1 2 3; do
    capture "$fsdp" launch -n $ranks classify --model two -i train.csv --batch-size 5
    cp out "ranks$ranks"
done
check ranks_give_the_same_labels sh -c 'for n in 2 3; do
    sed "s/predicted_score.*//" ranks1 >a; sed "s/predicted_score.*//" ranks$n >b; cmp a b || exit 1; done'
capture "$fsdp" launch -n 2 classify --model two -i - </dev/null
expect ranks_cannot_share_a_pipe 1 'every rank reads it'

# --- pairs ---
awk 'BEGIN { print "sentence1,sentence2,label"; for (i = 0; i < 32; i++) print "a b," (i % 2 ? "a b" : "g h") "," i % 2 }' >pairs.csv
learn pairs --data pairs.csv --epochs 4
run classify --model pairs 'a b' --pair 'g h'
printf 'sentence1;sentence2\na b;g h\n' >semicolons.csv
run classify --model pairs -i semicolons.csv
expect delimiter_and_columns_are_both_said 0 "separated by semicolons; semicolons.csv: the text is 'sentence1', the second text 'sentence2'"
run classify --model pairs 'a b' --pair 'g h'
check a_pair_is_classified [ "$(field label) $(field text_pair)" = 'LABEL_0 g h' ]
score=$(field score)
printf 'sentence1,sentence2\na b,g h\n' >pair.csv
run classify --model pairs -i pair.csv
expect pairs_are_two_columns 0 "the text is 'sentence1', the second text 'sentence2'"
check with_the_score_of_a_pair near "$(field score)" "$score"
run classify --model pairs a b --pair c
expect a_pair_has_one_text 2 'the second text of one TEXT'

# --- kinds of scores ---
awk 'BEGIN { print "text,label"; for (i = 0; i < 32; i++) print (i % 2 ? "a b c" : "f g h") "," (i % 2 ? "0.5" : "-2.5") }' >real.csv
learn real --data real.csv --epochs 30
run classify --model real 'f g h'
check regression_shows_the_number sh -c 'awk -v x="$1" "BEGIN { exit !(x < -1.5 && x > -3.5) }"' sh "$(field score)"
number=$(field score)
sed -i '/problem_type/d' real/config.json
run classify --model real 'f g h'
check one_label_without_a_problem_type_is_a_probability \
    near "$(field score)" "$(awk -v x="$number" 'BEGIN { printf "%.9f", 1 / (1 + exp(-x)) }')"
awk 'BEGIN { for (i = 0; i < 32; i++) printf "{\"text\": \"a b\", \"labels\": [\"x\", \"y\"]}\n{\"text\": \"g h\", \"labels\": []}\n" }' >sets.jsonl
learn sets --data sets.jsonl --epochs 8
run classify --model sets --top-k all 'a b'
check several_labels_may_be_likely sh -c 'tr , "\n" <out | sed -n "s/.*score\": \([0-9.e-]*\).*/\1/p" | awk "{ n += \$1 > 0.7 } END { exit n != 2 }"'
# The classes of "two" have names, good and bad, and its rows have one of them each.
awk 'BEGIN { for (i = 0; i < 32; i++) printf "{\"text\": \"a b\", \"labels\": [\"bad\", \"good\"]}\n{\"text\": \"g h\", \"labels\": []}\n" }' >named.jsonl
run train --model two --from-config --data named.jsonl --output both --epochs 8 --lr 0.01 --batch-size 8 --num-workers 0
expect lists_of_known_names_are_several_classes 0 'the labels of named.jsonl are lists: a row may have several of the 2 classes of config.json' out
check the_model_says_so grep -q '"problem_type": "multi_label_classification"' both/config.json
run classify --model both --top-k all 'a b'
check both_labels_are_likely sh -c 'tr , "\n" <out | sed -n "s/.*score\": \([0-9.e-]*\).*/\1/p" | awk "{ n += \$1 > 0.5 } END { exit n != 2 }"'

# --- other models ---
bert mlm '' BertForMaskedLM
run train --model mlm --from-config --task masked-lm --data train.csv --output masked --epochs 1 --num-workers 0
run classify --model masked a
expect a_masked_language_model_has_no_classes 1 'BertForMaskedLM has no classes: .fsdp train --task classification'
tiny_t5 t5 12 3 4 24 1 330
cp "$fixtures/chat/tokenizer.json" "$fixtures/chat/tokenizer_config.json" t5
printf '{"source": "a", "target": "b"}\n' >t5.jsonl
run train --model t5 --from-config --data t5.jsonl --output seq2seq --epochs 1 --num-workers 0
run classify --model seq2seq a
expect a_t5_writes_texts 1 "T5ForConditionalGeneration has no classes: it writes texts, and 'fsdp generate'"
run generate --model two a
expect generate_names_classify 1 "does not generate: 'fsdp classify'"
run train --model t5 --from-config --task classification --data train.csv --output never
expect a_t5_is_not_made_a_classifier 1 'T5ForConditionalGeneration, which is for seq2seq.*--target-column'
run classify --model two --top-k 0 a
expect no_labels_are_refused 2 "--top-k '0': expected a number from 1, or all"
run classify --model two a --text-column x
expect columns_need_a_file 2 '--text-column is for rows'
run classify --model two -i line.txt --text-column x
expect columns_need_rows 1 '--text-column is for rows; line.txt is something else'
fails_on_a_full_disk a_full_disk_is_an_error classify --model two a
tally
