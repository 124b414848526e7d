#!/bin/sh
# tools/pretrain.sh: the whole recipe with a tiny model. Killed at three instants it gives the
# same curve and the same model as without. Complete stages are not repeated, and knobs that
# differ from those of the run are refused.
# usage: FSDP_BUILD=build tests/cli/test_pretrain.sh
. "$(dirname "$0")/lib.sh"
needs libcsv utf8proc
tool=$root/tools/pretrain.sh
unset DIR RESULT LIST SUITE MIRROR TEXT PAIRS RESTORE START OPTIONS IDS D_MODEL D_FF D_KV HEADS LAYERS FEED_FORWARD \
    ACCUMULATION OPTIMIZER LR SCHEDULE MIN_LR WEIGHT_DECAY CLIP DTYPE SEED RANKS LIMIT BASELINE

tiny_t5 start 12 4 3 20 1 32128
cp "$root/data/tokenizers/t5/spiece.model" start
# rows N FILE: prints the header and N rows, which may have several lines
rows() { awk -v n="$1" '{ print; quotes += gsub(/"/, "\"") } quotes % 2 == 0 && n-- == 0 { exit }' "$root/data/debian/$2"; }
rows 40 train.csv >rows.csv
rows 8 validation.csv >validation.csv
rows 4 test.csv >test.csv
STEPS=14 WARMUP=3 BATCH=2 LENGTH=24 TARGET_LENGTH=8 DROPOUT=0.1 SAVE_STEPS=3 KEEP=2 EVALUATION_STEPS=5
LOGGING_STEPS=5 TEXT=$dir/rows.csv PAIRS=$dir/rows.csv START=$dir/start VALIDATION=$dir/validation.csv
TEST=$dir/test.csv BASELINE=$dir/rows.csv NEW_TOKENS=3
export STEPS WARMUP BATCH LENGTH TARGET_LENGTH DROPOUT SAVE_STEPS KEEP EVALUATION_STEPS LOGGING_STEPS TEXT PAIRS \
    START VALIDATION TEST BASELINE NEW_TOKENS DIR
# pretrain [NAME=VALUE...]: runs the script in $DIR
pretrain() { capture env "$@" sh "$tool" "$build"; }
numbers() {
    sed -n 's/.*"step", "step": \([0-9]*\), "epoch": \([0-9]*\), "loss": \([^,]*\),.*"grad_norm": \([^,]*\), "lr": \([^,]*\),.*/\1 \2 \3 \4 \5/p
        s/.*"validation", "step": \([0-9]*\),.*"loss": \([^,]*\),.*/validation \1 \2/p' "$1/metrics.jsonl"
}
steps() { grep -c '"kind": "step"' "$DIR/metrics.jsonl" 2>/dev/null; }

# --- the whole recipe ---
DIR=$dir/whole
pretrain
expect the_recipe_ends_well 0 'Done; this call took' out
numbers "$DIR" >whole.numbers
check it_has_every_step test "$(grep -vc validation whole.numbers)" -eq 14
result=$DIR/t5-debian-mini
check the_result_is_whole test "$(ls "$result" | tr '\n' ' ')" = \
    'README.md config.json generation_config.json loss.png model.safetensors spiece.model '
check the_result_is_bf16 grep -q '"dtype": "bfloat16"' "$result/config.json"
card() { grep -Eq -- "$1" "$result/README.md"; }
check the_card_has_steps card '^\| steps \| 14 \|$'
check the_card_has_the_best_loss card "^\| validation loss .* of this model: $(sed -n 's/^validation [0-9]* //p' \
    whole.numbers | sort -g | head -n 1 | cut -c 1-5)"
check the_card_has_the_score card '^\| t5-debian-mini \| [0-9.]+ \| [0-9.]+ \| [0-9.]+ \| [0-9.]+ \|$'
check the_card_has_no_gaps test -z "$(grep -E '\(\)|  | ,|NAN|nan' "$result/README.md" | grep -v '^    ')"
check texts_are_written test "$(wc -l <"$DIR/texts.txt")" -eq 4
run generate --model "$result" --max-new-tokens 2 'summarize: a library'
check the_result_generates test $rc -eq 0

