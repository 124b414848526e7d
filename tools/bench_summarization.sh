#!/bin/sh
# usage: tools/bench_summarization.sh BUILD VENV [FILE.csv ...]: samples per second of `fsdp
# train` on real rows of any length, compared with PyTorch doing what the FSDP tutorial does (pads
# to 512 and 150 tokens), on two ranks of one thread each, alternately ROUNDS (3) times; then
# medians and ratios.
#
# Rows are those of data/debian/train.csv, or of the given files, with columns text and headline.
# The model has t5-small's shape and random weights, the same on both sides. So losses must agree,
# else the exit code is 1. VENV is a virtual environment with torch, transformers and
# sentencepiece. BATCH (16) rows per rank, STEPS (6; the first is not counted), DTYPE (bf16),
# SHAPE (t5-small). Host memory is measured in one more run of each, sampled by the same external
# program.
build=${1:-build}
venv=${2:-venv}
here=$(dirname "$0")
root=$here/..
[ $# -gt 2 ] && shift 2 || set -- "$root/data/debian/train.csv"
batch=${BATCH:-16} steps=${STEPS:-6} dtype=${DTYPE:-bf16} shape=${SHAPE:-t5-small}
tokenizer=$root/data/tokenizers/t5

[ -x "$venv/bin/torchrun" ] || {
    echo "$venv/bin/torchrun: not there: 'python3 -m venv VENV; VENV/bin/pip install torch transformers sentencepiece'" >&2
    exit 1
}
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
touch "$dir/table"

value() { printf '%s' "$line" | sed -n "s/.*\"$1\": \([-0-9.e+]*\).*/\1/p"; }
# Shows the end of the program's output, to which torchrun adds about twenty lines.
failed() {
    tail -n 40 "$dir/err" >&2
    exit 1
}
# ours STEPS [COMMAND...], torch STEPS [COMMAND...]: run it, or run it under the command
ours() {
    n=$1
    shift
    "$@" "$build/fsdp" launch -n 2 train --model "$dir/model" --tokenizer "$tokenizer" --data "$data" \
        --batch-size "$batch" --max-steps "$n" --lr 0.002 --sampler distributed \
        --loss-reduction mean-of-means --task-prefix= --wikihow-cleaning --max-grad-norm 0 --param-dtype "$dtype" \
        --threads-per-rank 1 --no-save-model --overwrite-output --output "$dir/none" \
        --metrics "$dir/metrics" >"$dir/out" 2>"$dir/err"
}
torch() {
    n=$1
    shift
    OMP_NUM_THREADS=1 "$@" "$venv/bin/torchrun" --nproc_per_node=2 "$here/bench_summarization.py" \
        --model "$dir/model" --tokenizer "$tokenizer/spiece.model" --data "$data" --dtype "$dtype" \
        --batch "$batch" --steps "$n" >"$dir/out" 2>"$dir/err"
}
sampled() { # PROGRAM FUNCTION: runs three steps and prints their peak memory
    "$2" 3 "$venv/bin/python" "$here/hostmem.py" "$dir/mib" || failed
    echo "$name $1 memory $(cat "$dir/mib")" >>"$dir/table"
}
row() { # PROGRAM SAMPLES FIRST LAST
    printf '%-24s %5s %9s %11.2f %11.5f %10.5f\n' "$name" $round "$@"
    echo "$name $1 time $2 $3 $4" >>"$dir/table"
}
# From the lines of --metrics. The seconds of a step include loading.
ours_row() {
    row fsdp.c $(sed -n 's/.*"kind": "step".*"loss": \([-0-9.e+]*\),.*"seconds": \([-0-9.e+]*\),.*/\1 \2/p' "$dir/metrics" |
        awk -v rows=$((2 * batch)) '
            NR == 1 { first = $1 }
            NR > 1 { seconds += $2 }
            { last = $1 }
            END { if (NR < 2) exit 1; printf "%.3f %.6f %.6f", (NR - 1) * rows / seconds, first, last }')
}
torch_row() {
    line=$(grep samples_per_s "$dir/out")
    row PyTorch "$(value samples_per_s)" "$(value first_loss)" "$(value last_loss)"
}

"$build/fsdp" bench train --shape "$shape" --ranks 2 --batch 1 --seq 8 --steps 2 --json \
    --save-model "$dir/model" >"$dir/out" 2>"$dir/err" || failed
printf '%-24s %5s %9s %11s %11s %10s\n' rows round program samples/s first_loss last_loss
for data; do
    name=$(basename "$data" .csv | tr ' ' '_')
    round=0
    while [ $round -lt "${ROUNDS:-3}" ]; do
        round=$((round + 1))
        rm -f "$dir/metrics"
        ours "$steps" || failed
        ours_row
        torch "$steps" || failed
        torch_row
    done
    echo "$name: on average $(value source_tokens) source and $(value target_tokens) target tokens a row"
    sampled fsdp.c ours
    sampled PyTorch torch
done

# Losses in fp32 must agree to 0.1 %, in bf16 to 2 %, because PyTorch's is a bfloat16.
echo
echo "medians; $batch rows a rank, 2 ranks, $dtype, shape of $shape"
awk -v bound=$([ "$dtype" = fp32 ] && echo 0.001 || echo 0.02) '
    function median(of,    n, v, i, j, t) {
        n = split(of, v, " ")
        for (i = 2; i <= n; i++)
            for (j = i; j > 1 && v[j - 1] + 0 > v[j] + 0; j--) { t = v[j]; v[j] = v[j - 1]; v[j - 1] = t }
        return n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2
    }
    function apart(a, b) { return (a > b ? a - b : b - a) / b }
    !($1 in seen) { order[++n] = $1; seen[$1] }
    $3 == "memory" { memory[$1, $2] = $4 }
    $3 == "time" { all[$1, $2] = all[$1, $2] " " $4; first[$1, $2] = $5; last[$1, $2] = $6 }
    END {
        printf "%-24s %16s %16s %7s %13s %13s %7s  %s\n", "rows", "fsdp.c samples/s", "PyTorch samples/s",
            "ratio", "fsdp.c MiB", "PyTorch MiB", "ratio", "losses"
        for (i = 1; i <= n; i++) {
            name = order[i]
            ours = median(all[name, "fsdp.c"]); theirs = median(all[name, "PyTorch"])
            difference = apart(first[name, "fsdp.c"], first[name, "PyTorch"])
            later = apart(last[name, "fsdp.c"], last[name, "PyTorch"])
            if (later > difference) difference = later
            if (difference > bound) wrong = 1
            printf "%-24s %16.2f %16.2f %7.2f %13.0f %13.0f %7.2f  %s to %.4f %%\n", name, ours, theirs,
                ours / theirs, memory[name, "fsdp.c"], memory[name, "PyTorch"],
                memory[name, "PyTorch"] / memory[name, "fsdp.c"],
                (difference > bound ? "DIFFER: agree only" : "agree"), 100 * difference
        }
        exit wrong
    }' "$dir/table"
