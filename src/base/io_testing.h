/* File operations that fail on request; see Note [Hooks for tests] in alloc_testing.h. */
#pragma once
#include <stdbool.h>

typedef enum fsdp_io_call {
    FSDP_IO_WRITE,
    FSDP_IO_SYNC,
    FSDP_IO_LINK,
    /* the rename of the old directory after an exchange; other renames never fail on request */
    FSDP_IO_RENAME
} fsdp_io_call;

/* After this call, the n-th system call of kind `call` in this thread fails with `error`, an errno
 * value (n = 1: the next one). With n = 0, no call fails. */
void fsdp_io_fail_at(fsdp_io_call call, long n, int error);

/* Count a system call of kind `call`. If it must fail, set errno and return true. atomic_file.c and
 * atomic_directory.c call this function before such system calls. */
#ifdef FSDP_TESTING
bool fsdp_io_should_fail(fsdp_io_call call);
#else
static inline bool fsdp_io_should_fail(fsdp_io_call call)
{
    (void)call;
    return false;
}
#endif
