/* Implements regex.h with PCRE2 and its just-in-time compiler. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "src/text/regex/regex.h"

#include "src/base/alloc.h"
#include "src/text/regex/regex_syntax.h"

enum {
    /* Limit of the backtracking steps of one match: MATCH_LIMIT + MATCH_LIMIT_PER_BYTE for each
     * byte of the text that has not been searched yet. A search that exceeds it fails, because it
     * would take too long. */
    MATCH_LIMIT = 10000000,
    MATCH_LIMIT_PER_BYTE = 100,
    JIT_STACK_START = 32 * 1024,
    JIT_STACK_MAX = 64 * 1024 * 1024
};

struct fsdp_regex {
    pcre2_code *code;
    char *pattern; /* the pattern as it is in tokenizer.json, for error messages */
    bool jit;
    bool matches_empty;
};

struct fsdp_regex_work {
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

static fsdp_status compile(const char *translated, fsdp_regex *regex)
{
    int code;
    PCRE2_SIZE at;
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (!context)
        return fsdp_error_nomem();
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    regex->code = pcre2_compile((PCRE2_SPTR)translated, PCRE2_ZERO_TERMINATED,
                                PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                                &code, &at, context);
    pcre2_compile_context_free(context);
    if (!regex->code) {
        PCRE2_UCHAR text[256];
        if (pcre2_get_error_message(code, text, sizeof text) < 0)
            text[0] = 0;
        return fsdp_error(FSDP_ERR_FORMAT, "the regular expression '%.400s' cannot be compiled: %s",
                          regex->pattern, (const char *)text);
    }
    regex->jit = pcre2_jit_compile(regex->code, PCRE2_JIT_COMPLETE) == 0;
    uint32_t empty = 0;
    regex->matches_empty =
        pcre2_pattern_info(regex->code, PCRE2_INFO_MATCHEMPTY, &empty) != 0 || empty;
    return FSDP_OK;
}

fsdp_status fsdp_regex_compile(const char *pattern, fsdp_regex **out)
{
    char *translated = NULL;
    FSDP_TRY(fsdp_regex_translate(pattern, &translated));
    fsdp_regex *regex = fsdp_calloc(1, sizeof *regex);
    fsdp_status status = FSDP_ERR_NOMEM;
    if (regex && (regex->pattern = fsdp_strdup(pattern)))
        status = compile(translated, regex);
    fsdp_free(translated);
    if (status != FSDP_OK) {
        fsdp_regex_destroy(regex);
        return status;
    }
    *out = regex;
    return FSDP_OK;
}

void fsdp_regex_destroy(fsdp_regex *regex)
{
    if (!regex)
        return;
    pcre2_code_free(regex->code);
    fsdp_free(regex->pattern);
    fsdp_free(regex);
}

bool fsdp_regex_matches_empty(const fsdp_regex *regex)
{
    return regex->matches_empty;
}

fsdp_status fsdp_regex_work_create(fsdp_regex_work **out)
{
    fsdp_regex_work *work = fsdp_calloc(1, sizeof *work);
    if (!work)
        return FSDP_ERR_NOMEM;
    work->data = pcre2_match_data_create(1, NULL);
    work->context = pcre2_match_context_create(NULL);
    if (!work->data || !work->context) {
        fsdp_regex_work_destroy(work);
        return fsdp_error_nomem();
    }
    /* If this stack cannot be created, the compiled code uses 32 KiB of the thread's stack
     * instead. */
    work->stack = pcre2_jit_stack_create(JIT_STACK_START, JIT_STACK_MAX, NULL);
    if (work->stack)
        pcre2_jit_stack_assign(work->context, NULL, work->stack);
    *out = work;
    return FSDP_OK;
}

void fsdp_regex_work_destroy(fsdp_regex_work *work)
{
    if (!work)
        return;
    pcre2_jit_stack_free(work->stack);
    pcre2_match_context_free(work->context);
    pcre2_match_data_free(work->data);
    fsdp_free(work);
}

static fsdp_status match_at(const fsdp_regex_search *s, bool *found)
{
    const size_t left = s->length - s->at, most = (UINT32_MAX - MATCH_LIMIT) / MATCH_LIMIT_PER_BYTE;
    const uint32_t limit =
        MATCH_LIMIT + MATCH_LIMIT_PER_BYTE * (uint32_t)(left < most ? left : most);
    pcre2_set_match_limit(s->work->context, limit);
    const PCRE2_SPTR text = (PCRE2_SPTR)s->text;
    const int result = s->regex->jit
                           ? pcre2_jit_match(s->regex->code, text, s->length, s->at, 0,
                                             s->work->data, s->work->context)
                           : pcre2_match(s->regex->code, text, s->length, s->at, PCRE2_NO_UTF_CHECK,
                                         s->work->data, s->work->context);
    *found = result >= 0;
    if (result >= 0 || result == PCRE2_ERROR_NOMATCH)
        return FSDP_OK;
    if (result == PCRE2_ERROR_NOMEMORY)
        return fsdp_error_nomem();
    return fsdp_error(FSDP_ERR_UNSUPPORTED,
                      "the tokenizer's regular expression '%.400s' takes too many steps for this "
                      "text, at byte %zu (PCRE2 error %d)",
                      s->regex->pattern, s->at, result);
}

/* Return the length in bytes of the character at s->at, or 1 if s->at is the end of the text. */
static size_t step(const fsdp_regex_search *s)
{
    size_t n = 1;
    while (s->at + n < s->length && ((unsigned char)s->text[s->at + n] & 0xC0) == 0x80)
        n++;
    return n;
}

/* Find the next match by the same rules as FindMatches of Rust's onig crate. */
fsdp_status fsdp_regex_next(fsdp_regex_search *s, bool *found, size_t *begin, size_t *end)
{
    for (*found = false; s->at <= s->length; s->at += step(s)) {
        bool match;
        FSDP_TRY(match_at(s, &match));
        if (!match) {
            s->at = s->length + 1;
            return FSDP_OK;
        }
        const PCRE2_SIZE *where = pcre2_get_ovector_pointer(s->work->data);
        /* With \K in a lookaround, a match can begin after its end. Such a match is treated as an
         * empty match at its end. */
        const size_t from = where[0] < where[1] ? where[0] : where[1], to = where[1];
        if (from == to && s->matched && s->last_end == to)
            continue;
        s->at = s->last_end = to;
        s->matched = *found = true;
        *begin = from;
        *end = to;
        return FSDP_OK;
    }
    return FSDP_OK;
}
