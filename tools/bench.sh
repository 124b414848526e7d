#!/bin/sh
# usage: tools/bench.sh BUILD: `fsdp bench train` for a table of shapes, then matrix products and
# attention. STEPS (6) timed steps each; RUNS="shape:dtype:ranks[:batch:seq] ..." measures others.
build=${1:-build}
steps=${STEPS:-6}
runs=${RUNS:-t5-small:bf16:1 t5-small:bf16:2 t5-small:fp32:1 t5-small:fp32:2 llama-58m:bf16:2
    gpt2:bf16:2:4:256 bert-base-uncased:bf16:2:8:128}

value() { printf '%s' "$line" | sed -n "s/.*\"$1\": \([0-9.]*\).*/\1/p"; }

echo "training: rows of seq tokens per rank (T5: and 128 of the target), one thread per rank"
printf '%-17s %-5s %5s %5s %5s %9s %9s %11s %10s %8s %6s\n' \
    shape dtype ranks batch seq step_s tok/s first_step peak_MiB GFLOP/s mfu
for run in $runs; do
    shape=$(echo "$run" | cut -d: -f1) dtype=$(echo "$run" | cut -d: -f2)
    ranks=$(echo "$run" | cut -d: -f3) batch=$(echo "$run" | cut -d: -f4)
    seq=$(echo "$run" | cut -d: -f5)
    line=$("$build/fsdp" bench train --shape "$shape" --dtype "$dtype" --ranks "$ranks" \
        --threads-per-rank 1 --batch "${batch:-4}" --seq "${seq:-512}" --steps "$steps" --json) || exit 1
    printf '%-17s %-5s %5d %5d %5d %9.3f %9.0f %11.2f %10.0f %8.0f %6.2f\n' \
        "$shape" "$dtype" "$ranks" "${batch:-4}" "${seq:-512}" \
        "$(value step_s)" "$(value tok_per_s)" "$(value first_step_after_s)" \
        "$(value peak_host_mib)" "$(value gemm_gflops)" "$(value mfu)"
done
echo "first_step: seconds from the start of the process to the end of the first step"

echo
echo "matrix products and attention, one thread"
"$build/bench/kernels"
