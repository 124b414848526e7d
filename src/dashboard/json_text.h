/* Writes JSON text directly, since an answer has tens of thousands of numbers. */
#pragma once
#include "src/base/str.h"

/* Append a number with 7 significant digits; null if it is not finite. Whole numbers up to 2^53
 * have all digits. */
void fsdp_json_text_number(fsdp_str *to, double value);
/* Append a string of `n` bytes. Bytes that are 0 or not UTF-8 become
 * U+FFFD. The characters < > & and
 * the line separators of JavaScript are escaped, so that the text is harmless even in a page. */
void fsdp_json_text_stringn(fsdp_str *to, const char *text, size_t n);
void fsdp_json_text_string(fsdp_str *to, const char *text); /* null if `text` is NULL */
/* Append "key": with a comma before it unless it is the first in its object. */
void fsdp_json_text_key(fsdp_str *to, const char *key);
/* Append a comma unless `to` ends with an opening bracket or brace. */
void fsdp_json_text_next(fsdp_str *to);
