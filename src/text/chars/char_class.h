/* Classes of characters, exactly as the tokenizers library sees them. Different parts of that
 * library follow different versions of Unicode. So the data was not taken from Unicode's files, but
 * found by calling the library (tools/char_classes.py). It does not depend on the installed
 * versions of PCRE2 and utf8proc. */
#pragma once
#include <fsdp/base.h>

enum {
    FSDP_CHAR_WHITE = 1 << 0,   /* the character has Unicode's property White_Space */
    FSDP_CHAR_NUMERIC = 1 << 1, /* numbers, as the pre-tokenizer Digits sees them */
    FSDP_CHAR_PUNCT = 1 << 2,   /* ASCII punctuation and symbols, and Unicode's punctuation */
    FSDP_CHAR_ACCENT = 1 << 3,  /* nonspacing marks that BertNormalizer removes */
    /* control and format characters and U+FFFD, which BertNormalizer removes */
    FSDP_CHAR_CONTROL = 1 << 4,
    FSDP_CHAR_COMBINING = 1 << 5, /* marks that StripAccents removes */
    FSDP_CHAR_LETTER = 1 << 6,    /* \p{L} in a regular expression */
    FSDP_CHAR_NUMBER = 1 << 7,    /* \p{N} in a regular expression */
    /* \w in the pre-tokenizer Whitespace, and for fsdp_added_token.single_word */
    FSDP_CHAR_WORD = 1 << 8,
    FSDP_CHAR_CANONICAL = 1 << 9,   /* the normalization form NFD changes the character */
    FSDP_CHAR_COMPATIBLE = 1 << 10, /* the normalization form NFKD changes the character */
    FSDP_CHAR_REORDERED = 1 << 11,  /* the character has a canonical combining class other than 0 */
};

enum {
    /* for characters that have no script of their own and belong to the text around them */
    FSDP_SCRIPT_ANY = 0
};

enum {
    FSDP_CHAR_BLOCK = 128,
    FSDP_CHAR_BLOCKS = 0x110000 / FSDP_CHAR_BLOCK
};

/* A table with two levels, from a character to its flags. Adjacent blocks with equal contents share
 * one element of `flags`. */
typedef struct fsdp_char_classes {
    /* block[c / FSDP_CHAR_BLOCK] is the index in `flags` of the block for the character c */
    uint16_t block[FSDP_CHAR_BLOCKS];
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

/* Return the lower case of a character. The lower case of U+0130 has two characters, 'i' and
 * U+0307; for this character, the result is 'i', the first of them. */
uint32_t fsdp_char_lower(uint32_t c);

/* Return the number of the character's script, as the pre-tokenizer UnicodeScripts sees scripts:
 * Hiragana and Katakana are the same script as Han. Characters of one script have the same number.
 * The numbers have no other meaning. Return FSDP_SCRIPT_ANY for the space and for characters that
 * are not assigned. */
uint8_t fsdp_char_script(uint32_t c);

/* ---- data, in char_class_data.c ---- */
extern const uint32_t fsdp_char_class_runs[][2]; /* first character and flags; sorted */
extern const size_t fsdp_char_class_run_count;
/* {first, last, step, difference}: the lower case of every step-th character from `first` to `last`
 * is the character + difference; sorted */
extern const int32_t fsdp_char_lower_runs[][4];
extern const size_t fsdp_char_lower_run_count;
extern const uint32_t fsdp_char_script_runs[][2]; /* first character and script; sorted */
extern const size_t fsdp_char_script_run_count;
