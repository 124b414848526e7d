/* System calls that may make a file longer. Each function behaves like the system call in its name,
 * with one difference. If the size of the process's files is limited (RLIMIT_FSIZE, `ulimit -f`)
 * and the file would exceed the limit, the function fails with EFBIG, but the process does not get
 * the signal SIGXFSZ, which ends a program that does not handle it. Signal handlers are not
 * changed, because they belong to the program. Instead, the signal is blocked in the calling thread
 * during the call, and then discarded. If the size is not limited, the only cost is one call of
 * getrlimit(). */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

ssize_t fsdp_growing_write(int fd, const void *bytes, size_t n);
ssize_t fsdp_growing_pwrite(int fd, const void *bytes, size_t n, off_t at);
int fsdp_growing_truncate(int fd, off_t bytes);
int fsdp_growing_fallocate(int fd, off_t at, off_t bytes);
/* Like posix_fallocate(), return an errno value, or 0 if the call succeeds. */
int fsdp_growing_posix_fallocate(int fd, off_t at, off_t bytes);
