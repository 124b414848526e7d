#include "src/text/chars/unicode.h"

#include <utf8proc.h>

fsdp_status fsdp_unicode_check(const char *what)
{
    (void)what;
    return FSDP_OK;
}

size_t fsdp_unicode_decompose(uint32_t c, bool compatible, uint32_t out[FSDP_DECOMPOSED_MAX])
{
    utf8proc_int32_t points[FSDP_DECOMPOSED_MAX];
    int last_class = 0;
    const utf8proc_option_t options =
        UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : (utf8proc_option_t)0);
    const utf8proc_ssize_t n = utf8proc_decompose_char((utf8proc_int32_t)c, points,
                                                       FSDP_DECOMPOSED_MAX, options, &last_class);
    if (n < 1 || n > FSDP_DECOMPOSED_MAX) {
        out[0] = c;
        return 1;
    }
    for (utf8proc_ssize_t i = 0; i < n; i++)
        out[i] = (uint32_t)points[i];
    return (size_t)n;
}

uint32_t fsdp_unicode_compose(uint32_t a, uint32_t b)
{
    utf8proc_int32_t pair[3] = {(utf8proc_int32_t)a, (utf8proc_int32_t)b, 0};
    const utf8proc_ssize_t n = utf8proc_normalize_utf32(pair, 2, UTF8PROC_COMPOSE);
    return n == 1 ? (uint32_t)pair[0] : 0;
}

uint8_t fsdp_unicode_combining_class(uint32_t c)
{
    return (uint8_t)utf8proc_get_property((utf8proc_int32_t)c)->combining_class;
}

bool fsdp_unicode_is_break(uint32_t a, uint32_t b, int32_t *state)
{
    return utf8proc_grapheme_break_stateful((utf8proc_int32_t)a, (utf8proc_int32_t)b, state);
}
