#!/bin/sh
# usage: [KNOB=VALUE ...] tools/pretrain.sh [BUILD]: pretrains a small T5 on the descriptions of
# Debian's packages with the programs in BUILD ("build"): corpus, vocabulary, training on several
# ranks, the curve, a Hugging Face folder in bf16, its figures on held-out rows and a model card.
# Takes an hour on two cores. If it is interrupted at any instant, even by SIGKILL, the same
# command continues from the last checkpoint with bit for bit the same numbers. See
# docs/pretraining.md.
# Everything is written to DIR (BUILD/pretrain):
#   corpus/ start/       output of tools/pretrain_corpus.sh and tools/pretrain_vocab.sh; made once
#   checkpoints/ model/  of the training; model/ is the best by validation, in float32
#   metrics.jsonl        loss, rate, time and memory of every step; loss.png: the curve
#   RESULT/              the result (t5-debian-mini); evaluation.json, texts.txt: on the rows of TEST
#   knobs                the values below that the run was started with, which must not change
# Knobs, from the environment; paths are taken from the repository's root:
#   LIST SUITE MIRROR    as -l, -s, -m of tools/pretrain_corpus.sh
#   TEXT PAIRS           instead of the corpus: text for span corruption; pairs ('none': without pairs)
#   RESTORE              more pairs: texts to restore. Made from the text by default
#                        (tools/pretrain/restore.awk); 'none': without, the default if TEXT is given
#   START                instead of the vocabulary: a folder with a T5's config.json and tokenizer
#   IDS D_MODEL D_FF D_KV HEADS LAYERS FEED_FORWARD    of the model, unless START is given
#   LENGTH TARGET_LENGTH    tokens of an input; largest number of tokens of a pair's target
#   PAIRS_SHARE RESTORE_SHARE    shares of the rows; the rest are span corruption
#   OPTIMIZER LR SCHEDULE WARMUP MIN_LR WEIGHT_DECAY CLIP DROPOUT DTYPE SEED    as for fsdp train
#   VALIDATION           rows for the validation loss, as span corruption
#   OPTIONS              more options for fsdp train
# These may change from one call to the next (with more STEPS the run continues after the last
# one):
#   BATCH ACCUMULATION   rows per rank and micro-step; micro-steps per step: with RANKS, they must give as many rows per step
#   STEPS RANKS SAVE_STEPS KEEP EVALUATION_STEPS LOGGING_STEPS TEST BASELINE NEW_TOKENS LIMIT
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/.." || exit 1
build=${1:-build}
fsdp=$build/fsdp

fail() { echo "pretrain: $*" >&2; exit 1; }
heading() { printf '\n== %s\n' "$*"; }
show() { printf '$ %s\n' "$*"; }
# must WHAT COMMAND...: WHAT names it in the message if it fails
must() {
    what=$1
    shift
    "$@" || fail "$what failed with exit code $?; the same command goes on"
}
# run WHAT COMMAND...: the same, and shows the command
run() {
    what=$1
    shift
    show "$@"
    must "$what" "$@"
}

# --- knobs ---

: "${DIR:=$build/pretrain}" "${RESULT:=t5-debian-mini}"
: "${LIST=}" "${SUITE=}" "${MIRROR=}" "${TEXT=}" "${PAIRS=}" "${RESTORE=}" "${START=}"
: "${IDS:=8192}" "${D_MODEL:=256}" "${D_FF:=1024}" "${D_KV:=64}" "${HEADS:=4}" "${LAYERS:=3}"
: "${FEED_FORWARD:=relu}" "${LENGTH:=512}" "${TARGET_LENGTH:=100}"
: "${PAIRS_SHARE:=0.4}" "${RESTORE_SHARE:=0.4}"
: "${BATCH:=8}" "${ACCUMULATION:=1}" "${OPTIMIZER:=adafactor}" "${LR:=0.025}" "${SCHEDULE:=cosine}"
: "${WARMUP:=500}" "${MIN_LR:=0.0001}" "${WEIGHT_DECAY:=0}" "${CLIP:=1}" "${DROPOUT:=0}"
: "${DTYPE:=bf16}" "${SEED:=1}" "${VALIDATION:=data/debian/validation.csv}"
: "${STEPS:=20000}" "${RANKS:=2}" "${SAVE_STEPS:=250}" "${KEEP:=2}" "${EVALUATION_STEPS:=500}"
: "${LOGGING_STEPS:=50}" "${TEST:=data/debian/test.csv}" "${BASELINE:=data/debian/train.csv}"
: "${NEW_TOKENS:=32}" "${LIMIT:=16000000}"
# T5's own settings: a rate relative to each parameter's root mean square, and with a first
# moment.
if [ "$OPTIMIZER" = adafactor ]; then
    : "${OPTIONS=--scale-parameter --no-relative-step --adafactor-beta1 0.9}"
