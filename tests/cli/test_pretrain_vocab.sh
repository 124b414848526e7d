#!/bin/sh
# tools/pretrain_vocab.sh: a small vocabulary, the same bytes each time, with T5's special pieces,
# in a folder that fsdp can train from; and errors. Skipped without spm_train.
. "$(dirname "$0")/lib.sh"
tool=$root/tools/pretrain_vocab.sh

mkdir "$dir/corpus"
capture sh "$tool" -n 12x "$dir/corpus" "$dir/start"
expect ids_are_a_number 1 '-n 12x: not a number of ids'
capture sh "$tool" -n 100 "$dir/corpus" "$dir/start"
expect sentinels_alone_are_no_vocabulary 1 '-n 100: no more than the 100 sentinels'
capture sh "$tool" a b c
expect too_many_folders_show_the_usage 1 'usage: tools/pretrain_vocab.sh'
if ! command -v spm_train >/dev/null; then
    skip a_vocabulary_is_trained 'no spm_train here'
    tally
    exit
fi
capture sh "$tool" "$dir/corpus" "$dir/start"
expect a_missing_text_is_named 1 "$dir/corpus/text.txt is missing"

sed -n '2,200s/[",]/ /gp' "$root/data/debian/validation.csv" >"$dir/corpus/text.txt"
for run in 1 2; do
    capture sh "$tool" -n 428 "$dir/corpus" "$dir/start$run"
    expect "vocabulary_${run}_is_trained" 0 '328 pieces and 100 sentinels' out
done
check the_same_text_gives_the_same_bytes diff -r "$dir/start1" "$dir/start2"
check the_folder_is_whole test "$(ls "$dir/start1" | tr '\n' ' ')" = \
    'config.json special_tokens_map.json spiece.model tokenizer_config.json '
capture sh "$tool" -n 100000 "$dir/corpus" "$dir/start3"
expect more_pieces_than_the_text_has_are_refused 1 'spm_train made no 99900 pieces'
check and_nothing_is_written test -z "$(ls "$dir/start3")"

# All ids must be below vocab_size, and pad and eos where T5 has them: a training step checks
# that.
sed -i -e 's/"d_model": [0-9]*/"d_model": 24/' -e 's/"d_ff": [0-9]*/"d_ff": 40/' -e 's/"d_kv": [0-9]*/"d_kv": 8/' \
    -e 's/"num_layers": [0-9]*/"num_layers": 1/' -e 's/"num_decoder_layers": [0-9]*/"num_decoder_layers": 1/' \
    "$dir/start1/config.json"
run train --model "$dir/start1" --from-config --data "$root/data/debian/validation.csv" --max-train-samples 4 \
    --batch-size 2 --max-steps 2 --lr 0.001 --output "$dir/model"
check fsdp_trains_from_it test $rc -eq 0
check the_model_has_its_tokenizer cmp "$dir/start1/spiece.model" "$dir/model/spiece.model"
echo 'a word <extra_id_0> and </s>' >"$dir/prompt"
run generate --model "$dir/model" --input "$dir/prompt" --max-new-tokens 2
check and_it_generates test $rc -eq 0
tally
