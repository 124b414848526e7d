/* The regular expressions of a tokenizer.json. The tokenizers library passes them to Oniguruma.
 * Here, they are translated (regex_syntax.h) and passed to PCRE2. A build without PCRE2 uses
 * regex_none.c, in which fsdp_regex_compile() always fails. */
#pragma once
#include <fsdp/base.h>

typedef struct fsdp_regex fsdp_regex;

/* Compile a pattern in Oniguruma's syntax. Return FSDP_ERR_FORMAT if it is not a regular
 * expression, and FSDP_ERR_UNSUPPORTED if PCRE2 has no equivalent or this build has no PCRE2. The
 * messages contain the pattern. */
FSDP_MUST_CHECK fsdp_status fsdp_regex_compile(const char *pattern, fsdp_regex **out);
void fsdp_regex_destroy(fsdp_regex *regex); /* accepts NULL */
/* Return true if the pattern may match the empty text. */
bool fsdp_regex_matches_empty(const fsdp_regex *regex);

/* Memory that one thread needs to search. It can be used with any regular expression. */
typedef struct fsdp_regex_work fsdp_regex_work;
FSDP_MUST_CHECK fsdp_status fsdp_regex_work_create(fsdp_regex_work **out);
void fsdp_regex_work_destroy(fsdp_regex_work *work); /* accepts NULL */

/* A search for all matches in a text, from left to right. Matches do not overlap. An empty match
 * that begins where the previous match ends is skipped. */
typedef struct fsdp_regex_search {
    const fsdp_regex *regex;
    fsdp_regex_work *work;
    const char *text; /* [length], well-formed UTF-8 */
    size_t length;
    size_t at; /* byte at which the search continues; initially 0 */
    bool matched;
    size_t last_end; /* valid if `matched` is true: the end of the previous match */
} fsdp_regex_search;

/* Find the next match. If there is one, set *found to true and [*begin, *end) to the match.
 * Otherwise, set *found to false. Return FSDP_ERR_UNSUPPORTED if the search would take too long. */
FSDP_MUST_CHECK fsdp_status fsdp_regex_next(fsdp_regex_search *search, bool *found, size_t *begin,
                                            size_t *end);
