/* Translates regular expressions from Oniguruma's syntax to PCRE2's.
 *
 * Most of the syntax is the same in both. Where a construct has another meaning in PCRE2, the
 * translation writes an equivalent expression instead. These constructs are:
 *
 * - the classes \s, \w and \h and POSIX brackets, which contain other characters in PCRE2
 * - word boundaries
 * - unions and intersections of classes
 * - {n,m}+, which is not possessive in Oniguruma, and {,n}
 * - the option m, which is s in PCRE2, and options that hold until the end of a group
 * - \uHHHH
 * - names of properties */
#pragma once
#include <fsdp/base.h>

/* Set *out to the translation of `pattern`. The caller frees it with fsdp_free(), and compiles it
 * with PCRE2_UTF, PCRE2_UCP and PCRE2_MULTILINE. Return FSDP_ERR_UNSUPPORTED if a part of the
 * pattern has no translation, and FSDP_ERR_FORMAT if the pattern is malformed. The message contains
 * the position. */
FSDP_MUST_CHECK fsdp_status fsdp_regex_translate(const char *pattern, char **out);
