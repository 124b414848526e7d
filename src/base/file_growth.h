/* System calls that may make a file longer. They behave as the calls after which they are named,
 * except that a process whose files are limited in size (RLIMIT_FSIZE, `ulimit -f`) gets the error
 * EFBIG instead of the signal SIGXFSZ, which would end a program that does not handle it. Signal
 * handlers are not changed, because they belong to the program. Instead, the signal is blocked in
 * the calling thread during the call, and then discarded. Without a limit, the only cost is
 * getrlimit(). */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

ssize_t fsdp_growing_write(int fd, const void *bytes, size_t n);
ssize_t fsdp_growing_pwrite(int fd, const void *bytes, size_t n, off_t at);
int fsdp_growing_truncate(int fd, off_t bytes);
int fsdp_growing_fallocate(int fd, off_t at, off_t bytes);
/* As posix_fallocate(): return an errno value, or 0. */
int fsdp_growing_posix_fallocate(int fd, off_t at, off_t bytes);
