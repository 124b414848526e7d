#!/bin/sh
# Each fault that tests/cuda/programs/faults.cu plants is found, and without the fault the same
# program passes.
# usage: FSDP_BUILD=build tests/cuda/test_faults.sh
. "$(dirname "$0")/lib.sh"
# What the values do not show is found by the other kinds of build only.
case $kind in
plain) missed="out_of_bounds shared_out_of_bounds blocks_write_one_place no_proxy_fence kernel_gets_host_pointer" ;;
asan) missed="blocks_write_one_place no_proxy_fence kernel_gets_host_pointer" ;;
*) missed= ;;
esac
# The programs do not free what they allocate.
ASAN_OPTIONS="detect_leaks=0:${ASAN_OPTIONS:-}"
EMU_LATE_MS=300
export ASAN_OPTIONS EMU_LATE_MS
for name in $("$programs/faults"); do
    capture "$programs/faults" "$name" ok
    expect "${name}_without_the_fault" 0
    capture "$programs/faults" "$name"
    case " $missed " in
    *" $name "*) continue ;;
    esac
    if [ $rc -ne 0 ]; then ok "${name}_is_found_by_$(one_line | grep -q . && echo a_report || echo values)"
    else bad "${name}_is_found" "exit code 0 in the $kind build"; fi
done
tally
