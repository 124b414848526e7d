/* The texts in the rows of a CSV, JSON or Arrow file. A row is found once, when the file is opened,
 * and any thread can then read it again by its offset and size in the file. For Arrow, the offset
 * is the index of the row, and the size is 0. */
#pragma once
#include <fsdp/data.h>

#include "src/base/json.h"
#include "src/data/csv/csv.h"
#include "src/data/rows/rows_form.h"

typedef struct fsdp_text_rows fsdp_text_rows;

/* Open a file, or for Arrow also a folder, and choose its columns. `titles` says whether CSV must
 * also have a column "title". */
FSDP_MUST_CHECK fsdp_status fsdp_text_rows_open(const char *path, fsdp_rows_form form, bool titles,
                                                const fsdp_dataset_options *options,
                                                fsdp_text_rows **out);
void fsdp_text_rows_close(fsdp_text_rows *rows); /* accepts NULL */

/* Find the next row, and set all fields of *row. After the last row, row->line is 0. */
FSDP_MUST_CHECK fsdp_status fsdp_text_rows_next(fsdp_text_rows *rows, fsdp_csv_row *row);
/* Prepend the path and the position of `row` to the message of `status`, unless `status` is
 * FSDP_OK. */
void fsdp_text_row_context(const fsdp_text_rows *rows, fsdp_status status, const fsdp_csv_row *row);
/* Like fsdp_text_row_context(), for a row that fsdp_text_rows_read() has read at `offset`. `line`
 * is the row's line. */
void fsdp_text_place_context(const fsdp_text_rows *rows, fsdp_status status, uint64_t offset,
                             int64_t line);
/* Read the row that fsdp_text_rows_next() found at `offset`, and that has `size` bytes. Only the
 * fields of *row are set, not its line, offset and size. Returns FSDP_ERR_FORMAT or FSDP_ERR_IO if
 * the file has changed. The message of FSDP_ERR_FORMAT contains neither path nor line. */
FSDP_MUST_CHECK fsdp_status fsdp_text_rows_read(const fsdp_text_rows *rows, uint64_t offset,
                                                size_t size, fsdp_csv_row *row);
/* Call this after the last fsdp_text_rows_next(). It frees what only that function needs. *note is
 * set to a text for fsdp_dataset_note(), or to NULL; the caller owns it. */
FSDP_MUST_CHECK fsdp_status fsdp_text_rows_end(fsdp_text_rows *rows,
                                               const fsdp_dataset_options *options, char **note);

/* Return true if rows have two texts. */
bool fsdp_text_rows_have_source(const fsdp_text_rows *rows);
/* Return the names of the classes, an array of texts, if the label is a ClassLabel of Arrow.
 * Otherwise the node has kind FSDP_JSON_NONE. Only for CLASSIFICATION. */
fsdp_json_node fsdp_text_rows_class_names(const fsdp_text_rows *rows);
/* Get the label of a row as text: the name of a class, a number, or a list of names or numbers in
 * brackets. Only for CLASSIFICATION. */
const char *fsdp_text_rows_label(const fsdp_text_rows *rows, const fsdp_csv_row *row);
/* Get a text of a row, which ends with a NUL and may be changed in place. The source is "" if rows
 * have only a target. */
char *fsdp_text_rows_source(const fsdp_text_rows *rows, const fsdp_csv_row *row, size_t *length);
char *fsdp_text_rows_target(const fsdp_text_rows *rows, const fsdp_csv_row *row, size_t *length);
char *fsdp_text_rows_title(const fsdp_text_rows *rows, const fsdp_csv_row *row, size_t *length);
/* Copy a text [length] as one that ends with a NUL. U+FFFD replaces each NUL in the text. Returns
 * NULL when out of memory. The caller owns the copy. */
char *fsdp_text_row_copy(const char *text, size_t length);
