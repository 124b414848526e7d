#!/bin/sh
# Programs that train, clip, step, save, load and offload, once more on a device that computes late
# (FSDP_DEVICE=fake; Note [Delays] in src/kernels/fake/stream.h): what nobody waits for is missed, and
# under ThreadSanitizer it is a data race.
# usage: FSDP_BUILD=build tests/tensor/test_on_fake.sh
build=${FSDP_BUILD:-build}
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
passed=0 failed=0 skipped=0
# The sum of field N of the programs' last lines: "3 passed, 0 failed, 1 skipped".
field() { grep -E '^[0-9]+ passed, [0-9]+ failed' "$log" | tail -n 1 | cut -d ' ' -f "$1"; }
for program in \
    autograd/test_ops_attention autograd/test_ops_loss autograd/test_stash autograd/test_tape \
    ckpt/test_async_save ckpt/test_load_module ckpt/test_state_dict dtensor/test_redistribute \
    fsdp/test_extension fsdp/test_frozen fsdp/test_halved fsdp/test_hsdp fsdp/test_kept_copies \
    fsdp/test_lifecycle fsdp/test_offload fsdp/test_parity fsdp/test_summon fsdp/test_to_empty \
    models/test_kv_cache models/test_t5_sharded optim/test_adafactor optim/test_clip_grad \
    optim/test_grad_scaler optim/test_optimizer train/test_classification; do
    FSDP_DEVICE=fake "$build/tests/$program" >"$log" 2>&1
    rc=$?
    p=$(field 1) f=$(field 3) s=$(field 5)
    passed=$((passed + ${p:-0})) failed=$((failed + ${f:-0})) skipped=$((skipped + ${s:-0}))
    [ $rc -eq 0 ] && continue
    [ "${f:-0}" -gt 0 ] || failed=$((failed + 1))
    echo "FAIL $program on the fake device: exit status $rc"
    tail -n 20 "$log" | sed 's/^/    /'
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
