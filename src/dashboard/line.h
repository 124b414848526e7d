/* Reads single values from JSON lines that other programs may have written. A value that is missing
 * or has another type is not an error: the caller gets a fallback. */
#pragma once
#include <stddef.h>

#include "src/base/json.h"

/* Return the number at `key`; `fallback` if there is none. The strings for NaN and
 * infinities in metrics files count as numbers. */
double fsdp_line_number(fsdp_json_node line, const char *key, double fallback);
/* Copy the string at `key` to `text` [size]; "" if there is none. A string that is too long is
 * truncated between two characters. */
void fsdp_line_text(fsdp_json_node line, const char *key, char *text, size_t size);
