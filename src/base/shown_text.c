/* See shown_text.h. */
#include "src/base/shown_text.h"

#include <stdio.h>
#include <string.h>

#include "src/base/str.h"

/* Write to `out` what is shown for the first byte of `text` or, if `text` begins with a control
 * character of two bytes (U+0080 to U+009F), for that character. Return the number of bytes
 * written, at most 4. Set *taken to the number of bytes of `text` that were used. */
static size_t show_next(const char *text, char out[5], size_t *taken)
{
    static const char named[] = "abtnvfr"; /* \a is 7 */
    const unsigned char byte = (unsigned char)text[0], second = (unsigned char)text[1];
    *taken = 1;
    if (byte >= 7 && byte < 7 + sizeof named - 1)
        return (size_t)snprintf(out, 5, "\\%c", named[byte - 7]);
    if (byte < ' ' || byte == 0x7f)
        return (size_t)snprintf(out, 5, "\\x%02x", (unsigned)byte);
    if (byte == 0xc2 && second >= 0x80 && second < 0xa0) {
        *taken = 2;
        return (size_t)snprintf(out, 5, "\\x%02x", (unsigned)second);
    }
    *out = (char)byte;
    return 1;
}

fsdp_shown_text fsdp_show_text(const char *text)
{
    fsdp_shown_text shown = {""};
    static const char more[] = "...";
    size_t n = 0, fits = 0, taken; /* `fits`: the last end of a character in `shown` after which
                                      "..." still has space */
    for (; *text; text += taken) {
        char bytes[5];
        const size_t count = show_next(text, bytes, &taken);
        const int continues = ((unsigned char)*text & 0xC0) == 0x80;
        if (!continues && n + sizeof more <= sizeof shown.text)
            fits = n;
        if (n + count >= sizeof shown.text) {
            memcpy(shown.text + fits, more, sizeof more);
            return shown;
        }
        memcpy(shown.text + n, bytes, count);
        n += count;
    }
    shown.text[n] = 0;
    return shown;
}

char *fsdp_show_lines(const char *text)
{
    fsdp_str shown = {0};
    for (size_t taken; *text; text += taken) {
        char bytes[5];
        const size_t count = show_next(text, bytes, &taken);
        if (*text == '\n' || *text == '\t')
            fsdp_str_append(&shown, text, 1);
        else
            fsdp_str_append(&shown, bytes, count);
    }
    return fsdp_str_take(&shown);
}

void fsdp_copy_cut(char *to, size_t size, const char *text)
{
    static const char more[] = "...";
    const size_t n = strlen(text);
    if (n < size) {
        memcpy(to, text, n + 1);
        return;
    }
    size_t end = size - sizeof more;
    while (end > 0 && ((unsigned char)text[end] & 0xC0) == 0x80)
        end--;
    memcpy(to, text, end);
    memcpy(to + end, more, sizeof more);
}
