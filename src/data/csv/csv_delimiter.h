/* Opens a CSV file whose delimiter is not known. Spreadsheets often write semicolons or tabs into a
 * file whose name ends with .csv. */
#pragma once
#include "src/data/csv/csv.h"

/* Set *fits to true if a header has the columns that the caller needs. */
typedef fsdp_status fsdp_csv_fits_fn(const fsdp_csv_row *header, void *arg, bool *fits);

/* Open `input` with format->delimiter. If format->delimiter is 0, find the delimiter and set it.
 * The candidates are, in this order: the usual delimiter (a tab in .tsv and .tab, else a comma),
 * the other one of tab and comma, the semicolon, and the vertical bar.
 *
 * First, the candidates with which fits() accepts the header are considered. If there are none,
 * those candidates are considered that split the header into several fields, and most of the first
 * rows into the same number of fields as the header. If there are none of these either, the usual
 * delimiter is taken. If several candidates are considered, take the one with which the largest
 * part of the first rows has the same number of fields as the header. If several are equally good,
 * take the first in the order above.
 *
 * Set *found to true if the delimiter is not the usual one and was not given. `input` is borrowed
 * until fsdp_csv_close(), and must allow fsdp_input_rewind(). */
FSDP_MUST_CHECK fsdp_status fsdp_csv_open_fitting(fsdp_input *input, const char *path,
                                                  fsdp_csv_format *format, fsdp_csv_fits_fn *fits,
                                                  void *arg, bool *found, fsdp_csv **out);
/* Return the name of a delimiter, in the plural, such as "semicolons". If the delimiter has no
 * usual name, its name is the character in quotes, which is written to `buffer`. */
const char *fsdp_csv_delimiter_name(char delimiter, char buffer[8]);
