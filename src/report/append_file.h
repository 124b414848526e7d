/* Files to which complete records are appended while a run goes on. Each record is written with one
 * write(2) to a descriptor in append mode. So no complete record is still in a buffer when the
 * process is killed, and a full disk leaves the file as it was before the record. */
#pragma once
#include <stddef.h>

#include <fsdp/base.h>

/* Append `bytes` [n] to the file `path`, which is open as `fd`. On failure, a regular file is
 * truncated to its previous length. */
FSDP_MUST_CHECK fsdp_status fsdp_append_bytes(int fd, const char *path, const void *bytes,
                                              size_t n);
