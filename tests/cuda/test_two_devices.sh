#!/bin/sh
# A sharded training step on two devices has the bits of one device, and each of its four waits for
# an event is needed: without it, values are wrong in some order of ops, and the check build reports
# it in any order.
# usage: FSDP_BUILD=build tests/cuda/test_two_devices.sh
. "$(dirname "$0")/lib.sh"
seeds="0 1 2 3 4 5 6 7"
for EMU_SEED in 0 1 2; do
    export EMU_SEED
    capture "$programs/two_devices"
    expect "two_devices_equal_one_seed_$EMU_SEED" 0
done
[ "$kind" != check ] || seeds=0
# A program that ends early frees nothing.
ASAN_OPTIONS="detect_leaks=0:${ASAN_OPTIONS:-}"
export ASAN_OPTIONS
for wait in 1 2 3 4; do
    found=
    for EMU_SEED in $seeds; do
        export EMU_SEED
        capture "$programs/two_devices" $wait
        [ $rc -eq 0 ] || { found=$EMU_SEED; break; }
    done
    if [ -n "$found" ]; then ok "wait_${wait}_is_needed_seed_$found"
    else bad "wait_${wait}_is_needed" "no seed of $seeds shows it"; fi
done
tally
