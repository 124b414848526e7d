#!/bin/sh
# The emulated runtime: virtual memory, errors, memory shared by processes.
# usage: FSDP_BUILD=build tests/cuda/test_runtime.sh
. "$(dirname "$0")/lib.sh"
for name in $("$programs/runtime"); do
    case $name in
    out_of_memory) EMU_MEMORY_MB=16 && export EMU_MEMORY_MB ;;
    *) unset EMU_MEMORY_MB ;;
    esac
    # Its copy must not have begun when cudaStreamQuery() asks.
    EMU_LATE_MS=300 ASAN_OPTIONS="detect_leaks=0:${ASAN_OPTIONS:-}" capture "$programs/runtime" "$name"
    case $name in
    fault_*)
        if [ $rc -ne 0 ] && says '== emulator: .*(memset: |HOST|host writes)'; then ok "${name}_is_found"
        else bad "${name}_is_found" "exit code $rc"; fi ;;
    *) expect "$name" 0 ;;
    esac
done
EMU_FAIL_AFTER=2 ASAN_OPTIONS="detect_leaks=0:${ASAN_OPTIONS:-}" capture "$programs/broken"
expect a_failed_kernel_breaks_the_context 0
capture "$programs/processes"
expect a_forked_process_shares_memory 0
capture "$programs/processes" exec
expect a_started_process_shares_memory 0
tally
