/* Checks, counts, decodes and encodes UTF-8. Each text is checked once, when it is read from a file
 * or gets into the library from its caller. Other functions rely on this. */
#pragma once
#include <stddef.h>
#include <stdint.h>

/* Return the offset of the first byte that is not well-formed UTF-8 (RFC 3629: no overlong forms,
 * no surrogates, nothing above U+10FFFF), or `length` if all bytes are well-formed. */
size_t fsdp_utf8_valid_length(const char *text, size_t length);

/* Return the number of code points in well-formed UTF-8. */
size_t fsdp_utf8_count(const char *text, size_t length);

/* Return the number of bytes of the character that begins with the byte `first`, in well-formed
 * UTF-8. */
static inline size_t fsdp_utf8_length(char first)
{
    const unsigned char byte = (unsigned char)first;
    return byte < 0xC0 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

/* Return the character at `p`, in well-formed UTF-8, and set *length to its number of bytes. */
static inline uint32_t fsdp_utf8_decode(const char *p, size_t *length)
{
    const unsigned char *u = (const unsigned char *)p;
    if (u[0] < 0x80) {
        *length = 1;
        return u[0];
    }
    if (u[0] < 0xE0) {
        *length = 2;
        return (uint32_t)(u[0] & 0x1F) << 6 | (u[1] & 0x3F);
    }
    if (u[0] < 0xF0) {
        *length = 3;
        return (uint32_t)(u[0] & 0xF) << 12 | (uint32_t)(u[1] & 0x3F) << 6 | (u[2] & 0x3F);
    }
    *length = 4;
    return (uint32_t)(u[0] & 7) << 18 | (uint32_t)(u[1] & 0x3F) << 12 |
           (uint32_t)(u[2] & 0x3F) << 6 | (u[3] & 0x3F);
}

/* Return the last character of the text [begin, end), which must not be empty, and set *length to
 * its number of bytes. */
static inline uint32_t fsdp_utf8_last(const char *begin, const char *end, size_t *length)
{
    const char *p = end - 1;
    while (p > begin && ((unsigned char)*p & 0xC0) == 0x80)
        p--;
    return fsdp_utf8_decode(p, length);
}

/* Write a character as UTF-8 to `out` [4], and return its number of bytes. */
static inline size_t fsdp_utf8_encode(uint32_t c, char *out)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xC0 | c >> 6);
        out[1] = (char)(0x80 | (c & 0x3F));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xE0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 0x3F));
        out[2] = (char)(0x80 | (c & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 0x3F));
    out[2] = (char)(0x80 | (c >> 6 & 0x3F));
    out[3] = (char)(0x80 | (c & 0x3F));
    return 4;
}
