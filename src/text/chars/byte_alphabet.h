/* GPT-2's alphabet: 256 characters, each of which spells one byte. Vocabularies of byte-level BPE
 * spell their tokens in this alphabet. For example, a space is U+0120 ('Ġ'), a line feed is U+010A
 * ('Ċ'), and a byte that is a printable Latin-1 character is spelled as that character. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The UTF-8 of the character that spells a byte. */
typedef struct fsdp_byte_spelling {
    char text[2];
    uint8_t length; /* 1 or 2 */
} fsdp_byte_spelling;

fsdp_byte_spelling fsdp_byte_alphabet_spell(uint8_t byte);

/* Write the spelling of bytes [length] to `out`, whose capacity must be at least 2 * length bytes,
 * because a byte is spelled as a character of one or two bytes of UTF-8. Return the number of bytes
 * written. `out` must not overlap `bytes`. */
size_t fsdp_byte_alphabet_from_bytes(const char *bytes, size_t length, char *out);

/* Write the bytes that `text` [length] spells to `out`, whose capacity must be at least `length`
 * bytes, and set *count to their number. `out` may be equal to `text`. Return false if `text`
 * contains a character that is not in the alphabet; `out` is then unspecified. (The tokenizers
 * library then uses the UTF-8 of the whole token instead.) */
bool fsdp_byte_alphabet_to_bytes(const char *text, size_t length, char *out, size_t *count);
