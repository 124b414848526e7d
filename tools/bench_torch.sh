#!/bin/sh
# usage: tools/bench_torch.sh BUILD VENV: the same training steps in this library and in PyTorch's
# FSDP2 (gloo), eager and compiled, on two ranks of one thread each, alternately ROUNDS (3) times;
# then the medians, and the ratios of PyTorch's time and memory to ours. Both begin with the same
# weights and see the same tokens, so their losses must agree: the exit code is 1 if they do not.
#
# VENV is a virtual environment with torch and transformers. RUNS ("shape:dtype:batch:seq ...")
# and STEPS (6; the first is reported separately) choose the work, MODES ("eager compiled")
# PyTorch's side. Host memory is measured in one more run of each, of three steps, sampled by the
# same external program. JSON=1 prints only the JSON lines of both programs.
build=${1:-build}
venv=${2:-venv}
here=$(dirname "$0")
runs=${RUNS:-t5-small:bf16:4:512 llama-58m:bf16:4:512 bert-base-uncased:bf16:8:128 gpt2:bf16:4:256
    t5-small:fp32:4:512 llama-58m:fp32:4:512 bert-base-uncased:fp32:8:128}
modes=${MODES-eager compiled}

[ -x "$venv/bin/torchrun" ] || {
    echo "$venv/bin/torchrun: not there: 'python3 -m venv VENV; VENV/bin/pip install torch transformers'" >&2
    exit 1
}
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
touch "$dir/table"

say() { [ "${JSON:-0}" = 1 ] || printf "$@"; }
value() { printf '%s' "$line" | sed -n "s/.*\"$1\": \([-0-9.e+]*\).*/\1/p"; }
# failed: shows the end of the program's output, to which torchrun adds about twenty lines
failed() {
    tail -n 40 "$dir/err" >&2
    exit 1
}
# mfu: of $line, with this library's count of operations and its measured rate
mfu() { awk "BEGIN { printf \"%.3f\", $gflop / ($(value step_s) * $best) }"; }
row() { # PROGRAM: prints $line, and appends it for the medians
    [ "${JSON:-0}" != 1 ] || printf '%s\n' "$line"
    say '%-28s %5s %9s %8.3f %8.3f %6.3f %11.2f %11.5f %10.5f\n' "$run" $round "$1" "$(value step_s)" \
        "$(value processor)" "$(mfu)" "$(value first_step_after_s)" "$(value first_loss)" "$(value last_loss)"
    echo "$run $1 time $(value step_s) $(value processor) $(value first_step_after_s) $(mfu) $(value first_loss) $(value last_loss)" >>"$dir/table"
}
# The programs' commands, followed by STEPS and, for PyTorch, MODE; they print a JSON line.
ours() { "$build/fsdp" bench train --shape "$shape" $work --ranks 2 --steps "$1" --json 2>"$dir/err"; }
torch() {
    flag=
    [ "$2" = compiled ] && flag=--compile
    BENCH_START=$(date +%s.%N) OMP_NUM_THREADS=1 "$venv/bin/torchrun" --nproc_per_node=2 \
        "$here/bench_torch.py" --model "$dir/model" $work --steps "$1" $flag >"$dir/out" 2>"$dir/err" || return 1
    grep step_s "$dir/out"
}
# sampled PROGRAM COMMAND...: prints its peak memory
sampled() {
    program=$1
    shift
    "$venv/bin/python" "$here/hostmem.py" "$dir/mib" "$@" >"$dir/out" 2>"$dir/err" || failed
    echo "$run $program memory $(cat "$dir/mib")" >>"$dir/table"
}

say '%-28s %5s %9s %8s %8s %6s %11s %11s %10s\n' run round program step_s cpu_s mfu first_step first_loss last_loss
for run in $runs; do
    shape=${run%%:*}
    work=$(echo "$run" | awk -F: '{ print "--dtype", $2, "--batch", $3, "--seq", $4 }')
    work="$work --threads-per-rank 1"
    rm -rf "$dir/model"
    "$build/fsdp" bench train --shape "$shape" --ranks 2 --batch 1 --seq 8 --steps 2 --json \
        --save-model "$dir/model" >"$dir/out" 2>"$dir/err" || failed
    round=0
    while [ $round -lt "${ROUNDS:-3}" ]; do
        round=$((round + 1))
        line=$(ours "${STEPS:-6}") || failed
        gflop=$(value step_gflop) best=$(value gemm_gflops)
        row fsdp.c
        for mode in $modes; do
            line=$(torch "${STEPS:-6}" "$mode") || failed
            row "$mode"
        done
    done
    sampled fsdp.c "$build/fsdp" bench train --shape "$shape" $work --ranks 2 --steps 3 --json
    for mode in $modes; do
        flag=
        [ "$mode" = compiled ] && flag=--compile
        OMP_NUM_THREADS=1 sampled "$mode" "$venv/bin/torchrun" --nproc_per_node=2 \
            "$here/bench_torch.py" --model "$dir/model" $work --steps 3 $flag
    done
done

# Losses in fp32 must agree to 0.1 %, in bf16 to 2 %, because PyTorch's is a bfloat16, whose
# neighbors differ by 0.6 %.
summary=$(awk '
    function median(of,    n, v, i, j, t) {
        n = split(of, v, " ")
        for (i = 2; i <= n; i++)
            for (j = i; j > 1 && v[j - 1] + 0 > v[j] + 0; j--) { t = v[j]; v[j] = v[j - 1]; v[j - 1] = t }
        return n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2
    }
    function apart(a, b) { return a == b ? 0 : (a > b ? a - b : b - a) / (b > 0 ? b : 1) }
    function cell(m, ours, format) {
        return m == ours ? sprintf(format, m) : sprintf(format " (%.2f)", m, m / ours)
    }
    !(($1, $2) in seen) { order[++n] = $1 SUBSEP $2; seen[$1, $2] }
    $3 == "memory" { memory[$1, $2] = $4 }
    $3 == "time" {
        for (k = 4; k <= 7; k++) all[$1, $2, k] = all[$1, $2, k] " " $k
        first[$1, $2] = $8; last[$1, $2] = $9
    }
    END {
        printf "%-28s %9s %15s %15s %15s %15s %7s  %s\n", "run", "program", "step_s", "cpu_s",
            "first_step", "peak_MiB", "mfu", "losses"
        for (i = 1; i <= n; i++) {
            split(order[i], id, SUBSEP)
            ours = id[1] SUBSEP "fsdp.c"
            printf "%-28s %9s", id[1], id[2]
            for (k = 4; k <= 6; k++)
                printf " %15s", cell(median(all[order[i], k]), median(all[ours, k]), "%.3f")
            printf " %15s %7.3f", cell(memory[order[i]] + 0, memory[ours] + 0, "%.0f"), median(all[order[i], 7])
            difference = apart(first[order[i]], first[ours])
            later = apart(last[order[i]], last[ours])
            if (later > difference) difference = later
            bound = id[1] ~ /:(fp32|float32)/ ? 0.001 : 0.02
            if (difference > bound) wrong = 1
            printf "  %s\n", id[2] == "fsdp.c" ? "" : sprintf("%s to %.4f %%", \
                (difference > bound ? "DIFFER: agree only" : "agree"), 100 * difference)
        }
        exit wrong
    }' "$dir/table")
code=$?
say '\nmedians; PyTorch / fsdp.c in brackets\n'
say '%s\n' "$summary"
exit $code
