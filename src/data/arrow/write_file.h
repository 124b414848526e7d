/* Writes an Arrow file: a stream with a schema, batches, and the marker at its end. */
#pragma once
#include "src/base/io.h"
#include "src/data/arrow/write_column.h"

typedef struct fsdp_arrow_stream fsdp_arrow_stream;

/* Begin a file with the schema of `fields`. Error messages contain the path. `fields` and
 * `huggingface` are as in fsdp_arrow_schema_write(). */
FSDP_MUST_CHECK fsdp_status fsdp_arrow_stream_begin(const char *path,
                                                    const fsdp_arrow_field *fields, size_t n_fields,
                                                    const char *huggingface,
                                                    fsdp_arrow_stream **out);
/* Append a batch with the rows of all columns. `columns` must be those of the schema. The contents
 * of the batch are added to the hash *hash. */
FSDP_MUST_CHECK fsdp_status fsdp_arrow_stream_append(fsdp_arrow_stream *stream,
                                                     const fsdp_arrow_pending *columns,
                                                     size_t n_columns, uint64_t *hash);
/* Return the size of the file so far, in bytes. */
uint64_t fsdp_arrow_stream_bytes(const fsdp_arrow_stream *stream);
/* Append the marker at the end, and close the file. The stream is freed, also on failure. */
FSDP_MUST_CHECK fsdp_status fsdp_arrow_stream_commit(fsdp_arrow_stream *stream);
void fsdp_arrow_stream_discard(fsdp_arrow_stream *stream); /* accepts NULL */
