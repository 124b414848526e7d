#!/bin/sh
# usage: tools/bench_torch.sh BUILD [TORCHRUN]: the same training step in this library and in
# PyTorch, two ranks of one thread each, in turn ROUNDS (3) times, and the ratio of each pair.
#
# Alternating pairs tell something also on a machine that others use. TORCHRUN (torchrun) needs
# torch and transformers; DTYPE (bf16), SHAPE (t5-small) and STEPS (4) choose the work.
build=${1:-build}
torchrun=${2:-torchrun}
here=$(dirname "$0")
work="--shape ${SHAPE:-t5-small} --dtype ${DTYPE:-bf16} --batch 4 --seq 512 --target 128"
work="$work --steps ${STEPS:-4} --threads-per-rank 1"

value() { printf '%s' "$line" | sed -n "s/.*\"$1\": \([0-9.]*\).*/\1/p"; }

command -v "$torchrun" >/dev/null || { echo "$torchrun: not found" >&2; exit 1; }
printf '%-6s %12s %12s %7s %16s %16s\n' round fsdp_step_s torch_step_s ratio fsdp_first_step \
    torch_first_step
round=0
while [ $round -lt "${ROUNDS:-3}" ]; do
    round=$((round + 1))
    line=$("$build/fsdp" bench train $work --ranks 2 --json) || exit 1
    ours=$(value step_s) our_first=$(value first_step_after_s)
    line=$(OMP_NUM_THREADS=1 "$torchrun" --nproc_per_node=2 "$here/bench_torch.py" $work \
        2>/dev/null | grep step_s) || exit 1
    theirs=$(value step_s)
    printf '%-6s %12s %12s %7s %16s %16s\n' $round "$ours" "$theirs" \
        "$(awk "BEGIN { printf \"%.2f\", $theirs / $ours }")" "$our_first" \
        "$(value first_step_after_s)"
done
