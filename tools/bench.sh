#!/bin/sh
# usage: tools/bench.sh BUILD: `fsdp bench train` for a table of shapes, then matrix products and
# attention. STEPS (6) timed steps each; RUNS="shape:dtype:ranks ..." measures others.
build=${1:-build}
steps=${STEPS:-6}
runs=${RUNS:-t5-small:bf16:1 t5-small:bf16:2 t5-small:fp32:1 t5-small:fp32:2}

value() { printf '%s' "$line" | sed -n "s/.*\"$1\": \([0-9.]*\).*/\1/p"; }

echo "training: batch 4 x (512 source + 128 target tokens) per rank, one thread per rank"
printf '%-14s %-5s %5s %9s %9s %11s %10s %8s %6s\n' \
    shape dtype ranks step_s tok/s first_step peak_MiB GFLOP/s mfu
for run in $runs; do
    shape=$(echo "$run" | cut -d: -f1) dtype=$(echo "$run" | cut -d: -f2)
    ranks=$(echo "$run" | cut -d: -f3)
    line=$("$build/fsdp" bench train --shape "$shape" --dtype "$dtype" --ranks "$ranks" \
        --threads-per-rank 1 --batch 4 --seq 512 --target 128 --steps "$steps" --json) || exit 1
    printf '%-14s %-5s %5d %9.3f %9.0f %11.2f %10.0f %8.0f %6.2f\n' "$shape" "$dtype" "$ranks" \
        "$(value step_s)" "$(value tok_per_s)" "$(value first_step_after_s)" \
        "$(value peak_host_mib)" "$(value gemm_gflops)" "$(value mfu)"
done
echo "first_step: seconds from the start of the process to the end of the first step"

echo
echo "matrix products and attention, one thread"
"$build/bench/kernels"
