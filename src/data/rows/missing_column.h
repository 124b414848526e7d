/* Makes the error for a column that a CSV, Arrow or JSON file lacks. The message lists the columns
 * of the file, and says which option selects another column. */
#pragma once
#include <fsdp/data.h>

#include "src/base/json.h"
#include "src/data/rows/text_columns.h"

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
/* Like fsdp_missing_column(), for a key that is missing in `row`. This is a row of JSON or, if
 * `arrow` is true, a row of an Arrow table. */
fsdp_status fsdp_missing_key(const fsdp_dataset_options *options, const char *name,
                             bool with_advice, fsdp_json_node row, bool arrow);

/* Like fsdp_missing_column(), for a column that the header of a CSV file lacks. */
fsdp_status fsdp_missing_header_column(const fsdp_dataset_options *options, const char *name,
                                       bool with_advice, const fsdp_csv_row *header);

/* Return the first column that the options name and that has() does not find, or NULL. Errors
 * report this column first. If a default column is missing, too, the cause may be the same: the
 * default of one column may depend on what the options say about another one. */
const char *fsdp_first_unknown_column(const fsdp_dataset_options *options, fsdp_has_column_fn *has,
                                      const void *row);
/* Like fsdp_first_unknown_column(), but if has() finds all columns that the options name, return
 * the first column of texts in `columns` that has() does not find. */
const char *fsdp_first_missing_text(const fsdp_dataset_options *options,
                                    const fsdp_text_columns *columns, fsdp_has_column_fn *has,
                                    const void *row);
