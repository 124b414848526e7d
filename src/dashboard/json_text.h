/* Writes JSON text directly, since an answer has tens of thousands of numbers. */
#pragma once
#include "src/base/str.h"

/* Append a number; null if it is not finite. Whole numbers up to 2^53 get all digits, other numbers
 * from 10^7 to 10^15 get 3 decimals, and all remaining numbers get 7 significant digits. */
void fsdp_json_text_number(fsdp_str *to, double value);
/* Append a string of `n` bytes. Bytes that are 0 or not UTF-8 become U+FFFD. The characters < > &
 * and JavaScript's line separators are escaped, so that the text is harmless even inside HTML. */
void fsdp_json_text_stringn(fsdp_str *to, const char *text, size_t n);
void fsdp_json_text_string(fsdp_str *to, const char *text); /* null if `text` is NULL */
/* Append `key` in quotes and a colon. If it is not the first key of its object, append a comma
 * before it. */
void fsdp_json_text_key(fsdp_str *to, const char *key);
/* Append a comma unless `to` ends with an opening bracket or brace. */
void fsdp_json_text_next(fsdp_str *to);
