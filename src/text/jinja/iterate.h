/* Iteration over values: Python's iter(), len(), list() and `in`. */
#pragma once
#include "src/text/jinja/value.h"

/* Set *out to an iterator over `value`. If `value` is an iterator itself, *out is this iterator. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_iterate(struct jinja_machine *machine, jinja_value value,
                                               jinja_iterator **out);
/* Create an iterator over `source`. `next` is the function that gets its items. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_iterator(struct jinja_machine *machine, jinja_value source,
                                                jinja_next_fn *next, jinja_iterator **out);
/* Set *item to the next item of the iterator, or to JINJA_MISSING if there are no more items. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_next(struct jinja_machine *machine, jinja_iterator *iterator,
                                            jinja_value *item);
/* Like fsdp_jinja_iterate(). But if `value` is not iterable, this is not an error until the first
 * call of fsdp_jinja_next(). It is the same in Python: a generator begins to iterate over its
 * source when its first item is requested. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_iterate_later(struct jinja_machine *machine,
                                                     jinja_value value, jinja_iterator **out);
/* Set *out to an iterator over `value` from the last item to the first, like Python's
 * reversed(). */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_reversed(struct jinja_machine *machine, jinja_value value,
                                                jinja_iterator **out);
static inline jinja_value jinja_of_iterator(jinja_iterator *iterator)
{
    return (jinja_value){.kind = JINJA_ITERATOR, .as.iterator = iterator};
}

/* Return true if iter(value) succeeds. */
bool fsdp_jinja_is_iterable(jinja_value value);
/* Set *n to len(value). Return FSDP_ERR_INVALID if the value has no length. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_length(jinja_value value, size_t *n);
bool fsdp_jinja_has_length(jinja_value value);
/* Set *out to a list with the items of an iterable. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_to_list(struct jinja_machine *machine, jinja_value value,
                                               jinja_value *out);
/* Set *out to the result of Python's `item in container`. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_contains(struct jinja_machine *machine,
                                                jinja_value container, jinja_value item,
                                                bool *contains);
