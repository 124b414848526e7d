/* System calls that may make a file longer. Each function behaves like the system call in its name,
 * with one difference. A process may have a limit for the size of its files (RLIMIT_FSIZE, `ulimit
 * -f`). If a file would exceed the limit, the system call fails with EFBIG and sends SIGXFSZ, which
 * ends a program that does not handle this signal. These functions fail with EFBIG, too, but the
 * process does not get SIGXFSZ. They do not change signal handlers, because the handlers belong to
 * the program. Instead, they block the signal in the calling thread during the call, and then
 * discard it. If there is no limit, the only cost is one call of getrlimit(). */
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
