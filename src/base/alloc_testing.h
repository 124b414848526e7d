/* Allocations that fail on request.
 *
 * Note [Hooks for tests]. Library code that only tests need is declared in headers named
 * *_testing.h and defined in files named *_testing.c. Only the testing build
 * (build/libfsdp-testing.a and build/fsdp-testing, compiled with FSDP_TESTING) contains these
 * files. A library file that calls a hook includes such a header. In the release build, the header
 * itself defines the hook, as a function that returns a constant. Files that call hooks are
 * compiled once for each of the two builds. All other files are compiled once, and both builds use
 * them. Therefore no other header may depend on FSDP_TESTING, and the layout of every struct is the
 * same in both builds. */
#pragma once
#include <stdbool.h>

/* Let the n-th allocation that the calling thread makes after this call fail. n = 1 is the next
 * allocation. With n = 0, no allocation fails. */
void fsdp_alloc_fail_at(long n);

/* Count an allocation of the calling thread, and return true if it must fail. alloc.c calls this
 * for every allocation. */
#ifdef FSDP_TESTING
bool fsdp_alloc_should_fail(void);
#else
static inline bool fsdp_alloc_should_fail(void)
{
    return false;
}
#endif