else
    : "${OPTIONS=}"
fi
knobs="LIST SUITE MIRROR TEXT PAIRS RESTORE START IDS D_MODEL D_FF D_KV HEADS LAYERS FEED_FORWARD LENGTH
    TARGET_LENGTH PAIRS_SHARE RESTORE_SHARE OPTIMIZER LR SCHEDULE WARMUP MIN_LR WEIGHT_DECAY
    CLIP DROPOUT DTYPE SEED VALIDATION OPTIONS"

show_knobs() {
    for knob in $knobs; do
        eval "printf '%s=%s\n' $knob \"\$$knob\""
    done
}
# A run continues with the knobs that it was started with: the first value that differs is
# reported.
check_knobs() {
    show_knobs >"$DIR/knobs.now" || fail "cannot write to $DIR"
    if [ ! -e "$DIR/knobs" ]; then
        mv "$DIR/knobs.now" "$DIR/knobs" || fail "cannot write to $DIR"
    elif ! cmp -s "$DIR/knobs.now" "$DIR/knobs"; then
        now=$(grep -Fvx -f "$DIR/knobs" "$DIR/knobs.now" | head -n 1)
        fail "$now, but the run in $DIR was begun with $(grep "^${now%%=*}=" "$DIR/knobs"):" \
            "give the same, or another DIR"
    fi
    rm -f "$DIR/knobs.now"
}

# --- stages ---

