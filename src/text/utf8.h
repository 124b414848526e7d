/* Checks and counts UTF-8. Text is checked once, when it enters the program from a file. */
#pragma once
#include <stddef.h>

/* Return the offset of the first byte that is not well-formed UTF-8 (RFC 3629: no overlong forms,
 * no surrogates, nothing above U+10FFFF), or `length` if all bytes are well-formed. */
size_t fsdp_utf8_valid_length(const char *text, size_t length);

/* Return the number of code points in well-formed UTF-8. */
size_t fsdp_utf8_count(const char *text, size_t length);
