/* Python's methods of str. The methods and the filters of templates are made from these
 * functions. */
#pragma once
#include "src/text/jinja/value.h"

/* Which ends strip() strips. */
enum {
    JINJA_LEFT = 1,
    JINJA_RIGHT = 2
};

/* Remove the characters in `chars`, or whitespace if it is NULL, from the ends. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_strip(struct jinja_machine *machine,
                                             const jinja_string *text, const jinja_string *chars,
                                             int ends, jinja_value *out);
/* Replace the first `count` occurrences of `old`, or all if `count` is negative. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_replace(struct jinja_machine *machine,
                                               const jinja_string *text, const jinja_string *old,
                                               const jinja_string *new_text, int64_t count,
                                               jinja_value *out);
/* Split at `separator`, or at whitespace if it is NULL, at most `most` times, or without a limit if
 * `most` is negative. *out is a list. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_split(struct jinja_machine *machine,
                                             const jinja_string *text,
                                             const jinja_string *separator, int64_t most,
                                             jinja_value *out);
/* Like fsdp_jinja_split(), but `most` counts separators from the right end. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_split_right(struct jinja_machine *machine,
                                                   const jinja_string *text,
                                                   const jinja_string *separator, int64_t most,
                                                   jinja_value *out);
FSDP_MUST_CHECK fsdp_status fsdp_jinja_split_lines(struct jinja_machine *machine,
                                                   const jinja_string *text, bool keep_ends,
                                                   jinja_value *out);
/* Put the character `fill` before `text` `left` times, and after it `right` times. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_pad(struct jinja_machine *machine, const jinja_string *text,
                                           size_t left, size_t right, const jinja_string *fill,
                                           jinja_value *out);
/* Python's center(): which side gets the odd character depends on the width. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_center(struct jinja_machine *machine, jinja_string *text,
                                              int64_t width, const jinja_string *fill,
                                              jinja_value *out);
/* Join the items of a list by `separator`. Each item becomes a text by str(), or, if `strict`, must
 * be a text. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_join(struct jinja_machine *machine, jinja_value items,
                                            const jinja_string *separator, bool strict,
                                            jinja_value *out);
/* Return true if `part` occurs in `text` at offset `at`. */
bool fsdp_jinja_has_at(const jinja_string *text, size_t at, const jinja_string *part);
