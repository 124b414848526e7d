/* Fields of CSV files that are written. */
#pragma once
#include "src/base/str.h"

/* Append a field as RFC 4180 has it. It is in quotes if it contains a comma, a quote or a line end,
 * if it is empty, or if it begins with a space. A comma comes first unless `first` is true. */
void fsdp_str_add_csv_field(fsdp_str *line, const char *text, bool first);
