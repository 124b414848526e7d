/* Reads single values of lines that other programs may have written: what is missing or has another
 * type gets the fallback, without an error. */
#pragma once
#include <stddef.h>

#include "src/base/json.h"

/* Return the number that `key` has; `fallback` if it has none. The strings for NaN and infinities
 * that metrics files have are numbers. */
double fsdp_line_number(fsdp_json_node line, const char *key, double fallback);
/* Copy the string that `key` has to `text` [size], truncated between characters; "" if it has none.
 */
void fsdp_line_text(fsdp_json_node line, const char *key, char *text, size_t size);
