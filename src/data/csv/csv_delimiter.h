/* Opens CSV whose delimiter is not known: exports of spreadsheets separate fields by semicolons or
 * tabs, whatever the name of the file says. */
#pragma once
#include "src/data/csv/csv.h"

/* Set *fits to true if a header has the columns that the caller needs. */
typedef fsdp_status fsdp_csv_fits_fn(const fsdp_csv_row *header, void *arg, bool *fits);

/* Open `input` with format->delimiter. If that is 0, find the delimiter and set it: it is the first
 * of the usual one (a tab in .tsv and .tab, else a comma), comma, tab, semicolon and vertical bar
 * with which fits() accepts the header. If there is none, it is the one that splits the header into
 * several fields, and most of the first rows into as many; of several, the one that fits most rows,
 * and the usual one before others. If there is none of these either, it is the usual one. *found is
 * set to true if the delimiter is not the usual one and was not given. `input` is borrowed until
 * fsdp_csv_close(), and must allow fsdp_input_rewind(). */
FSDP_MUST_CHECK fsdp_status fsdp_csv_open_fitting(fsdp_input *input, const char *path,
                                                  fsdp_csv_format *format, fsdp_csv_fits_fn *fits,
                                                  void *arg, bool *found, fsdp_csv **out);
/* Return the name of a delimiter, in the plural, such as "semicolons". It is in `buffer` if the
 * delimiter has no usual name. */
const char *fsdp_csv_delimiter_name(char delimiter, char buffer[8]);
