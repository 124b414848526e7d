/* See json_text.h. */
#include "src/dashboard/json_text.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "src/text/chars/utf8.h"

static void append_integer(fsdp_str *to, int64_t value)
{
    char digits[24];
    size_t at = sizeof digits;
    uint64_t rest = value < 0 ? (uint64_t)-value : (uint64_t)value;
    do {
        digits[--at] = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest);
    if (value < 0)
        digits[--at] = '-';
    fsdp_str_append(to, digits + at, sizeof digits - at);
}

enum {
    MAX_DECIMALS = 10
};

/* Append a number, whose absolute value must be from 0.0001 to 10^7, with 7 significant digits.
 * This is several times as fast as printf(). */
static void append_decimal(fsdp_str *to, double value)
{
    static const double powers[MAX_DECIMALS + 1] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5,
                                                    1e6, 1e7, 1e8, 1e9, 1e10};
    const double size = fabs(value);
    char digits[MAX_DECIMALS];
    int decimals = 6, kept;
    for (double limit = 10; size >= limit && decimals > 0; limit *= 10)
        decimals--;
    for (double limit = 1; size < limit && decimals < MAX_DECIMALS; limit /= 10)
        decimals++;
    const uint64_t all = (uint64_t)(size * powers[decimals] + 0.5);
    uint64_t fraction = all % (uint64_t)powers[decimals];
    if (value < 0)
        fsdp_str_append(to, "-", 1);
    append_integer(to, (int64_t)(all / (uint64_t)powers[decimals]));
    for (int i = decimals; i > 0; i--, fraction /= 10)
        digits[i - 1] = (char)('0' + fraction % 10);
    for (kept = decimals; kept > 0 && digits[kept - 1] == '0';)
        kept--;
    if (kept)
        fsdp_str_append(to, ".", 1);
    fsdp_str_append(to, digits, (size_t)kept);
}

void fsdp_json_text_number(fsdp_str *to, double value)
{
    char text[32];
    if (!isfinite(value)) {
        fsdp_str_append(to, "null", 4);
    } else if (fabs(value) <= 9007199254740992.0 && floor(value) >= value) {
        append_integer(to, (int64_t)value);
    } else if (fabs(value) >= 1e-4 && fabs(value) < 1e7) {
        append_decimal(to, value);
    } else {
        const bool is_time = fabs(value) >= 1e7 && fabs(value) < 1e15;
        const int n = snprintf(text, sizeof text, is_time ? "%.3f" : "%.7g", value);
        fsdp_str_append(to, text, (size_t)n);
    }
}

static void append_escaped(fsdp_str *to, unsigned code)
{
    char text[8];
    snprintf(text, sizeof text, "\\u%04x", code & 0xffff);
    fsdp_str_append(to, text, 6);
}

static bool is_plain(const unsigned char c)
{
    return c >= 0x20 && c != '"' && c != '\\' && c != '<' && c != '>' && c != '&' && c != 0x7f;
}

/* Append text that is valid UTF-8. Characters are escaped as described at
 * fsdp_json_text_stringn(). */
static void append_valid(fsdp_str *to, const char *text, size_t n)
{
    size_t begin = 0;
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)text[i];
        const bool separator = c == 0xe2 && i + 2 < n && (unsigned char)text[i + 1] == 0x80 &&
                               ((unsigned char)text[i + 2] & 0xfe) == 0xa8;
        if (is_plain(c) && !separator)
            continue;
        fsdp_str_append(to, text + begin, i - begin);
        append_escaped(to, separator ? 0x2000u + ((unsigned char)text[i + 2] & 0x3f)
                           : c       ? c
                                     : 0xfffdu);
        i += separator ? 2 : 0;
        begin = i + 1;
    }
    fsdp_str_append(to, text + begin, n - begin);
}

void fsdp_json_text_stringn(fsdp_str *to, const char *text, size_t n)
{
    fsdp_str_append(to, "\"", 1);
    while (n) {
        const size_t valid = fsdp_utf8_valid_length(text, n);
        append_valid(to, text, valid);
        text += valid;
        n -= valid;
        if (n) {
            fsdp_str_append(to, "\\ufffd", 6);
            text++;
            n--;
        }
    }
    fsdp_str_append(to, "\"", 1);
}

void fsdp_json_text_string(fsdp_str *to, const char *text)
{
    if (text)
        fsdp_json_text_stringn(to, text, strlen(text));
    else
        fsdp_str_append(to, "null", 4);
}

void fsdp_json_text_next(fsdp_str *to)
{
    const char last = to->len ? to->data[to->len - 1] : '[';
    if (last != '[' && last != '{')
        fsdp_str_append(to, ",", 1);
}

void fsdp_json_text_key(fsdp_str *to, const char *key)
{
    fsdp_json_text_next(to);
    fsdp_json_text_string(to, key);
    fsdp_str_append(to, ":", 1);
}
