#!/bin/sh
# The installed library and the installed command contain no hooks for tests (Note [Hooks for
# tests] in src/base/alloc_testing.h), nor anything else that only the testing build has.
# usage: FSDP_BUILD=build tests/release/test_symbols.sh
. "$(dirname "$0")/../cli/lib.sh"
if [ ! -e "$build/libfsdp-testing.a" ]; then
    skip test_symbols "a sanitized build is a testing build as a whole"
    tally
    exit
fi

# What headers *_testing.h declare and objects of *_testing.c define.
find "$root/src" -name '*_testing.h' -exec cat {} + | sed -n 's/^[a-z].*[ *]\(fsdp_[a-z0-9_]*\)\((.*\|;\)$/\1/p' >declared
find "$build/src" -name '*_testing.testing.o' -exec nm -g --defined-only {} + 2>/dev/null |
    awk 'NF == 3 { print $3 }' >defined
sort -u declared defined | grep -v '^__' >hooks
nm "$build/libfsdp-testing.a" 2>nm_err | awk 'NF == 3 { print $3 }' | sort -u >testing_symbols
for known in fsdp_alloc_fail_at fsdp_io_fail_at fsdp_group_set_delay fsdp_group_test_skip_writer_wait \
    fsdp_group_set_network fsdp_device_fake fsdp_kernels_fake fsdp_cpu_products_count; do
    check "the_testing_library_has_$known" grep -qx "$known" hooks
done
# The pattern also matches types. They have no symbols; all other names must be in the testing
# build.
comm -12 hooks testing_symbols >there
if [ "$(wc -l <there)" -ge 25 ]; then ok the_testing_library_has_the_hooks
else bad the_testing_library_has_the_hooks "$(wc -l <there) symbols"; fi

# has_none NAME FILE [NM OPTION]: checks that FILE defines none of them
has_none() {
    nm ${3:-} "$2" 2>nm_err | awk '{ print $NF }' | sort -u >symbols
    found=$({ comm -12 hooks symbols; grep -E '_testing|[_.]fake(_|$)|^fake_' symbols; } | head -n 5 | tr '\n' ' ')
    if ! grep -q fsdp_init_process_group symbols; then bad "$1" "no symbols of the library in $2"
    elif [ -n "$found" ]; then bad "$1" "$2 has $found"
    else ok "$1"; fi
}
has_none libfsdp_a_has_no_hook "$build/libfsdp.a"
has_none the_command_has_no_hook "$build/fsdp"
if [ -e "$build/libfsdp.so" ]; then
    has_none libfsdp_so_has_no_hook "$build/libfsdp.so"
    has_none libfsdp_so_exports_no_hook "$build/libfsdp.so" -D
fi
for file in libfsdp.a fsdp; do
    if grep -q FSDP_FAKE_ "$build/$file"; then bad "${file}_reads_no_variable_of_hooks" "it names FSDP_FAKE_..."
    else ok "${file}_reads_no_variable_of_hooks"; fi
done
tally
