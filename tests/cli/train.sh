# Shared by the scripts for `fsdp train`. Each begins with `. "$(dirname "$0")/train.sh"`, which
# provides a tiny model, rows of ids, and checks of the results. usage: as lib.sh, which it
# includes.
. "$(dirname "$0")/lib.sh"
mkdir tmp
TMPDIR=$dir/tmp
export TMPDIR

# train RANKS ARGUMENTS...: trains the tiny model on its ids, or on --data; output is in ./o
train() {
    ranks=$1
    shift
    case " $* " in *" --data "*) ;; *) set -- --data ids.jsonl "$@" ;; esac
    rm -rf o
    run launch -n "$ranks" train --model tiny --from-config --output o \
        --epochs 1 --batch-size 4 --num-workers 0 --metrics m.jsonl "$@"
}
# refused NAME TEXT: the error must contain TEXT once, and no output folder may be left
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
# numbers FILE: prints step, loss, gradient norm and rate of each step, and the loss of each
# validation
numbers() {
    sed -n 's/.*"step", "step": \([0-9]*\),.*"loss": \([^,]*\),.*"grad_norm": \([^,]*\), "lr": \([^,]*\),.*/\1 \2 \3 \4/p
        s/.*"validation", "step": \([0-9]*\),.*"loss": \([^,]*\),.*/validation \1 \2/p' "$1"
}
steps() { grep -c '"kind": "step"' m.jsonl; }
# keep NAME: keeps numbers and weights of the run under NAME
keep() {
    numbers m.jsonl >"$1.numbers"
    cp o/model.safetensors "$1.weights"
}
same() { [ "$rc" -eq 0 ] && cmp -s "$1.numbers" "$2.numbers" && cmp -s "$1.weights" "$2.weights"; }

# --- a model and data ---
# model DIR VOCABULARY EXTRA: a model whose dimensions are uneven
model() { tiny_t5 "$1" 21 5 3 37 2 "$2" "$3"; }
model tiny 67 ', "feed_forward_proj": "gated-gelu", "tie_word_embeddings": false'
# 37 rows: with blocks of 16, one row and three empty leaves remain at the end
id_rows 37 >ids.jsonl
head -n 13 ids.jsonl >validation.jsonl
