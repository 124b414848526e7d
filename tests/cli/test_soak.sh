#!/bin/sh
# A short run of tools/soak.sh: trainings interrupted in each of its ways continue with the same
# numbers. `make soak` is the long one.
# usage: FSDP_BUILD=build tests/cli/test_soak.sh
. "$(dirname "$0")/lib.sh"

SOAK_RUNS=${SOAK_RUNS:-7} SOAK_SEED=${SOAK_SEED:-1} SOAK_STEPS=${SOAK_STEPS:-12} \
    sh "$root/tools/soak.sh" "$build" >out 2>&1
rc=$?
sed -n 's/^left out: /skip /p' out
if [ $rc -eq 0 ] && shows '^failures +0$'; then ok broken_trainings_go_on; else
    cat out
    bad broken_trainings_go_on "exit code $rc"
fi

tally
