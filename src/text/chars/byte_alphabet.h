/* GPT-2's alphabet of 256 characters, one for each byte. Vocabularies of byte-level BPE spell their
 * tokens in it: a space is U+0120 ('Ġ'), a line feed U+010A ('Ċ'), and a printable Latin-1
 * character is its own spelling. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The character of a byte, as UTF-8. */
typedef struct fsdp_byte_spelling {
    char text[2];
    uint8_t length; /* 1 or 2 */
} fsdp_byte_spelling;

fsdp_byte_spelling fsdp_byte_alphabet_spell(uint8_t byte);

/* Write the spelling of bytes [length] to `out`, which has room for 2 * length characters, and
 * return the number of characters (UTF-8 code units) written. `out` must not overlap `bytes`. */
size_t fsdp_byte_alphabet_from_bytes(const char *bytes, size_t length, char *out);

/* Write the bytes that `text` [length] spells to `out`, which has room for `length` bytes, and set
 * *count to their number. `out` may be equal to `text`. Return false if `text` contains a character
 * that is not in the alphabet; the contents of `out` are then unspecified. (The tokenizers library
 * decodes such a token as its own UTF-8.) */
bool fsdp_byte_alphabet_to_bytes(const char *text, size_t length, char *out, size_t *count);
