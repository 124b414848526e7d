/* Implements regex.h for builds without PCRE2. Compiling fails, so no search is ever made. */
#include "src/text/regex/regex.h"

#include "src/base/alloc.h"
#include "src/base/assert.h"

struct fsdp_regex_work {
    char unused;
};

fsdp_status fsdp_regex_compile(const char *pattern, fsdp_regex **out)
{
    (void)out;
    return fsdp_error(FSDP_ERR_UNSUPPORTED,
                      "the regular expression '%.400s': this build has no PCRE2. Install "
                      "libpcre2-dev and build again",
                      pattern);
}

void fsdp_regex_destroy(fsdp_regex *regex)
{
    (void)regex;
}

bool fsdp_regex_matches_empty(const fsdp_regex *regex)
{
    (void)regex;
    return false;
}

fsdp_status fsdp_regex_work_create(fsdp_regex_work **out)
{
    *out = fsdp_calloc(1, sizeof **out);
    return *out ? FSDP_OK : FSDP_ERR_NOMEM;
}

void fsdp_regex_work_destroy(fsdp_regex_work *work)
{
    fsdp_free(work);
}

fsdp_status fsdp_regex_next(fsdp_regex_search *search, bool *found, size_t *begin, size_t *end)
{
    (void)search;
    (void)found;
    (void)begin;
    (void)end;
    fsdp_assert_failed("there is a regular expression", __FILE__, __LINE__);
}
