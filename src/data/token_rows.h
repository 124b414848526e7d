/* Token files cut into rows of equal length, one after the other; no row crosses from one file into
 * the next, and what is left of a file is left out. */
#pragma once
#include <fsdp/data.h>

#include "src/data/token_file.h"

typedef struct fsdp_token_shard {
    fsdp_token_file file;
    int64_t first_row; /* of all */
} fsdp_token_shard;

typedef struct fsdp_token_rows { /* zero-filled: not opened */
    fsdp_token_shard *shards;    /* [len], owned */
    size_t len;
    int64_t rows;       /* how many there are */
    int64_t row_tokens; /* by which a row begins after the one before */
    int64_t beyond;     /* tokens that a row knows of the next one: 0 or 1 */
    int64_t vocab_size; /* ids are below it */
} fsdp_token_rows;

/* The files that `path` stands for (fsdp_token_paths()), up to options->max_samples rows.
 * row_tokens, beyond and vocab_size of *rows are set by the caller, the rest is zero. Files up to
 * 64 MiB are checked now. FSDP_ERR_FORMAT if there is no row. */
FSDP_MUST_CHECK fsdp_status fsdp_token_rows_open(const char *path,
                                                 const fsdp_dataset_options *options,
                                                 fsdp_token_rows *rows);
/* The same of one file that is open; takes it over, also on failure. */
FSDP_MUST_CHECK fsdp_status fsdp_token_rows_of_file(fsdp_token_file *file, int64_t max_rows,
                                                    fsdp_token_rows *rows);
void fsdp_token_rows_close(fsdp_token_rows *rows); /* all zero afterwards */

/* Row `index`, 0 <= index < rows: ids [row_tokens + beyond]. */
FSDP_MUST_CHECK fsdp_status fsdp_token_rows_read(const fsdp_token_rows *rows, int64_t index,
                                                 int32_t *ids);
