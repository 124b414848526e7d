/* Checks UTF-8 against table 3-7 of the Unicode Standard, "Well-Formed UTF-8 Byte Sequences". For
 * each first byte, the table gives the length of the sequence and the range of the second byte. */
#include "src/text/chars/utf8.h"

#include <stdint.h>
#include <string.h>

/* Return the length of the sequence of two to four bytes that starts at p, or 0 if it is ill-formed
 * or truncated. */
static size_t sequence_length(const unsigned char *p, size_t left)
{
    unsigned char first = p[0], low = 0x80, high = 0xBF;
    size_t length;
    if (first >= 0xC2 && first <= 0xDF) {
        length = 2;
    } else if (first >= 0xE0 && first <= 0xEF) {
        length = 3;
        low = first == 0xE0 ? 0xA0 : 0x80;
        high = first == 0xED ? 0x9F : 0xBF;
    } else if (first >= 0xF0 && first <= 0xF4) {
        length = 4;
        low = first == 0xF0 ? 0x90 : 0x80;
        high = first == 0xF4 ? 0x8F : 0xBF;
    } else {
        return 0;
    }
    if (left < length || p[1] < low || p[1] > high)
        return 0;
    for (size_t i = 2; i < length; i++)
        if ((p[i] & 0xC0) != 0x80)
            return 0;
    return length;
}

size_t fsdp_utf8_valid_length(const char *text, size_t length)
{
    const unsigned char *p = (const unsigned char *)text;
    size_t i = 0;
    while (i < length) {
        /* Most text is ASCII, so check eight bytes at once. */
        uint64_t eight;
        if (length - i >= sizeof eight) {
            memcpy(&eight, p + i, sizeof eight);
            if (!(eight & UINT64_C(0x8080808080808080))) {
                i += sizeof eight;
                continue;
            }
        }
        if (p[i] < 0x80) {
            i++;
            continue;
        }
        size_t n = sequence_length(p + i, length - i);
        if (!n)
            return i;
        i += n;
    }
    return length;
}

size_t fsdp_utf8_count(const char *text, size_t length)
{
    size_t count = 0;
    for (size_t i = 0; i < length; i++)
        count += ((unsigned char)text[i] & 0xC0) != 0x80;
    return count;
}