# once STAGE COMMAND...: runs it unless the stage is complete
once() {
    stage=$1
    shift
    if [ -e "$DIR/$stage.done" ]; then
        echo "$DIR/$stage is there"
        return
    fi
    rm -rf "${DIR:?}/$stage"/new.* # left by a run that was killed
    must "making $DIR/$stage" "$@"
    : >"$DIR/$stage.done" || fail "cannot write to $DIR"
}
corpus() {
    set --
    [ -z "$LIST" ] || set -- "$@" -l "$LIST"
    [ -z "$SUITE" ] || set -- "$@" -s "$SUITE"
    [ -z "$MIRROR" ] || set -- "$@" -m "$MIRROR"
    show tools/pretrain_corpus.sh "$@" "$DIR/corpus"
    sh "$here/pretrain_corpus.sh" "$@" "$DIR/corpus"
}
# The vocabulary's folder, with this run's shape in config.json.
vocabulary() {
    show tools/pretrain_vocab.sh -n "$IDS" "$DIR/corpus" "$DIR/start"
    sh "$here/pretrain_vocab.sh" -n "$IDS" "$DIR/corpus" "$DIR/start" || return 1
    sed -e "s/\"d_model\": [0-9]*/\"d_model\": $D_MODEL/" -e "s/\"d_ff\": [0-9]*/\"d_ff\": $D_FF/" \
        -e "s/\"d_kv\": [0-9]*/\"d_kv\": $D_KV/" -e "s/\"num_heads\": [0-9]*/\"num_heads\": $HEADS/" \
        -e "s/\"\(num_layers\|num_decoder_layers\)\": [0-9]*/\"\1\": $LAYERS/" \
        -e "s/\"feed_forward_proj\": \"[^\"]*\"/\"feed_forward_proj\": \"$FEED_FORWARD\"/" \
        "$DIR/start/config.json" >"$DIR/start/new.config" &&
        mv "$DIR/start/new.config" "$DIR/start/config.json"
}
# Always the same job; it begins at the newest checkpoint.
train() {
    set -- --task span-corruption --model "$start" --from-config --data "$text"
    mixed='' share=0
    [ "$pairs" = none ] || mixed="seq2seq:$PAIRS_SHARE:$pairs" share=$PAIRS_SHARE
    [ "$restore" = none ] || mixed="$mixed${mixed:+,}seq2seq:$RESTORE_SHARE:$restore" share="$share + $RESTORE_SHARE"
    if [ -n "$mixed" ]; then
        set -- "$@" --data-weight "$(awk "BEGIN { printf \"%.6g\", 1 - ($share) }")" --mix-data "$mixed" \
            --max-target-length "$TARGET_LENGTH"
    fi
    # shellcheck disable=SC2086
    run "the training" "$fsdp" launch -n "$RANKS" train "$@" --validation-data "$VALIDATION" \
        --max-source-length "$LENGTH" --batch-size "$BATCH" \
        --validation-batch-size "$BATCH" --gradient-accumulation-steps "$ACCUMULATION" --epochs 1000000 \
        --max-steps "$STEPS" --optimizer "$OPTIMIZER" --lr "$LR" --lr-schedule "$SCHEDULE" \
        --warmup-steps "$WARMUP" --min-lr "$MIN_LR" --weight-decay "$WEIGHT_DECAY" --max-grad-norm "$CLIP" \
        --dropout "$DROPOUT" --param-dtype "$DTYPE" --seed "$SEED" --evaluation-steps "$EVALUATION_STEPS" \
        --logging-steps "$LOGGING_STEPS" --output "$DIR/model" --overwrite-output \
        --metrics "$DIR/metrics.jsonl" --checkpoint-dir "$DIR/checkpoints" --save-steps "$SAVE_STEPS" \
        --save-total-limit "$KEEP" --resume auto $OPTIONS
}
# Make the texts to restore from the text.
restoration() {
    mkdir -p "$DIR/restore" || return 1
    show awk -f tools/pretrain/restore.awk "$text" ">" "$DIR/restore/restore.csv"
    LC_ALL=C awk -f "$here/pretrain/restore.awk" "$text" >"$DIR/restore/restore.csv"
}
evaluate() {
    set -- "$fsdp" launch -n "$RANKS" evaluate --model "$DIR/$RESULT" --data "$TEST" --baseline-data "$BASELINE" \
        --max-new-tokens "$NEW_TOKENS" --prompts "$DIR/prompts.txt" --predictions "$DIR/texts.txt" --json
    show "$@" ">" "$DIR/evaluation.json"
    "$@" >"$DIR/evaluation.json"
}
check_size() {
    bytes=$(cat "$DIR/$RESULT"/* | wc -c | tr -d ' ')
    [ "$bytes" -le "$LIMIT" ] || fail "$DIR/$RESULT has $bytes bytes, more than LIMIT=$LIMIT"
    echo "$DIR/$RESULT: $bytes bytes"
}

[ -x "$fsdp" ] || fail "$fsdp is missing: run 'make' first, or 'make pretrain'"
for knob in PAIRS_SHARE RESTORE_SHARE; do
    eval "share=\$$knob"
    awk -v s="$share" 'BEGIN { exit !(s > 0 && s < 1) }' || fail "$knob=$share: not between 0 and 1"
done
awk "BEGIN { exit !($PAIRS_SHARE + $RESTORE_SHARE < 1) }" ||
    fail "PAIRS_SHARE=$PAIRS_SHARE and RESTORE_SHARE=$RESTORE_SHARE leave nothing for span corruption"
for number in "$STEPS" "$RANKS" "$BATCH" "$ACCUMULATION" "$LAYERS"; do
    case $number in *[!0-9]* | '' | 0*) fail "'$number' is not a number of steps, ranks, rows, micro-steps or layers" ;; esac
done
mkdir -p "$DIR" || fail "cannot make $DIR"
check_knobs
started=$(date +%s)

heading "1. Corpus"
text=${TEXT:-$DIR/corpus/text.txt} pairs=${PAIRS:-$DIR/corpus/pairs.csv}
if [ -n "$TEXT" ] && [ -n "$PAIRS" ] && [ -n "$START" ]; then
    echo "TEXT, PAIRS and START are given"
else
    once corpus corpus
fi
restore=${RESTORE:-${TEXT:+none}}
[ -n "$restore" ] || { restore=$DIR/restore/restore.csv && once restore restoration; }

heading "2. Vocabulary and shape"
start=${START:-$DIR/start}
if [ -n "$START" ]; then echo "START is given"; else once start vocabulary; fi

heading "3. Training: $STEPS steps on $RANKS ranks"
train

heading "4. The curve, the model in bf16, held-back rows, the card"
run "the plot" "$fsdp" plot "$DIR/metrics.jsonl" -o "$DIR/loss.png" --title "$RESULT"
run "the export" "$fsdp" checkpoint convert "$DIR/model" "$DIR/$RESULT" --dtype bf16 --overwrite
must "the evaluation" evaluate
cp "$DIR/loss.png" "$DIR/$RESULT/loss.png" || fail "cannot write to $DIR/$RESULT"
RESULT=$RESULT DIR=$DIR TEST=$TEST VALIDATION=$VALIDATION FSDP=$fsdp TEXT=$text PAIRS=$pairs RESTORE=$restore \
    ROWS=$((RANKS * BATCH * ACCUMULATION)) \
    sh "$here/pretrain/card.sh" >"$DIR/card.md" || fail "the model card failed"
mv "$DIR/card.md" "$DIR/$RESULT/README.md" || fail "cannot write to $DIR/$RESULT"
check_size
heading "Done; this call took $(($(date +%s) - started)) s. The model is in $DIR/$RESULT"
sed -n '/^## Figures/,/^## /p' "$DIR/$RESULT/README.md" | sed '1d;$d'
