/* The bytes of a file of data. A file that is compressed with gzip or zstd is decompressed while it
 * is read. The first bytes of the file, not its name, decide whether it is compressed. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include <fsdp/base.h>

typedef struct fsdp_input fsdp_input;

/* Return an error if the path is "-", which means standard input, or refers to a pipe, a terminal
 * or another file that can be read only once. The message says how to make a file of it. A path
 * that does not exist is not an error. */
FSDP_MUST_CHECK fsdp_status fsdp_input_check_kept(const char *path);
/* Open a file, to be read from the beginning to the end. Returns FSDP_ERR_NOT_FOUND or FSDP_ERR_IO
 * with the system's message, FSDP_ERR_INVALID for a folder, a pipe or a terminal, and
 * FSDP_ERR_UNSUPPORTED if the file is compressed and this build lacks the library. Messages contain
 * the path. */
FSDP_MUST_CHECK fsdp_status fsdp_input_open(const char *path, fsdp_input **out);
/* Like fsdp_input_open(), for a path that is opened only once. It may also be a pipe or a terminal,
 * such as /dev/stdin or the shell's <(command). The path "-" means standard input. A stream is read
 * to its end, into a file without a name in $TMPDIR or /tmp. */
FSDP_MUST_CHECK fsdp_status fsdp_input_open_once(const char *path, fsdp_input **out);
/* Like fsdp_input_open(), but fsdp_input_read_at() may also be used. A compressed file is therefore
 * decompressed at once, into a file without a name in $TMPDIR or /tmp. */
FSDP_MUST_CHECK fsdp_status fsdp_input_open_seekable(const char *path, fsdp_input **out);
/* Make the input usable with fsdp_input_read_at(), as fsdp_input_open_seekable() does. Nothing must
 * have been read from the input before. */
FSDP_MUST_CHECK fsdp_status fsdp_input_make_seekable(fsdp_input *input);
void fsdp_input_close(fsdp_input *input); /* accepts NULL */

/* Read the next `count` bytes, or all that are left. Set *n to the number of bytes, which is less
 * than `count` only at the end. Returns FSDP_ERR_FORMAT if compressed data are damaged or end
 * early. */
FSDP_MUST_CHECK fsdp_status fsdp_input_read(fsdp_input *input, char *bytes, size_t count,
                                            size_t *n);
/* Go back to the first byte. */
FSDP_MUST_CHECK fsdp_status fsdp_input_rewind(fsdp_input *input);
/* Read the `count` bytes at `offset`, all of which must exist. Any thread may call this. */
FSDP_MUST_CHECK fsdp_status fsdp_input_read_at(const fsdp_input *input, uint64_t offset,
                                               char *bytes, size_t count);
