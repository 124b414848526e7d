/* Allocations that fail on request.
 *
 * Note [Hooks for tests]. What only tests need from the library is declared in headers named
 * *_testing.h and defined in files named *_testing.c, which only the testing build contains
 * (build/libfsdp-testing.a and build/fsdp-testing, compiled with FSDP_TESTING). Where the library
 * calls a hook, it includes such a header, which replaces the call by a constant in the release.
 * These files are compiled twice and all others are shared by both builds, so no other header may
 * depend on FSDP_TESTING and the layout of every struct is the same in both. */
#pragma once
#include <stdbool.h>

/* The n-th allocation from now on (1: the next) of the calling thread fails; 0: none does. */
void fsdp_alloc_fail_at(long n);

/* For alloc.c: counts an allocation, and says whether it is the one that fails. */
#ifdef FSDP_TESTING
bool fsdp_alloc_should_fail(void);
#else
static inline bool fsdp_alloc_should_fail(void)
{
    return false;
}
#endif
