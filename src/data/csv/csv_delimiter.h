/* Opens a CSV file whose delimiter is not known. Spreadsheets often write semicolons or tabs into a
 * file whose name ends with .csv. */
#pragma once
#include "src/data/csv/csv.h"

/* Set *fits to true if a header has the columns that the caller needs. */
typedef fsdp_status fsdp_csv_fits_fn(const fsdp_csv_row *header, void *arg, bool *fits);

/* Open `input` with format->delimiter. If that is 0, find the delimiter, and set format->delimiter
 * to it. The candidates are the usual delimiter, comma, tab, semicolon and vertical bar, in this
 * order. The usual delimiter is a tab for .tsv and .tab, and otherwise a comma.
 *
 * The first candidate with which fits() accepts the header is taken. If there is none, the
 * candidates are compared by the first rows of the file: a candidate must split the header into
 * several fields, and more than half of the rows into the same number of fields. The candidate for
 * which most rows have this number of fields is taken; if several are equal, the first one. If no
 * candidate qualifies, the usual delimiter is taken.
 *
 * *found is set to true if format->delimiter was 0 and the delimiter is not the usual one. `input`
 * is borrowed until fsdp_csv_close(), and must allow fsdp_input_rewind(). */
FSDP_MUST_CHECK fsdp_status fsdp_csv_open_fitting(fsdp_input *input, const char *path,
                                                  fsdp_csv_format *format, fsdp_csv_fits_fn *fits,
                                                  void *arg, bool *found, fsdp_csv **out);
/* Return the name of a delimiter, in the plural, such as "semicolons". It is in `buffer` if the
 * delimiter has no usual name. */
const char *fsdp_csv_delimiter_name(char delimiter, char buffer[8]);
