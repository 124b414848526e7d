/* Functions that give the same results as methods of Python's str. The methods of texts and the
 * filters call these functions. */
#pragma once
#include "src/text/jinja/value.h"

/* Flags for the ends of a text from which strip() removes characters. */
enum {
    JINJA_LEFT = 1,
    JINJA_RIGHT = 2
};

/* Remove characters from the ends of the text that `ends` selects: those in `chars`, or white space
 * if `chars` is NULL. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_strip(struct jinja_machine *machine,
                                             const jinja_string *text, const jinja_string *chars,
                                             int ends, jinja_value *out);
/* Replace the first `count` occurrences of `old` by new_text, or all if `count` is negative. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_replace(struct jinja_machine *machine,
                                               const jinja_string *text, const jinja_string *old,
                                               const jinja_string *new_text, int64_t count,
                                               jinja_value *out);
/* Set *out to the list of parts into which `separator` divides the text. If `separator` is NULL,
 * white space divides it. The text is split at most `most` times, from the left, or without a limit
 * if `most` is negative. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_split(struct jinja_machine *machine,
                                             const jinja_string *text,
                                             const jinja_string *separator, int64_t most,
                                             jinja_value *out);
/* Like fsdp_jinja_split(), but if the limit `most` is reached, the text is split at the last
 * separators, like Python's rsplit(). */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_split_right(struct jinja_machine *machine,
                                                   const jinja_string *text,
                                                   const jinja_string *separator, int64_t most,
                                                   jinja_value *out);
FSDP_MUST_CHECK fsdp_status fsdp_jinja_split_lines(struct jinja_machine *machine,
                                                   const jinja_string *text, bool keep_ends,
                                                   jinja_value *out);
/* Put `left` copies of the character `fill` before the text, and `right` copies after it. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_pad(struct jinja_machine *machine, const jinja_string *text,
                                           size_t left, size_t right, const jinja_string *fill,
                                           jinja_value *out);
/* Do the same as Python's center(). If the number of added characters is odd, the width decides on
 * which side one more is added. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_center(struct jinja_machine *machine, jinja_string *text,
                                              int64_t width, const jinja_string *fill,
                                              jinja_value *out);
/* Join the items of a list, with `separator` between them. If `strict` is true, each item must be a
 * text. Otherwise, str() converts it to a text. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_join(struct jinja_machine *machine, jinja_value items,
                                            const jinja_string *separator, bool strict,
                                            jinja_value *out);
/* Return true if `part` occurs in `text` at offset `at`. */
bool fsdp_jinja_has_at(const jinja_string *text, size_t at, const jinja_string *part);
