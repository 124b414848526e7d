/* Translates regular expressions from Oniguruma's syntax to PCRE2's.
 *
 * Most of the two syntaxes is the same. The translation writes out what differs: the classes \s,
 * \w, \h and POSIX brackets (PCRE2's contain other characters), word boundaries, unions and
 * intersections of classes, {n,m}+ (not possessive in Oniguruma) and {,n}, the option m (PCRE2's
 * s), options that hold until the end of a group, \uHHHH, and names of properties. */
#pragma once
#include <fsdp/base.h>

/* Set *out to the translation, freed with fsdp_free(). Compile it with PCRE2_UTF, PCRE2_UCP and
 * PCRE2_MULTILINE. Return FSDP_ERR_UNSUPPORTED for what has no translation, and FSDP_ERR_FORMAT if
 * the pattern is broken; the message says where. */
FSDP_MUST_CHECK fsdp_status fsdp_regex_translate(const char *pattern, char **out);
