/* Token files, divided into rows of equal length. Each file is a shard. A row never spans two
 * shards. Tokens at the end of a shard that do not fill a row are not used. */
#pragma once
#include <fsdp/data.h>

#include "src/data/tokens/token_file.h"

typedef struct fsdp_token_shard {
    fsdp_token_file file;
    int64_t first_row; /* index of the shard's first row among all rows */
} fsdp_token_shard;

typedef struct fsdp_token_rows { /* {0}: not open */
    fsdp_token_shard *shards;    /* [len], owned */
    size_t len;
    int64_t rows;       /* number of rows */
    int64_t row_tokens; /* tokens from the beginning of a row to the beginning of the next row */
    int64_t beyond;     /* number of tokens after the end of a row that are read together with the
                         * row: 0 or 1 */
    int64_t vocab_size; /* all ids must be below this number */
} fsdp_token_rows;

/* Open the files that `path` refers to (fsdp_token_paths()). At most options->max_samples rows are
 * used. The caller must have set row_tokens, beyond and vocab_size of *rows; all other members must
 * be 0. If a file has at most 64 MiB, this function checks all its ids. In a larger file, the ids
 * of a row are checked when the row is read. Returns FSDP_ERR_FORMAT if there is no row. */
FSDP_MUST_CHECK fsdp_status fsdp_token_rows_open(const char *path,
                                                 const fsdp_dataset_options *options,
                                                 fsdp_token_rows *rows);
/* Divide one open file into rows, and use at most the first max_rows rows. Takes ownership of the
 * file, also on failure. *rows must be set as for fsdp_token_rows_open(). */
FSDP_MUST_CHECK fsdp_status fsdp_token_rows_of_file(fsdp_token_file *file, int64_t max_rows,
                                                    fsdp_token_rows *rows);
/* Return true if at least one of the files has no header, so that options->token_dtype says the
 * type of its tokens. */
bool fsdp_token_rows_have_plain(const fsdp_token_rows *rows);
/* Return the number of tokens at the ends of shards that are in no row. Shards that are not needed
 * for options->max_samples do not count. */
int64_t fsdp_token_rows_unused(const fsdp_token_rows *rows);
void fsdp_token_rows_close(fsdp_token_rows *rows); /* *rows is {0} afterwards */

/* Read row `index`, 0 <= index < rows, into `ids` [row_tokens + beyond]. */
FSDP_MUST_CHECK fsdp_status fsdp_token_rows_read(const fsdp_token_rows *rows, int64_t index,
                                                 int32_t *ids);
