/* Classes of characters, as the tokenizers library decides them. The parts of that library follow
 * different versions of Unicode, so the data is measured with it (tools/char_classes.py), and does
 * not depend on the versions of PCRE2 and utf8proc that are installed. */
#pragma once
#include <fsdp/base.h>

enum {
    FSDP_CHAR_WHITE = 1 << 0,       /* Unicode's White_Space */
    FSDP_CHAR_NUMERIC = 1 << 1,     /* numbers, for the pre-tokenizer Digits */
    FSDP_CHAR_PUNCT = 1 << 2,       /* ASCII punctuation and symbols, and Unicode's punctuation */
    FSDP_CHAR_ACCENT = 1 << 3,      /* nonspacing marks that BertNormalizer removes */
    FSDP_CHAR_CONTROL = 1 << 4,     /* controls, formats and U+FFFD, which BertNormalizer removes */
    FSDP_CHAR_COMBINING = 1 << 5,   /* marks that StripAccents removes */
    FSDP_CHAR_LETTER = 1 << 6,      /* \p{L} in a regular expression */
    FSDP_CHAR_NUMBER = 1 << 7,      /* \p{N} in a regular expression */
    FSDP_CHAR_WORD = 1 << 8,        /* \w of the pre-tokenizer Whitespace and of added tokens */
    FSDP_CHAR_CANONICAL = 1 << 9,   /* changes in NFD */
    FSDP_CHAR_COMPATIBLE = 1 << 10, /* changes in NFKD */
    FSDP_CHAR_REORDERED = 1 << 11,  /* has a canonical combining class other than 0 */
};

enum {
    FSDP_CHAR_BLOCK = 128,
    FSDP_CHAR_BLOCKS = 0x110000 / FSDP_CHAR_BLOCK
};

/* A table of two levels: adjacent blocks of equal contents are stored once. */
typedef struct fsdp_char_classes {
    uint16_t block[FSDP_CHAR_BLOCKS]; /* index of the block in `flags` */
    uint16_t (*flags)[FSDP_CHAR_BLOCK];
    size_t blocks, cap;
} fsdp_char_classes;

FSDP_MUST_CHECK fsdp_status fsdp_char_classes_create(fsdp_char_classes **out);
void fsdp_char_classes_destroy(fsdp_char_classes *classes); /* accepts NULL */

/* Return the flags of the character `c`, which must be below 0x110000. */
static inline uint16_t fsdp_char_class(const fsdp_char_classes *classes, uint32_t c)
{
    return classes->flags[classes->block[c / FSDP_CHAR_BLOCK]][c % FSDP_CHAR_BLOCK];
}

/* Return the lower case of a character. U+0130, whose lower case has two characters, gives the
 * first of them, 'i'; U+0307 is the second. */
uint32_t fsdp_char_lower(uint32_t c);

/* ---- data, in char_class_data.c ---- */
extern const uint32_t fsdp_char_class_runs[][2]; /* first character and flags; sorted */
extern const size_t fsdp_char_class_run_count;
extern const int32_t fsdp_char_lower_runs[][4]; /* first, last, step, difference; sorted */
extern const size_t fsdp_char_lower_run_count;
