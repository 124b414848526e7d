#!/bin/sh
# usage: tools/demo.sh [BUILD]: the main use case on the data in data/, with the programs in BUILD
# ("build"): fine-tune a pretrained T5 for summarization, sharded over two ranks, and show the
# results. Everything is written to BUILD/demo. Needs only the programs, a POSIX shell, sed and
# awk.
build=${1:-build}
fsdp=$build/fsdp
out=$build/demo
model=models/t5-debian-mini
ranks=2
started=$(date +%s)

fail() {
    echo "demo: $*" >&2
    exit 1
}
heading() { printf '\n== %s\n' "$*"; }
# run WHAT COMMAND...: shows the command and runs it; WHAT names it in the message if it fails
run() {
    what=$1
    shift
    printf '$ %s\n' "$*"
    "$@" || fail "$what failed with exit code $?"
}
# quietly WHAT LOG COMMAND...: the same with its output in LOG, which is shown only if it fails
quietly() {
    what=$1 log=$2
    shift 2
    printf '$ %s > %s\n' "$*" "$log"
    "$@" >"$log" 2>&1 || {
        code=$?
        tail -n 20 "$log" >&2
        fail "$what failed with exit code $code; its output is in $log"
    }
}
# The same job in all runs: 7.6 M parameters, batch 2 x 8, bf16 compute with float32 master
# weights.
train() {
    echo "$fsdp launch -n $ranks train --model $model --data data/debian/train.csv --epochs 2 --batch-size 8" \
        "--optimizer adafactor --scale-parameter --no-relative-step --adafactor-beta1 0.9 --lr 0.004" \
        "--lr-schedule linear --dropout 0.1 --max-grad-norm 1 --param-dtype bf16"
}
# rouge_l NAME FILE: from its row in the table of `fsdp evaluate`
rouge_l() {
    awk -F'│' -v want="$1" '
        { name = $2; gsub(/^ +| +$/, "", name) }
        NF == 6 && name == want { print $5 + 0; exit }' "$2"
}

cd "$(dirname "$0")/.." || fail "no folder above $0"
[ -x "$fsdp" ] || fail "$fsdp is missing: run 'make' first, or 'make demo'"
rm -rf "$out"
mkdir -p "$out" || fail "cannot make $out"

heading "1. Fine-tune a T5 to summarize descriptions of Debian packages, sharded over $ranks ranks"
# shellcheck disable=SC2046
run "training" $(train) --validation-data data/debian/validation.csv --validation-batch-size 16 \
    --output "$out/model" --metrics "$out/train.jsonl" --plot "$out/loss.png" --logging-steps 85

heading "2. 40 steps with FULL_SHARD, and the same with NO_SHARD: memory, time, losses"
# shellcheck disable=SC2046
quietly "the run with FULL_SHARD" "$out/full-shard.log" $(train) --max-steps 40 --no-save-model \
    --metrics "$out/full-shard.jsonl"
# shellcheck disable=SC2046
quietly "the run with NO_SHARD" "$out/no-shard.log" $(train) --max-steps 40 --no-save-model \
    --sharding-strategy NO_SHARD --metrics "$out/no-shard.jsonl"
run "comparing the runs (their losses must be the same in every bit)" \
    "$fsdp" compare "$out/full-shard.jsonl" "$out/no-shard.jsonl" --same-losses

heading "3. Held-back rows, before and after: loss, ROUGE, texts"
quietly "the evaluation" "$out/evaluation.txt" "$fsdp" launch -n $ranks evaluate --model "$model,$out/model" \
    --data data/debian/test.csv --baseline-data data/debian/train.csv --max-new-tokens 32 \
    --examples 6 --prompts "$out/prompts.txt" --predictions "$out/texts.txt"
grep -v 'it/s]$' "$out/evaluation.txt"
awk -v before="$(rouge_l "$model" "$out/evaluation.txt")" -v after="$(rouge_l "$out/model" "$out/evaluation.txt")" \
    -v constant="$(rouge_l 'best constant sentence' "$out/evaluation.txt")" 'BEGIN {
        if (!(before > 0 && after > constant)) exit 1
        printf "\nROUGE-L after fine-tuning: %.2f times the best constant sentence, %.2f times before\n", \
            after / constant, after / before
    }' || fail "the texts are no better than a constant sentence (see $out/evaluation.txt)"

heading "4. The saved model, loaded again by another command, writes the same texts"
printf '$ %s\n' "$fsdp generate --model $out/model --input $out/prompts.txt --max-new-tokens 32 > $out/generated.txt"
"$fsdp" generate --model "$out/model" --input "$out/prompts.txt" --max-new-tokens 32 \
    >"$out/generated.txt" || fail "fsdp generate failed with exit code $?" # its notes are shown to the reader
cmp "$out/texts.txt" "$out/generated.txt" || fail "fsdp generate wrote other texts than fsdp evaluate"
echo "all $(wc -l <"$out/generated.txt" | tr -d ' ') texts of 'fsdp generate' are those of 'fsdp evaluate'"

heading "Done in $(($(date +%s) - started)) s. What is where:"
cat <<END
  $out/loss.png        picture of the loss curve
  $out/model/          the trained model: a folder that transformers loads, too
  $out/train.jsonl     loss, learning rate, time and memory of every step
  $out/evaluation.txt  the tables and texts of 3.
  $out/texts.txt       the texts for the 200 held-back rows; prompts.txt: their sources
Train your own: README.md, or '$fsdp train --help'.
END
