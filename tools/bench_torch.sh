#!/bin/sh
# usage: tools/bench_torch.sh BUILD [TORCHRUN]: the same training step in this library and in
# PyTorch, two ranks of one thread each, in turn ROUNDS (3) times, and the ratio of each pair.
#
# Alternating pairs tell something also on a machine that others use, and so does processor time
# (cpu: rank 0's, per step). TORCHRUN (torchrun) needs torch and transformers; DTYPE (bf16), SHAPE
# (t5-small) and STEPS (4) choose the work.
build=${1:-build}
torchrun=${2:-torchrun}
here=$(dirname "$0")
work="--shape ${SHAPE:-t5-small} --dtype ${DTYPE:-bf16} --batch 4 --seq 512 --target 128"
work="$work --steps ${STEPS:-4} --threads-per-rank 1"

value() { printf '%s' "$line" | sed -n "s/.*\"$1\": \([0-9.]*\).*/\1/p"; }

command -v "$torchrun" >/dev/null || { echo "$torchrun: not found" >&2; exit 1; }
ratio() { awk "BEGIN { printf \"%.2f\", $2 / $1 }"; }

printf '%-6s %8s %8s %6s %8s %8s %6s %11s %11s\n' round fsdp_s torch_s ratio fsdp_cpu torch_cpu \
    ratio fsdp_first torch_first
round=0
while [ $round -lt "${ROUNDS:-3}" ]; do
    round=$((round + 1))
    line=$("$build/fsdp" bench train $work --ranks 2 --json) || exit 1
    our_step=$(value step_s) our_cpu=$(value processor) our_first=$(value first_step_after_s)
    line=$(OMP_NUM_THREADS=1 "$torchrun" --nproc_per_node=2 "$here/bench_torch.py" $work \
        2>/dev/null | grep step_s) || exit 1
    step=$(value step_s) cpu=$(value processor)
    printf '%-6s %8s %8s %6s %8s %8s %6s %11s %11s\n' $round "$our_step" "$step" \
        "$(ratio "$our_step" "$step")" "$our_cpu" "$cpu" "$(ratio "$our_cpu" "$cpu")" \
        "$our_first" "$(value first_step_after_s)"
done
