/* A file whose records are texts: plain text, CSV or JSON. The file may be compressed. It is read
 * once, from the beginning to the end. */
#pragma once
#include "src/tokenize/source.h"

typedef struct fsdp_record_file fsdp_record_file;

/* Open a file. `kind` is FSDP_RECORD_DOCUMENT for plain text, FSDP_RECORD_PAIR for CSV, or
 * FSDP_RECORD_JSON. `rows` is borrowed until the file is closed. */
FSDP_MUST_CHECK fsdp_status fsdp_record_file_open(const char *path, fsdp_record_kind kind,
                                                  const fsdp_dataset_options *rows,
                                                  fsdp_record_file **out);
void fsdp_record_file_close(fsdp_record_file *file); /* accepts NULL */
/* Return the FSDP_USES_* flags (src/data/rows/rows_form.h) of the file's columns if the file is
 * CSV, or 0 if it is not. */
unsigned fsdp_record_file_uses(const fsdp_record_file *file);
/* Append the next record to the batch. If there are no more records, set *ended to true. */
FSDP_MUST_CHECK fsdp_status fsdp_record_file_next(fsdp_record_file *file, fsdp_record_batch *batch,
                                                  bool *ended);
/* Call this after the last record. If there is something to report about how the columns of a CSV
 * file were used, set *note to a message, which the caller owns. Otherwise, set *note to NULL. */
FSDP_MUST_CHECK fsdp_status fsdp_record_file_end(fsdp_record_file *file, char **note);
