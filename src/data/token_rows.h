/* Token files divided into consecutive rows of equal length. No row crosses from one file into the
 * next; the rest of a file is not used. */
#pragma once
#include <fsdp/data.h>

#include "src/data/token_file.h"

typedef struct fsdp_token_shard {
    fsdp_token_file file;
    int64_t first_row; /* number of its first row among all rows */
} fsdp_token_shard;

typedef struct fsdp_token_rows { /* zero-filled: not opened */
    fsdp_token_shard *shards;    /* [len], owned */
    size_t len;
    int64_t rows;       /* number of rows */
    int64_t row_tokens; /* distance in tokens between the beginnings of rows */
    int64_t beyond;     /* tokens of the next row that a row also reads: 0 or 1 */
    int64_t vocab_size; /* ids must be below it */
} fsdp_token_rows;

/* Open the files that `path` refers to (fsdp_token_paths()), up to options->max_samples rows. The
 * caller has set row_tokens, beyond and vocab_size of *rows; the rest is zero. Files up to 64 MiB
 * are checked now. FSDP_ERR_FORMAT if there is no row. */
FSDP_MUST_CHECK fsdp_status fsdp_token_rows_open(const char *path,
                                                 const fsdp_dataset_options *options,
                                                 fsdp_token_rows *rows);
/* Use one open file, whose ownership is taken, also on failure. */
FSDP_MUST_CHECK fsdp_status fsdp_token_rows_of_file(fsdp_token_file *file, int64_t max_rows,
                                                    fsdp_token_rows *rows);
void fsdp_token_rows_close(fsdp_token_rows *rows); /* all zero afterwards */

/* Read row `index`, 0 <= index < rows: ids [row_tokens + beyond]. */
FSDP_MUST_CHECK fsdp_status fsdp_token_rows_read(const fsdp_token_rows *rows, int64_t index,
                                                 int32_t *ids);
