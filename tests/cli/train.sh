# What the scripts of `fsdp train` share; each begins with `. "$(dirname "$0")/train.sh"`: a tiny model, rows of
# ids, and what a run of them has done. usage: as lib.sh, which it begins with.
. "$(dirname "$0")/lib.sh"
mkdir tmp
TMPDIR=$dir/tmp
export TMPDIR

# train RANKS ARGUMENTS...: on the tiny model and its ids; output in ./o
train() {
    ranks=$1
    shift
    rm -rf o
    run launch -n "$ranks" train --model tiny --from-config --data ids.jsonl --output o \
        --epochs 1 --batch-size 4 --num-workers 0 --metrics m.jsonl "$@"
}
# refused NAME TEXT: an error that says TEXT once, and nothing is left of an output folder
refused() {
    if [ -e o ] || ls o.* >/dev/null 2>&1; then
        bad "$1" "left behind: $(ls -d o o.* 2>/dev/null | tr '\n' ' ')"
    elif [ "$rc" -eq 0 ]; then
        bad "$1" "it succeeded"
    elif [ "$(grep -Ec -- "$2" err)" -ne 1 ]; then
        bad "$1" "stderr does not say '$2' once"
    else
        ok "$1"
    fi
}
# numbers FILE: step, loss, gradient norm and rate of each step; loss of each validation
numbers() {
    sed -n 's/.*"step", "step": \([0-9]*\),.*"loss": \([^,]*\),.*"grad_norm": \([^,]*\), "lr": \([^,]*\),.*/\1 \2 \3 \4/p
        s/.*"validation", "step": \([0-9]*\),.*"loss": \([^,]*\),.*/validation \1 \2/p' "$1"
}
steps() { grep -c '"kind": "step"' m.jsonl; }
# keep NAME: numbers and weights of the run under NAME
keep() {
    numbers m.jsonl >"$1.numbers"
    cp o/model.safetensors "$1.weights"
}
same() { [ "$rc" -eq 0 ] && cmp -s "$1.numbers" "$2.numbers" && cmp -s "$1.weights" "$2.weights"; }

# --- a model and data ---
# model DIR VOCABULARY EXTRA: nothing is even or divisible
model() { tiny_t5 "$1" 21 5 3 37 2 "$2" "$3"; }
model tiny 67 ', "feed_forward_proj": "gated-gelu", "tie_word_embeddings": false'
# 37 rows: blocks of 16 leave one row and three empty leaves at the end
id_rows 37 >ids.jsonl
head -n 13 ids.jsonl >validation.jsonl
