#!/bin/sh
# The emulator's instructions give what the PTX ISA says, in any order of threads.
# usage: FSDP_BUILD=build tests/cuda/test_instructions.sh
. "$(dirname "$0")/lib.sh"
for EMU_SEED in 0 1; do
    export EMU_SEED
    capture "$programs/instructions"
    while read -r result name; do
        if [ "$result" = ok ]; then ok "${name}_seed_$EMU_SEED"; else bad "$name" "seed $EMU_SEED"; fi
    done <"$dir/out"
    expect "instructions_end_well_seed_$EMU_SEED" 0
done
tally
