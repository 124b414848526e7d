#!/bin/sh
# usage: tools/bench_pretrain.sh BUILD VENV [DIR]: tokens per second of the training of
# tools/pretrain.sh, compared with PyTorch's FSDP2 (gloo) with the same shape, data and batch, on
# two ranks of one thread each, alternately ROUNDS (3) times; then medians, ratios and mfu.
#
# DIR (BUILD/pretrain) is a folder of tools/pretrain.sh, whose start/, corpus/ and restore/ are
# read. VENV is a virtual environment with torch, transformers and sentencepiece. BATCH (8) is the
# number of rows per rank; PAIRS_SHARE (0.4) of them are pairs and RESTORE_SHARE (0.4) are texts
# to restore. Others are DTYPE (bf16), STEPS (100) for this library and TORCH_STEPS (20) for
# PyTorch, whose first steps are not counted, and MODES ("eager"; compiled recompiles for many
# lengths) for PyTorch. The mfu uses the floating point operations of tokens that are not padding,
# and the best rate of single products, both as 'fsdp bench train' counts them. Each side has its
# own random weights and order of rows, so losses are similar, not equal.
build=${1:-build}
venv=${2:-venv}
dir=${3:-$build/pretrain}
here=$(dirname "$0")
batch=${BATCH:-8} dtype=${DTYPE:-bf16} steps=${STEPS:-100} torch_steps=${TORCH_STEPS:-20}
pairs=${PAIRS_SHARE:-0.4} restore=${RESTORE_SHARE:-0.4}

[ -x "$venv/bin/torchrun" ] || {
    echo "$venv/bin/torchrun: not there: 'python3 -m venv VENV; VENV/bin/pip install torch transformers sentencepiece'" >&2
    exit 1
}
for file in start/config.json start/spiece.model corpus/text.txt corpus/pairs.csv restore/restore.csv; do
    [ -e "$dir/$file" ] || {
        echo "$dir/$file: not there: tools/pretrain.sh makes it" >&2
        exit 1
    }
done
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
touch "$tmp/table"

value() { printf '%s' "$line" | sed -n "s/.*\"$1\": \([-0-9.e+]*\).*/\1/p"; }
failed() {
    tail -n 40 "$tmp/err" >&2
    exit 1
}
row() { # PROGRAM TOKENS_PER_S LOSS
    printf '%5s %-17s %11.0f %10.4f\n' $round "$@"
    echo "$1 $2" >>"$tmp/table"
}
ours() {
    rm -f "$tmp/metrics"
    "$build/fsdp" launch -n 2 train --task span-corruption --model "$dir/start" --from-config \
        --data "$dir/corpus/text.txt" --data-weight "$(awk "BEGIN { print 1 - $pairs - $restore }")" \
        --mix-data "seq2seq:$pairs:$dir/corpus/pairs.csv,seq2seq:$restore:$dir/restore/restore.csv" \
        --max-source-length 512 --max-target-length 100 \
        --batch-size "$batch" --max-steps "$steps" --optimizer adamw --lr 0.003 --max-grad-norm 1 --dropout 0 \
        --param-dtype "$dtype" --threads-per-rank 1 --no-save-model --metrics "$tmp/metrics" >"$tmp/out" 2>"$tmp/err" ||
        failed
    sed -n 's/.*"kind": "step".*"loss": \([-0-9.e+]*\),.*"tokens": \([0-9]*\),.*"seconds": \([-0-9.e+]*\),.*/\1 \2 \3/p' "$tmp/metrics" |
        awk 'NR > 10 { tokens += $2; seconds += $3 } { loss = $1 } END { if (!seconds) exit 1; printf "%.1f %.6f", tokens / seconds, loss }' \
            >"$tmp/row" || failed
    # shellcheck disable=SC2046
    row fsdp.c $(cat "$tmp/row")
}
torch() { # eager or compiled
    flag=
    [ "$1" = compiled ] && flag=--compile
    OMP_NUM_THREADS=1 "$venv/bin/torchrun" --nproc_per_node=2 "$here/bench_pretrain.py" --model "$dir/start" \
        --text "$dir/corpus/text.txt" --pairs "$pairs:$dir/corpus/pairs.csv" "$restore:$dir/restore/restore.csv" \
        --batch "$batch" \
        --dtype "$dtype" --steps "$torch_steps" $flag >"$tmp/out" 2>"$tmp/err" || failed
    line=$(grep tokens_per_s "$tmp/out") || failed
    work=$(value gflop_per_token)
    row "PyTorch-$1" "$(value tokens_per_s)" "$(value last_loss)"
}

printf '%5s %-17s %11s %10s\n' round program tokens/s last_loss
round=0
while [ $round -lt "${ROUNDS:-3}" ]; do
    round=$((round + 1))
    ours
    for mode in ${MODES-eager}; do torch "$mode"; done
done
line=$("$build/fsdp" bench train --shape "$dir/start" --ranks 2 --threads-per-rank 1 --batch "$batch" --target 114 \
    --dtype "$dtype" --steps 6 --json 2>"$tmp/err") || failed
best=$(value gemm_gflops)

echo
echo "medians; $batch rows a rank, 2 ranks, $dtype; single products: $best GFLOP/s a core"
awk -v best="$best" -v work="${work:-0}" '
    function median(of,    n, v, i, j, t) {
        n = split(of, v, " ")
        for (i = 2; i <= n; i++)
            for (j = i; j > 1 && v[j - 1] + 0 > v[j] + 0; j--) { t = v[j]; v[j] = v[j - 1]; v[j - 1] = t }
        return n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2
    }
    !($1 in all) { order[++n] = $1 }
    { all[$1] = all[$1] " " $2 }
    END {
        printf "%-17s %11s %6s %14s\n", "program", "tokens/s", "mfu", "fsdp.c is"
        ours = median(all["fsdp.c"])
        for (i = 1; i <= n; i++) {
            rate = median(all[order[i]])
            mfu = work ? sprintf("%.3f", rate * work / (2 * best)) : "-"
            printf "%-17s %11.0f %6s %14s\n", order[i], rate, mfu, i == 1 ? "" : sprintf("%.2f times", ours / rate)
        }
    }' "$tmp/table"
