/* Gets the properties of a terminal from the stream and the environment, not from the C locale. The
 * locale would need setlocale(), which a library must not call. Without it, wcwidth() knows only
 * ASCII, so this file has its own table of widths. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "src/base/assert.h"
#include "src/report/terminal.h"

bool fsdp_terminal_is(FILE *file)
{
    const char *term = getenv("TERM");
    return isatty(fileno(file)) && !(term && strcmp(term, "dumb") == 0);
}

int fsdp_terminal_columns(FILE *file)
{
    struct winsize size;
    if (!fsdp_terminal_is(file) || ioctl(fileno(file), TIOCGWINSZ, &size) != 0)
        return 0;
    return size.ws_col;
}

bool fsdp_terminal_utf8(void)
{
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (size_t i = 0; i < FSDP_LENGTH(names); i++) {
        const char *value = getenv(names[i]);
        if (value && *value)
            return strcasestr(value, "utf-8") || strcasestr(value, "utf8");
    }
    return false;
}

bool fsdp_terminal_color(FILE *file)
{
    const char *no_color = getenv("NO_COLOR");
    return fsdp_terminal_is(file) && !(no_color && *no_color);
}

/* Return the code point at *s, and move *s past it. A malformed byte counts as a code point. */
static uint32_t next_code_point(const unsigned char **s)
{
    const unsigned char *c = *s;
    int more = c[0] >= 0xF0 && c[0] < 0xF8 ? 3 : c[0] >= 0xE0 ? 2 : c[0] >= 0xC2 ? 1 : 0;
    if (c[0] < 0xC2 || c[0] >= 0xF8)
        more = 0;
    uint32_t code = more == 3 ? c[0] & 7u : more == 2 ? c[0] & 15u : more == 1 ? c[0] & 31u : c[0];
    for (int i = 1; i <= more; i++) {
        if ((c[i] & 0xC0) != 0x80) {
            *s += 1;
            return c[0];
        }
        code = code << 6 | (c[i] & 0x3Fu);
    }
    *s += more + 1;
    return code;
}

/* Return how many columns a code point takes on a terminal. The table has only ranges that occur in
 * real text. Width 2 is from Unicode's EastAsianWidth.txt, and width 0 from Unicode's general
 * categories. */
static size_t code_point_columns(uint32_t c)
{
    static const struct {
        uint32_t first, last;
        size_t columns;
    } ranges[] = {
        {0x0300, 0x036F, 0},   {0x200B, 0x200F, 0},   {0x20D0, 0x20FF, 0},   {0xFE00, 0xFE0F, 0},
        {0xFE20, 0xFE2F, 0},   {0x1100, 0x115F, 2},   {0x2E80, 0x303E, 2},   {0x3041, 0xA4CF, 2},
        {0xAC00, 0xD7A3, 2},   {0xF900, 0xFAFF, 2},   {0xFE30, 0xFE6F, 2},   {0xFF00, 0xFF60, 2},
        {0xFFE0, 0xFFE6, 2},   {0x1F300, 0x1F64F, 2}, {0x1F680, 0x1F6FF, 2}, {0x1F900, 0x1F9FF, 2},
        {0x20000, 0x3FFFD, 2},
    };
    for (size_t i = 0; i < FSDP_LENGTH(ranges); i++)
        if (c >= ranges[i].first && c <= ranges[i].last)
            return ranges[i].columns;
    return 1;
}

/* Move *s past one code point or one color sequence, and return how many columns it takes. */
static size_t step(const unsigned char **s)
{
    if ((*s)[0] == 0x1B && (*s)[1] == '[') {
        *s += 2;
        while (**s && **s != 'm')
            *s += 1;
        *s += **s == 'm';
        return 0;
    }
    return code_point_columns(next_code_point(s));
}

size_t fsdp_text_columns(const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    size_t columns = 0;
    while (*s)
        columns += step(&s);
    return columns;
}

size_t fsdp_text_fit(const char *text, size_t columns)
{
    const unsigned char *s = (const unsigned char *)text, *end = s;
    for (size_t used = 0; *s; end = s)
        if ((used += step(&s)) > columns)
            break;
    return (size_t)(end - (const unsigned char *)text);
}
