/* Normalization forms of Unicode and grapheme clusters, from utf8proc. A build without it has
 * unicode_none.c, in which nothing is available. */
#pragma once
#include <fsdp/base.h>

enum {
    FSDP_DECOMPOSED_MAX = 32 /* more characters than any character is decomposed to */
};

/* Return FSDP_OK, or FSDP_ERR_UNSUPPORTED if this build has no utf8proc; the message contains
 * `what`, the name of the part that needs utf8proc. Without utf8proc, the other functions must not
 * be called. */
FSDP_MUST_CHECK fsdp_status fsdp_unicode_check(const char *what);

/* Write the full decomposition of a character (NFD, or NFKD if `compatible`) to out, and return the
 * number of characters. */
size_t fsdp_unicode_decompose(uint32_t c, bool compatible, uint32_t out[FSDP_DECOMPOSED_MAX]);
/* Return the character that a and b are composed to in NFC, or 0. */
uint32_t fsdp_unicode_compose(uint32_t a, uint32_t b);
uint8_t fsdp_unicode_combining_class(uint32_t c);
/* Return true if an extended grapheme cluster ends between a and b. *state is 0 before the first
 * pair of a text. */
bool fsdp_unicode_is_break(uint32_t a, uint32_t b, int32_t *state);
