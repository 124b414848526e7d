/* Chooses which columns of CSV, or keys of JSON, have the texts of a row. */
#pragma once
#include <fsdp/data.h>

#include "src/base/json.h"

typedef struct fsdp_text_columns {
    char *source, *target; /* owned; `source` is NULL if rows have only one text, the target.
                              CLASSIFICATION: the first and the second text of a pair, or NULL and
                              the only text */
    char *label;           /* owned; CLASSIFICATION: the column with the class; else NULL */
    /* SEQ2SEQ: true if the options do not name both columns, and the row has a pair of well-known
     * columns that is not the default pair. CLASSIFICATION: true if the options do not name a
     * column of texts, and the row has a pair of well-known columns. Otherwise false. */
    bool guessed;
} fsdp_text_columns;

/* Return true if a row, or the header of a file, has a text called `name`. */
typedef bool fsdp_has_column_fn(const void *row, const char *name);

/* Choose the columns, by the options and by what `has` says about `row`. `row` may lack the chosen
 * columns; the caller checks this. The caller frees *columns with fsdp_text_columns_fini(). */
FSDP_MUST_CHECK fsdp_status fsdp_text_columns_choose(const fsdp_dataset_options *options,
                                                     fsdp_has_column_fn *has, const void *row,
                                                     fsdp_text_columns *columns);
void fsdp_text_columns_fini(fsdp_text_columns *columns);

/* Return the value of the key `name` in a row of JSON. If there is no such key, `name` is a path:
 * "translation.en" is the key "en" in the object "translation". */
fsdp_json_node fsdp_text_find(fsdp_json_node row, const char *name);
