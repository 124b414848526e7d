/* File operations that fail on request; see Note [Hooks for tests] in alloc_testing.h. */
#pragma once
#include <stdbool.h>

typedef enum fsdp_io_call {
    FSDP_IO_WRITE,
    FSDP_IO_SYNC,
    FSDP_IO_LINK,
    FSDP_IO_RENAME /* only the rename of the old directory after an exchange, no other rename */
} fsdp_io_call;

/* Make the n-th system call of kind `call` that this thread makes after this call fail with
 * `error`, an errno value (n = 1: the next one). With n = 0, no call fails. */
void fsdp_io_fail_at(fsdp_io_call call, long n, int error);

/* Called by atomic_file.c and atomic_directory.c: counts a call. Returns true and sets errno if the
 * call must fail. */
#ifdef FSDP_TESTING
bool fsdp_io_should_fail(fsdp_io_call call);
#else
static inline bool fsdp_io_should_fail(fsdp_io_call call)
{
    (void)call;
    return false;
}
#endif
