/* Unicode's normalization forms and grapheme clusters, by means of utf8proc. A build without
 * utf8proc uses unicode_none.c, in which only fsdp_unicode_check() may be called. */
#pragma once
#include <fsdp/base.h>

enum {
    /* upper limit of the number of characters to which one character is decomposed */
    FSDP_DECOMPOSED_MAX = 32
};

/* Return FSDP_OK if this build has utf8proc, and FSDP_ERR_UNSUPPORTED otherwise. The error message
 * contains `what`, the name of the part of the tokenizer that needs utf8proc. Without utf8proc, the
 * other functions must not be called. */
FSDP_MUST_CHECK fsdp_status fsdp_unicode_check(const char *what);

/* Decompose a character completely, for NFD or, if `compatible` is true, for NFKD. Write the
 * resulting characters to `out`, and return their number. */
size_t fsdp_unicode_decompose(uint32_t c, bool compatible, uint32_t out[FSDP_DECOMPOSED_MAX]);
/* Return the character to which NFC composes a and b, or 0 if they are not composed. */
uint32_t fsdp_unicode_compose(uint32_t a, uint32_t b);
uint8_t fsdp_unicode_combining_class(uint32_t c);
/* Return true if an extended grapheme cluster ends between the adjacent characters a and b of a
 * text. The function uses *state to remember what came before a; set *state to 0 before the first
 * pair of a text. */
bool fsdp_unicode_is_break(uint32_t a, uint32_t b, int32_t *state);
