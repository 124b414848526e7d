#!/bin/sh
# The same program on a processor without AVX-512, which valgrind emulates: an AVX-512 instruction
# ends the program with SIGILL, and programs see a processor of x86-64-v3.
# usage: FSDP_BUILD=build tests/cli/test_without_avx512.sh
. "$(dirname "$0")/lib.sh"
if sanitized; then
    skip without_avx512 'valgrind does not run sanitized programs'
elif ! command -v valgrind >/dev/null; then
    skip without_avx512 "no valgrind here; 'make deps-lint' installs it"
else
    plain() { capture valgrind -q --tool=none --trace-children=yes "$fsdp" "$@"; }
    plain --version
    expect the_processor_is_seen 0 '^cpu: x86-64-v3' out
    for isa in x86-64-v3 x86-64; do
        plain verify --isa $isa "$golden/gpt2_tiny"
        expect "numbers_of_${isa}_are_right" 0 '^verify: [0-9]+ compared, 0 failed' out
    done
    plain verify --isa x86-64-v4 "$golden/gpt2_tiny"
    expect avx512_is_refused 1 "this CPU lacks 'x86-64-v4'"
fi
tally
