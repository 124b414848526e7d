/* Functions that read or write all the requested bytes of a file descriptor, and temporary files
 * without a name. */
#pragma once
#include <stdint.h>

#include <fsdp/base.h>

/* Write all `count` bytes at the position of the descriptor. `name` is the name of the file, for
 * the message of FSDP_ERR_IO. */
FSDP_MUST_CHECK fsdp_status fsdp_fd_write(int fd, const char *name, const void *bytes,
                                          size_t count);
/* Read up to `count` bytes at `offset`, and set *n to the number of bytes read. It is less than
 * `count` only at the end of the file. Several threads may do this at the same time. */
FSDP_MUST_CHECK fsdp_status fsdp_fd_read_at(int fd, const char *name, uint64_t offset, void *bytes,
                                            size_t count, size_t *n);

/* Create a file without a name in $TMPDIR or /tmp, for data that should not take memory, and set
 * *fd to its descriptor. The file disappears when it is closed. The message of FSDP_ERR_IO contains
 * the folder. */
FSDP_MUST_CHECK fsdp_status fsdp_scratch_file_create(int *fd);
/* The name of a file of fsdp_scratch_file_create() in error messages. */
extern const char fsdp_scratch_file_name[];