# --- killed ---
DIR=$dir/killed
for at in 1 6 11; do
    setsid sh "$tool" "$build" >out 2>err &
    pid=$!
    tries=0
    until [ "$(steps)" -ge $at ] 2>/dev/null || ! kill -0 $pid 2>/dev/null || [ $tries -ge 6000 ]; do
        tries=$((tries + 1))
        sleep 0.01
    done
    kill -9 -$pid 2>/dev/null
    wait $pid 2>/dev/null
done
pretrain
expect a_killed_recipe_goes_on 0 'resuming from .*/killed/checkpoints/checkpoint-' out
numbers "$DIR" >killed.numbers
check the_curve_is_the_same_in_every_bit cmp whole.numbers killed.numbers
check and_so_is_the_model cmp "$result/model.safetensors" "$DIR/t5-debian-mini/model.safetensors"

# --- again ---
DIR=$dir/whole
pretrain
expect nothing_is_left_to_do 0 'step 14 of 14, nothing left to do' out
pretrain STEPS=16 RANKS=1 ACCUMULATION=2
expect more_steps_go_on_with_other_ranks 0 'step 14 of 16' out
pretrain STEPS=18 BATCH=3
expect other_rows_a_step_are_refused 1 'the training failed with exit code [0-9]+'
pretrain LR=0.5
expect another_rate_is_refused 1 "LR=0.5, but the run in $dir/whole was begun with LR=0.025"
pretrain LIMIT=1000
expect a_model_over_the_limit_is_reported 1 "$dir/whole/t5-debian-mini has [0-9]+ bytes, more than LIMIT=1000"
DIR=$dir/other
pretrain STEPS=x
expect steps_are_a_number 1 "'x' is not a number of steps"
pretrain PAIRS_SHARE=1.5
expect shares_are_below_one 1 'PAIRS_SHARE=1.5: not between 0 and 1'
pretrain PAIRS_SHARE=0.5 RESTORE_SHARE=0.5
expect shares_leave_span_corruption_some 1 'PAIRS_SHARE=0.5 and RESTORE_SHARE=0.5 leave nothing for span corruption'
DIR=$dir/alone
pretrain PAIRS=none STEPS=3 WARMUP=1
expect span_corruption_alone 0 'Done; this call took' out
check is_reported test "$(grep -c '^Span corruption,\|^With a share' "$DIR/t5-debian-mini/README.md")" -eq 1

# --- corpus and vocabulary ---
if command -v spm_train >/dev/null; then
    DIR=$dir/made
    sed -n '2,400s/[",]/ /gp' "$root/data/debian/train.csv" | awk '{ print "Package: kept-" NR "\nDescription-md5: 0\n\
Description-en: " substr($0, 1, 60) "\n " $0 "\n" }' >list
    pretrain TEXT= PAIRS= START= LIST="$dir/list" IDS=428 D_MODEL=16 D_FF=20 D_KV=8 HEADS=2 LAYERS=1 STEPS=2 WARMUP=1
    expect corpus_and_vocabulary_are_made 0 'Done; this call took' out
    check the_shape_is_that_of_the_knobs grep -q '"d_model": 16' "$DIR/t5-debian-mini/config.json"
    check the_card_counts_documents grep -Eq '^The English descriptions of [1-9][0-9]* packages of Debian main: [1-9]' \
        "$DIR/t5-debian-mini/README.md"
    check texts_to_restore_are_made grep -Eq '^"[^"]* [^"]*","[^"]+"$' "$DIR/restore/restore.csv"
    check and_reported grep -q '^With a share of 0.4 texts to restore' "$DIR/t5-debian-mini/README.md"
    rm -r list "$DIR/t5-debian-mini"
    pretrain TEXT= PAIRS= START= LIST="$dir/list" IDS=428 D_MODEL=16 D_FF=20 D_KV=8 HEADS=2 LAYERS=1 STEPS=2 WARMUP=1
    expect they_are_made_once 0 "$DIR/corpus is there" out
    check the_result_is_made_again test -s "$DIR/t5-debian-mini/model.safetensors"
else
    skip corpus_and_vocabulary_are_made 'no spm_train here'
fi
tally
