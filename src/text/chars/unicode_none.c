/* Implements unicode.h for builds without utf8proc. Opening a tokenizer that needs utf8proc fails,
 * so only fsdp_unicode_check() is ever called. */
#include "src/text/chars/unicode.h"

#include "src/base/assert.h"

#define NO_UNICODE() fsdp_assert_failed("utf8proc is available", __FILE__, __LINE__)

fsdp_status fsdp_unicode_check(const char *what)
{
    return fsdp_error(FSDP_ERR_UNSUPPORTED,
                      "%s: this build has no utf8proc. Install libutf8proc-dev and build again",
                      what);
}

size_t fsdp_unicode_decompose(uint32_t c, bool compatible, uint32_t out[FSDP_DECOMPOSED_MAX])
{
    (void)c;
    (void)compatible;
    (void)out;
    NO_UNICODE();
}

uint32_t fsdp_unicode_compose(uint32_t a, uint32_t b)
{
    (void)a;
    (void)b;
    NO_UNICODE();
}

uint8_t fsdp_unicode_combining_class(uint32_t c)
{
    (void)c;
    NO_UNICODE();
}

bool fsdp_unicode_is_break(uint32_t a, uint32_t b, int32_t *state)
{
    (void)a;
    (void)b;
    (void)state;
    NO_UNICODE();
}
