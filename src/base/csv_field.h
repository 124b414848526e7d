/* Writes fields of CSV files. */
#pragma once
#include "src/base/str.h"

/* Append `text` as a field of a CSV line, as RFC 4180 defines it. Put a comma before the field
 * unless `first` is true. Put the field in quotes if it contains a comma, a quote or a line end, if
 * it is empty, or if it begins with a space. */
void fsdp_str_add_csv_field(fsdp_str *line, const char *text, bool first);
