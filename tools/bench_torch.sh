#!/bin/sh
# usage: tools/bench_torch.sh BUILD VENV: the same training steps in this library and in PyTorch's
# FSDP2 (gloo), eager and compiled, two ranks of one thread each, in turn ROUNDS (3) times; then the
# medians, and how many times as long and as large PyTorch is.
#
# VENV is a virtual environment with torch and transformers. RUNS ("shape:dtype:batch:seq ...") and
# STEPS (6) choose the work, MODES ("eager compiled") PyTorch's side. Runs in turn tell something
# also on a machine that others use, and so does processor time (cpu: rank 0's, per step).
build=${1:-build}
torchrun=${2:-venv}/bin/torchrun
here=$(dirname "$0")
runs=${RUNS:-t5-small:bf16:4:512 llama-58m:bf16:4:512 bert-base-uncased:bf16:8:128 gpt2:bf16:4:256
    t5-small:fp32:4:512 llama-58m:fp32:4:512 bert-base-uncased:fp32:8:128}
modes=${MODES-eager compiled}

[ -x "$torchrun" ] || { echo "$torchrun: not there: 'python3 -m venv VENV; VENV/bin/pip install torch transformers'" >&2; exit 1; }
table=$(mktemp) || exit 1
trap 'rm -f "$table"' EXIT

value() { printf '%s' "$line" | sed -n "s/.*\"$1\": \([0-9.]*\).*/\1/p"; }
row() { # PROGRAM: of $line, for the reader and for the medians
    printf '%-22s %5s %9s %8s %8s %11s %9s %10s\n' "$run" $round "$1" "$(value step_s)" \
        "$(value processor)" "$(value first_step_after_s)" "$(value peak_host_mib)" "$(value first_loss)"
    echo "$run $1 $(value step_s) $(value processor) $(value first_step_after_s) $(value peak_host_mib)" >>"$table"
}
ours() {
    line=$("$build/fsdp" bench train $work --ranks 2 --json) || exit 1
    row fsdp.c
}
torch() { # MODE
    flag=
    [ "$1" = compiled ] && flag=--compile
    line=$(OMP_NUM_THREADS=1 "$torchrun" --nproc_per_node=2 "$here/bench_torch.py" $work $flag \
        2>"$table.err" | grep step_s) || { tail -n 5 "$table.err" >&2; rm -f "$table.err"; exit 1; }
    rm -f "$table.err"
    row "$1"
}

printf '%-22s %5s %9s %8s %8s %11s %9s %10s\n' run round program step_s cpu_s first_step peak_MiB loss
for run in $runs; do
    work=$(echo "$run" | awk -F: '{ print "--shape", $1, "--dtype", $2, "--batch", $3, "--seq", $4 }')
    work="$work --steps ${STEPS:-6} --threads-per-rank 1"
    round=0
    while [ $round -lt "${ROUNDS:-3}" ]; do
        round=$((round + 1))
        ours
        for mode in $modes; do torch "$mode"; done
    done
done

echo
echo "medians; PyTorch / fsdp.c in brackets"
awk '
    function median(of,    n, v, i, j, t) {
        n = split(of, v, " ")
        for (i = 2; i <= n; i++)
            for (j = i; j > 1 && v[j - 1] + 0 > v[j] + 0; j--) { t = v[j]; v[j] = v[j - 1]; v[j - 1] = t }
        return n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2
    }
    !(($1, $2) in seen) { order[++n] = $1 SUBSEP $2; seen[$1, $2] }
    { for (k = 3; k <= 6; k++) all[$1, $2, k] = all[$1, $2, k] " " $k }
    END {
        printf "%-22s %9s %15s %15s %15s %15s\n", "run", "program", "step_s", "cpu_s", "first_step", "peak_MiB"
        for (i = 1; i <= n; i++) {
            split(order[i], id, SUBSEP)
            printf "%-22s %9s", id[1], id[2]
            for (k = 3; k <= 6; k++) {
                m = median(all[order[i], k]); ours = median(all[id[1], "fsdp.c", k])
                printf " %15s", id[2] == "fsdp.c" ? sprintf(k == 6 ? "%.0f" : "%.3f", m) \
                    : sprintf(k == 6 ? "%.0f (%.2f)" : "%.3f (%.2f)", m, m / ours)
            }
            print ""
        }
    }' "$table"
