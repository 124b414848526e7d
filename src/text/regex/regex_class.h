/* Translates Oniguruma's character classes to expressions of PCRE2. This is a part of the
 * translation in regex_syntax.h. */
#pragma once
#include "src/base/str.h"
#include "src/text/regex/regex_newer.h"

/* A pattern that is being translated, and the position up to which it has been read. */
typedef struct fsdp_regex_pattern {
    const char *text; /* the whole pattern, NUL-terminated */
    size_t at;
} fsdp_regex_pattern;

/* The following macros are contents of brackets in PCRE2's syntax. They have the characters of
 * Oniguruma's \s, \w, \d and \h, and the characters that are not in \s. */
#define FSDP_REGEX_SPACE                                                                           \
    "\\t-\\r\\x{20}\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}"          \
    "\\x{205F}\\x{3000}"
#define FSDP_REGEX_NOT_SPACE                                                                       \
    "\\x{0}-\\x{8}\\x{E}-\\x{1F}\\x{21}-\\x{84}\\x{86}-\\x{9F}\\x{A1}-\\x{167F}"                   \
    "\\x{1681}-\\x{1FFF}\\x{200B}-\\x{2027}\\x{202A}-\\x{202E}\\x{2030}-\\x{205E}"                 \
    "\\x{2060}-\\x{2FFF}\\x{3001}-\\x{10FFFF}"
#define FSDP_REGEX_WORD                                                                            \
    "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{"                         \
    "BE}" FSDP_REGEX_NEWER_WORD
#define FSDP_REGEX_DIGIT "\\p{Nd}" FSDP_REGEX_NEWER_ND
#define FSDP_REGEX_HEX "0-9a-fA-F"

/* Return an error that says what is wrong with the construct at byte `at` of the pattern. */
FSDP_PRINTF(4, 5)
fsdp_status fsdp_regex_error(fsdp_status status, const fsdp_regex_pattern *p, size_t at,
                             const char *format, ...);

/* Append the character `c`, escaped if it has a special meaning in PCRE2. */
void fsdp_regex_append_literal(fsdp_str *out, uint32_t c);

/* If the escape at the pattern's position (after the backslash) means one character, set
 * *is_character to true and *c to the character, and move past the escape. Otherwise, set
 * *is_character to false. */
FSDP_MUST_CHECK fsdp_status fsdp_regex_escaped_character(fsdp_regex_pattern *p, bool *is_character,
                                                         uint32_t *c);

/* Translate \p{...} or \P{...}. The pattern's position is after the backslash. Append the contents
 * of a bracket for the property. Set *negated to true if the bracket must be negated, [^...]. */
FSDP_MUST_CHECK fsdp_status fsdp_regex_property(fsdp_regex_pattern *p, fsdp_str *out,
                                                bool *negated);

/* Append the translation of the class at the pattern's position, which is after '['. */
FSDP_MUST_CHECK fsdp_status fsdp_regex_class(fsdp_regex_pattern *p, int depth, fsdp_str *out);
