/* Writes a zip archive from its first byte to its last, record after record, in torch.save's
 * layout. Only the directory entries are kept in memory. */
#pragma once
#include <stdint.h>

#include "src/base/io.h"

typedef struct fsdp_zip_writer fsdp_zip_writer;

/* Begin an archive at the end of `file`, which must outlive the writer. All records are in the top
 * folder `folder`. */
FSDP_MUST_CHECK fsdp_status fsdp_zip_writer_create(fsdp_atomic_file *file, const char *folder,
                                                   fsdp_zip_writer **writer);
void fsdp_zip_writer_destroy(fsdp_zip_writer *writer); /* accepts NULL */
/* Begin a record of exactly `bytes` bytes. The record before it must be complete. */
FSDP_MUST_CHECK fsdp_status fsdp_zip_writer_begin(fsdp_zip_writer *writer, const char *name,
                                                  uint64_t bytes);
/* Append bytes to the current record, at most fsdp_zip_writer_remaining() of them. */
FSDP_MUST_CHECK fsdp_status fsdp_zip_writer_append(fsdp_zip_writer *writer, const void *data,
                                                   size_t bytes);
/* Return the number of bytes that the current record still lacks. */
uint64_t fsdp_zip_writer_remaining(const fsdp_zip_writer *writer);
/* Write a record with all of its data. */
FSDP_MUST_CHECK fsdp_status fsdp_zip_writer_put(fsdp_zip_writer *writer, const char *name,
                                                const void *data, size_t bytes);
/* Write the directory and the end of the archive. After this, the writer can only be destroyed. */
FSDP_MUST_CHECK fsdp_status fsdp_zip_writer_finish(fsdp_zip_writer *writer);
