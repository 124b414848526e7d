#!/bin/sh
# usage: tests/cuda/check.sh BUILD SEEDS: run the tests of the check build BUILD: its conformance
# tests for each EMU_SEED below SEEDS, then the programs that test the emulator.
build=$1
seeds=$2
here=$(cd "$(dirname "$0")" && pwd)
case $build in /*) ;; *) build=$(pwd)/$build ;; esac
FSDP_TESTS=$(dirname "$here")
FSDP_BUILD=$build
export FSDP_TESTS FSDP_BUILD
log=$build/check.log
bad=0
# That the host does not read memory of a card is checked by `make test`, where a wrong access stops
# the program; to protect all pages around each command would take most of the time here.
EMU_PROTECT=${EMU_PROTECT:-0}
export EMU_PROTECT
EMU_SEED=0
while [ $EMU_SEED -lt "$seeds" ]; do
    export EMU_SEED
    if timeout 1200 "$build/tests/cuda/tests" >"$log" 2>&1; then
        echo "seed $EMU_SEED: $(tail -n 1 "$log")"
    else
        echo "seed $EMU_SEED: FAILED"
        grep -v '^ok' "$log" | tail -n 40
        bad=1
    fi
    EMU_SEED=$((EMU_SEED + 1))
done
unset EMU_SEED EMU_PROTECT
for script in instructions faults two_devices runtime; do
    if sh "$here/test_$script.sh" >"$log" 2>&1; then
        echo "$script: $(tail -n 1 "$log")"
    else
        echo "$script: FAILED"
        grep -v '^ok' "$log"
        bad=1
    fi
done
exit $bad
