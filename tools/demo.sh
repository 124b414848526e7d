#!/bin/sh
# usage: tools/demo.sh [BUILD]: the main job on the data in data/, with the programs in BUILD ("build"):
# fine-tune a T5 for summarization, sharded over two ranks, and show what came of it. Everything is
# written to BUILD/demo. Needs nothing but the programs, a POSIX shell, sed and awk.
build=${1:-build}
fsdp=$build/fsdp
out=$build/demo
ranks=2
started=$(date +%s)

fail() {
    echo "demo: $*" >&2
    exit 1
}
heading() { printf '\n== %s\n' "$*"; }
# run WHAT COMMAND...: show the command, run it; WHAT is for the message if it fails
run() {
    what=$1
    shift
    printf '$ %s\n' "$*"
    "$@" || fail "$what failed with exit code $?"
}
# quietly WHAT LOG COMMAND...: the same with its output in LOG, shown only if it fails
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
# The same job in all runs: 5.5 M parameters, batch 2 x 4, bf16 compute with float32 masters.
train() {
    echo "$fsdp launch -n $ranks train --model data/models/t5-demo --from-config" \
        "--tokenizer data/tokenizers/t5 --data data/debian/train.csv --epochs 6 --batch-size 4" \
        "--lr 0.003 --warmup-steps 40 --gamma 0.8 --dropout 0 --max-grad-norm 1 --param-dtype bf16"
}

cd "$(dirname "$0")/.." || fail "no folder above $0"
[ -x "$fsdp" ] || fail "$fsdp is missing: run 'make' first, or 'make demo'"
rm -rf "$out"
mkdir -p "$out" || fail "cannot make $out"

heading "1. Train a T5 from random weights on Debian's package descriptions, sharded over $ranks ranks"
# shellcheck disable=SC2046
run "training" $(train) --validation-data data/debian/validation.csv --validation-batch-size 16 \
    --output "$out/model" --metrics "$out/train.jsonl" --plot "$out/loss.png" --logging-steps 169
awk -F'"loss": ' '/"kind": "validation"/ {
        split($2, value, ","); n++
        if (n == 1) first = value[1]; else if (value[1] < last) fell++
        last = value[1]
    }
    END {
        if (n < 2 || last + 0 >= first + 0) exit 1
        printf "validation loss: %.4f after the first epoch, %.4f after the last; it fell at %d of %d later evaluations\n", \
            first, last, fell, n - 1
    }' "$out/train.jsonl" || fail "the validation loss did not fall (see $out/train.jsonl)"

heading "2. The first 40 steps again, and the same with NO_SHARD: memory, time, losses"
# shellcheck disable=SC2046
quietly "the second run" "$out/full-shard.log" $(train) --max-steps 40 --no-save-model \
    --metrics "$out/full-shard.jsonl"
# shellcheck disable=SC2046
quietly "the run with NO_SHARD" "$out/no-shard.log" $(train) --max-steps 40 --no-save-model \
    --sharding-strategy NO_SHARD --metrics "$out/no-shard.jsonl"
run "comparing the runs (their losses must be the same in every bit)" \
    "$fsdp" compare "$out/full-shard.jsonl" "$out/no-shard.jsonl" "$out/train.jsonl" --same-losses

heading "3. Held-back rows, before and after: loss, ROUGE, texts"
run "the evaluation" "$fsdp" launch -n $ranks evaluate --model "$out/model" --untrained \
    --data data/debian/test.csv --baseline-data data/debian/train.csv --max-new-tokens 32 \
    --examples 5 --prompts "$out/prompts.txt" --predictions "$out/texts.txt"
cat <<END

A few minutes from random weights teach a T5 which words synopses use (the loss), not to read: 2,700
pairs are too few to learn English from, so its texts stay below one well-chosen constant sentence.
A pretrained model ('--model t5-small') starts where this one cannot get.
END

heading "4. The saved model, loaded again by another command, writes the same texts"
quietly "fsdp generate" "$out/generated.txt" "$fsdp" generate --model "$out/model" \
    --input "$out/prompts.txt" --max-new-tokens 32
cmp "$out/texts.txt" "$out/generated.txt" || fail "fsdp generate wrote other texts than fsdp evaluate"
echo "all $(wc -l <"$out/generated.txt" | tr -d ' ') texts of 'fsdp generate' are those of 'fsdp evaluate'"

heading "Done in $(($(date +%s) - started)) s. What is where:"
cat <<END
  $out/loss.png      picture of the loss curve
  $out/model/        the trained model: a folder that transformers loads, too
  $out/train.jsonl   loss, learning rate, time and memory of every step
  $out/texts.txt     the texts for the 200 held-back rows; prompts.txt: their sources
Train your own: README.md, or '$fsdp train --help'.
END
