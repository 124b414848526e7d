/* The error for a column of CSV, Arrow or JSON that a file lacks: which columns it has, and which
 * option names another one. */
#pragma once
#include <fsdp/data.h>

#include "src/base/json.h"

/* The columns that a file has: [n] names, and what they are called in messages. */
typedef struct fsdp_columns_found {
    const char *const *names;
    size_t n;
    const char *kind;  /* "column" or "key" */
    const char *where; /* "the header" or "the row" */
} fsdp_columns_found;

/* Return FSDP_ERR_FORMAT for the missing column `name`. If the options name this column, the
 * message says which option does, and which column of the file has a similar name. Otherwise, if
 * with_advice is true, it says which options name the columns. */
fsdp_status fsdp_missing_column(const fsdp_dataset_options *options, const char *name,
                                bool with_advice, const fsdp_columns_found *found);
/* The same for a key that an object lacks: a row of JSON or, if `arrow` is true, of Arrow. */
fsdp_status fsdp_missing_key(const fsdp_dataset_options *options, const char *name,
                             bool with_advice, fsdp_json_node row, bool arrow);

/* Return the first column that the options name and that has() does not find, or NULL. Such a
 * column is a better reason for an error than a default that depends on it. */
typedef bool fsdp_finds_column_fn(const void *row, const char *name);
const char *fsdp_first_unknown_column(const fsdp_dataset_options *options,
                                      fsdp_finds_column_fn *has, const void *row);
