/* See json_text.h. This file accepts some of the rows that the JSON parser accepts, and must return
 * the same text for them; tests/fuzz/fuzz_json_text.c compares the two. */
#include "src/data/json_text.h"

#include <string.h>

#include "src/text/utf8.h"

/* A place in the row. */
typedef struct cursor {
    const char *at, *end;
} cursor;

static void skip_space(cursor *c)
{
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\t' || *c->at == '\n' || *c->at == '\r'))
        c->at++;
}

/* Skip white space, and take a byte if it is `byte`. */
static bool take(cursor *c, char byte)
{
    skip_space(c);
    if (c->at == c->end || *c->at != byte)
        return false;
    c->at++;
    return true;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Take four hexadecimal digits and return their value, or -1 if the next four characters are not
 * such digits. */
static int32_t take_unit(cursor *c)
{
    int32_t unit = 0;
    if (c->end - c->at < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        const int digit = hex_digit(*c->at++);
        if (digit < 0)
            return -1;
        unit = unit * 16 + digit;
    }
    return unit;
}

static void append_character(fsdp_str *text, uint32_t c)
{
    char bytes[4];
    size_t n = 0;
    if (c < 0x80) {
        bytes[n++] = (char)c;
    } else if (c < 0x800) {
        bytes[n++] = (char)(0xC0 | c >> 6);
        bytes[n++] = (char)(0x80 | (c & 0x3F));
    } else if (c < 0x10000) {
        bytes[n++] = (char)(0xE0 | c >> 12);
        bytes[n++] = (char)(0x80 | (c >> 6 & 0x3F));
        bytes[n++] = (char)(0x80 | (c & 0x3F));
    } else {
        bytes[n++] = (char)(0xF0 | c >> 18);
        bytes[n++] = (char)(0x80 | (c >> 12 & 0x3F));
        bytes[n++] = (char)(0x80 | (c >> 6 & 0x3F));
        bytes[n++] = (char)(0x80 | (c & 0x3F));
    }
    fsdp_str_append(text, bytes, n);
}

/* Take the digits after \u and append the character to `text`. Return false for NUL and for an
 * unpaired surrogate, so that the JSON parser decides about them. */
static bool take_character(cursor *c, fsdp_str *text)
{
    const int32_t high = take_unit(c);
    if (high <= 0 || (high >= 0xDC00 && high < 0xE000))
        return false;
    if (high < 0xD800 || high >= 0xE000) {
        append_character(text, (uint32_t)high);
        return true;
    }
    if (c->end - c->at < 2 || c->at[0] != '\\' || c->at[1] != 'u')
        return false;
    c->at += 2;
    const int32_t low = take_unit(c);
    if (low < 0xDC00 || low >= 0xE000)
        return false;
    append_character(text, 0x10000 + ((uint32_t)(high - 0xD800) << 10) + (uint32_t)(low - 0xDC00));
    return true;
}

/* Take what follows a backslash. */
static bool take_escape(cursor *c, fsdp_str *text)
{
    static const char names[] = "\"\\/bfnrt", bytes[] = "\"\\/\b\f\n\r\t";
    if (c->at == c->end)
        return false;
    const char name = *c->at++;
    if (name == 'u')
        return take_character(c, text);
    const char *found = memchr(names, name, sizeof names - 1);
    if (found)
        fsdp_str_append(text, &bytes[found - names], 1);
    return found != NULL;
}

/* Take the rest of a string whose opening quote has been taken, including its closing quote. */
static bool take_string(cursor *c, fsdp_str *text)
{
    text->len = 0;
    for (;;) {
        const char *begin = c->at;
        while (c->at < c->end && (unsigned char)*c->at >= 0x20 && *c->at != '"' && *c->at != '\\')
            c->at++;
        const size_t n = (size_t)(c->at - begin);
        if (fsdp_utf8_valid_length(begin, n) < n)
            return false;
        fsdp_str_append(text, begin, n);
        if (c->at == c->end || (unsigned char)*c->at < 0x20)
            return false;
        if (*c->at++ == '"')
            return true;
        if (!take_escape(c, text))
            return false;
    }
}

/* Take a key that is spelled as `key` is, without escapes. */
static bool take_key(cursor *c, const char *key)
{
    const size_t n = strlen(key);
    if (!take(c, '"') || (size_t)(c->end - c->at) <= n || memcmp(c->at, key, n) != 0 ||
        c->at[n] != '"')
        return false;
    for (size_t i = 0; i < n; i++) /* such a `key` would need an escape in the row */
        if (key[i] == '\\' || key[i] == '"' || (unsigned char)key[i] < 0x20 ||
            (unsigned char)key[i] >= 0x80)
            return false;
    c->at += n + 1;
    return true;
}

bool fsdp_json_only_text(const char *row, size_t length, const char *key, fsdp_str *text)
{
    cursor c = {row, row + length};
    if (!take(&c, '{') || !take_key(&c, key) || !take(&c, ':') || !take(&c, '"') ||
        !take_string(&c, text) || !take(&c, '}'))
        return false;
    skip_space(&c);
    return c.at == c.end && !text->failed;
}
