/* See byte_alphabet.h. For a byte in 0x21-0x7E, 0xA1-0xAC or 0xAE-0xFF, the character is the code
 * point with the same number. For the other 68 bytes, in ascending order, the characters are U+0100
 * to U+0143. */
#include "src/text/chars/byte_alphabet.h"

/* Return the code point of the character that spells `byte`. */
static unsigned code_point(uint8_t byte)
{
    if (byte <= 0x20)
        return 0x100u + byte;
    if (byte >= 0x7F && byte <= 0xA0)
        return 0x121u + byte - 0x7F;
    return byte == 0xAD ? 0x143u : byte;
}

/* Return the byte that the character `point` spells, or -1 if it is not in the alphabet. */
static int byte_of(unsigned point)
{
    if (point >= 0x100 && point <= 0x120)
        return (int)(point - 0x100);
    if (point >= 0x121 && point <= 0x142)
        return (int)(point - 0x121 + 0x7F);
    if (point == 0x143)
        return 0xAD;
    return point <= 0xFF && code_point((uint8_t)point) == point ? (int)point : -1;
}

fsdp_byte_spelling fsdp_byte_alphabet_spell(uint8_t byte)
{
    unsigned point = code_point(byte);
    if (point < 0x80)
        return (fsdp_byte_spelling){{(char)point}, 1};
    return (fsdp_byte_spelling){{(char)(0xC0 | point >> 6), (char)(0x80 | (point & 0x3F))}, 2};
}

size_t fsdp_byte_alphabet_from_bytes(const char *bytes, size_t length, char *out)
{
    size_t n = 0;
    for (size_t i = 0; i < length; i++) {
        fsdp_byte_spelling spelling = fsdp_byte_alphabet_spell((uint8_t)bytes[i]);
        out[n++] = spelling.text[0];
        if (spelling.length == 2)
            out[n++] = spelling.text[1];
    }
    return n;
}

bool fsdp_byte_alphabet_to_bytes(const char *text, size_t length, char *out, size_t *count)
{
    size_t n = 0;
    for (size_t i = 0; i < length;) {
        unsigned point = (unsigned char)text[i++];
        if (point >= 0x80) {
            if (point < 0xC2 || point > 0xDF || i == length ||
                ((unsigned char)text[i] & 0xC0) != 0x80)
                return false;
            point = (point & 0x1F) << 6 | ((unsigned char)text[i++] & 0x3F);
        }
        int byte = byte_of(point);
        if (byte < 0)
            return false;
        out[n++] = (char)byte;
    }
    *count = n;
    return true;
}
