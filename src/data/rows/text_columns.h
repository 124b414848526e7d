/* Chooses which columns of CSV, or keys of JSON, have the texts of a row. */
#pragma once
#include <fsdp/data.h>

#include "src/base/json.h"
#include "src/data/csv/csv.h"

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

/* The has() function for CSV. `header` is the header of the file, an fsdp_csv_row. */
bool fsdp_header_has(const void *header, const char *name);
/* The has() function for rows of JSON. `row` is an fsdp_json_node. Return true if the row has the
 * key `name`, whatever its value is (fsdp_text_find()). */
bool fsdp_row_has_key(const void *row, const char *name);

/* Choose the columns, by the options and by what `has` says about `row`. `row` may lack the chosen
 * columns; the caller checks this. The caller frees *columns with fsdp_text_columns_fini(). */
FSDP_MUST_CHECK fsdp_status fsdp_text_columns_choose(const fsdp_dataset_options *options,
                                                     fsdp_has_column_fn *has, const void *row,
                                                     fsdp_text_columns *columns);
void fsdp_text_columns_fini(fsdp_text_columns *columns);

/* Set *fits to true if a header of CSV has the columns of texts. These are the columns that
 * `options`, an fsdp_dataset_options, names; if it names none, they are well-known columns. This
 * function is an fsdp_csv_fits_fn. */
FSDP_MUST_CHECK fsdp_status fsdp_header_fits(const fsdp_csv_row *header, void *options, bool *fits);

/* Return the value of the key `name` in a row of JSON. If there is no such key, `name` is a path:
 * "translation.en" is the key "en" in the object "translation". */
fsdp_json_node fsdp_text_find(fsdp_json_node row, const char *name);
