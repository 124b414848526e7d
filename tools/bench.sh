#!/bin/sh
# usage: tools/bench.sh BUILD: `fsdp bench train` for a table of shapes: speed, memory by purpose
# and where the time goes; then collectives compared with memcpy, matrix products and attention.
#   STEPS  timed steps of each run (5; the first is reported separately)
#   ALL=1  every shape in both dtypes on one and two ranks, collectives of 2, 4 and 8 ranks: half an
#          hour on two cores; the default takes less than ten minutes
#   RUNS   "shape:dtype:ranks[:batch:seq] ..." measures these, and neither collectives nor kernels
#   RANKS  numbers of ranks for the collectives, e.g. "2 4 8" (2)
#   JSON=1 prints only the JSON lines of the commands
build=${1:-build}
steps=${STEPS:-5}
shapes='t5-small t5-base llama-58m llama-134m bert-base-uncased gpt2'
ranks_of_collectives=${RANKS:-2}
runs=${RUNS:-}
if [ -z "$runs" ] && [ "${ALL:-0}" = 1 ]; then
    ranks_of_collectives=${RANKS:-2 4 8}
    for shape in $shapes; do
        for dtype in bf16 fp32; do runs="$runs $shape:$dtype:1 $shape:$dtype:2"; done
    done
elif [ -z "$runs" ]; then
    runs="t5-small:bf16:1 t5-small:bf16:2 t5-small:fp32:1 t5-small:fp32:2 t5-base:bf16:2
        llama-58m:bf16:2 llama-58m:fp32:2 llama-134m:bf16:2 bert-base-uncased:bf16:2
        bert-base-uncased:fp32:2 gpt2:bf16:2"
fi
lines=$(mktemp) || exit 1
trap 'rm -f "$lines"' EXIT

# From $line, the JSON of a run: a number, or a number of an object.
value() { printf '%s' "$line" | sed -n "s/.*\"$1\": \([-0-9.e+]*\).*/\1/p"; }
part() { printf '%s' "$line" | sed -n "s/.*\"$1\": {\([^}]*\)}.*/\1/p" | sed -n "s/.*\"$2\": \([-0-9.e+]*\).*/\1/p"; }
say() { [ "${JSON:-0}" = 1 ] || printf "$@"; }
# field N: of $run; batch and length are those of the bounds, unless it has others
field() {
    chosen=$(echo "$run" | cut -d: -f"$1")
    case $1:$chosen:$run in
    4::bert*) echo 8 ;;
    4::*) echo 4 ;;
    5::bert*) echo 128 ;;
    5::gpt2*) echo 256 ;;
    5::*) echo 512 ;;
    *) echo "$chosen" ;;
    esac
}

say 'speed: rows of seq tokens per rank (T5: and 128 of the target), one thread per rank\n'
say '%-18s %-5s %5s %5s %5s %9s %9s %9s %9s %6s %11s %7s\n' shape dtype ranks batch seq step_s tok/s \
    GFLOP/s best mfu first_step faults
for run in $runs; do
    line=$("$build/fsdp" bench train --shape "$(field 1)" --dtype "$(field 2)" --ranks "$(field 3)" \
        --threads-per-rank 1 --batch "$(field 4)" --seq "$(field 5)" --steps "$steps" \
        --breakdown --json) || exit 1
    if [ "${JSON:-0}" = 1 ]; then printf '%s\n' "$line"; fi
    printf '%s %s\n' "$run" "$line" >>"$lines"
    say '%-18s %-5s %5d %5d %5d %9.3f %9.0f %9.0f %9.0f %6.3f %11.2f %7.0f\n' \
        "$(field 1)" "$(field 2)" "$(field 3)" "$(field 4)" "$(field 5)" \
        "$(value step_s)" "$(value tok_per_s)" "$(value gflops)" "$(value gemm_gflops)" \
        "$(value mfu)" "$(value first_step_after_s)" "$(value page_faults_last_step)"
done

if [ "${JSON:-0}" != 1 ]; then
    echo
    echo 'memory in MiB: host is the largest sum of PSS of all processes; the rest is what tensors took at'
    echo "their purpose's own peak, summed over the ranks"
    printf '%-24s %9s %9s %9s %9s %11s %9s %9s\n' run host param grad optim activation comm data
    while read -r run line; do
        printf '%-24s %9.0f' "$run" "$(value peak_host_mib)"
        printf ' %9.0f %9.0f %9.0f %11.0f %9.1f %9.1f\n' "$(part peak_mib param)" \
            "$(part peak_mib grad)" "$(part peak_mib optim)" "$(part peak_mib activation)" \
            "$(part peak_mib comm)" "$(part peak_mib data)"
    done <"$lines"

    echo
    echo 'where the time goes: ms of a step by the clock, mean over ranks and the last steps'
    printf '%-24s %9s %9s %9s %9s %9s %9s %9s %9s %9s %10s\n' run step matmul attention other \
        optimizer sharding waiting data rest sharding_%
    while read -r run line; do
        printf '%-24s' "$run"
        for what in step matmul attention other_operations optimizer sharding_itself \
            waiting_for_peers data unexplained_rest; do
            printf ' %9.1f' "$(part where_ms $what)"
        done
        printf ' %10.2f\n' "$(value sharding_percent)"
    done <"$lines"
    echo 'sharding_%: phases, casts and sums over ranks, as a part of the processor time of a step'

    echo
    echo 'the dearest operations, ms of a step on rank 0 by the clock'
    while read -r run line; do
        printf '%-24s' "$run"
        printf '%s' "$line" | sed 's/.*"operations": \[\([^]]*\)\].*/\1/; s/}, {/\n/g' | head -n 6 |
            sed 's/.*"operation": "\([^"]*\)".*"ms": \([0-9.]*\), "processor.*/ \1 \2;/' | tr -d '\n'
        echo
    done <"$lines"
fi
[ -z "${RUNS:-}" ] || exit 0

say '\ncollectives\n'
for ranks in $ranks_of_collectives; do
    if [ "${JSON:-0}" = 1 ]; then
        "$build/fsdp" bench collectives --ranks "$ranks" --json || exit 1
    else
        "$build/fsdp" bench collectives --ranks "$ranks" || exit 1
        echo
    fi
done
[ "${JSON:-0}" = 1 ] && exit 0
echo 'matrix products and attention, one thread'
"$build/bench/kernels"
