/* See shown_text.h. */
#include "src/base/shown_text.h"

#include <stdio.h>
#include <string.h>

/* Write one byte of a text to `out`. Return the number of bytes, which is at most 4. */
static size_t show_byte(unsigned char byte, char out[5])
{
    static const char named[] = "abtnvfr"; /* \a is 7 */
    if (byte >= 7 && byte < 7 + sizeof named - 1)
        return (size_t)snprintf(out, 5, "\\%c", named[byte - 7]);
    if (byte < ' ' || byte == 0x7f)
        return (size_t)snprintf(out, 5, "\\x%02x", (unsigned)byte);
    *out = (char)byte;
    return 1;
}

fsdp_shown_text fsdp_show_text(const char *text)
{
    fsdp_shown_text shown = {""};
    static const char more[] = "...";
    size_t n = 0, fits = 0; /* `fits`: the last end of a character in `shown` after which "..."
                               still has space */
    for (; *text; text++) {
        char bytes[5];
        const size_t count = show_byte((unsigned char)*text, bytes);
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
