/* The variable `loop` of a for block. Like Jinja2's LoopContext, it also iterates over the items of
 * the block. */
#pragma once
#include "src/text/jinja/arguments.h"
#include "src/text/jinja/value.h"

typedef struct jinja_loop {
    jinja_iterator *items;
    int64_t index0; /* index of the current item; -1 before the first */
    int64_t length; /* number of items; -1: not known yet */
    jinja_value current, previous;
    /* if has_after is true: the item after `current`, or JINJA_MISSING if there is none */
    jinja_value after;
    /* the next item has been read already, because the template asked for it */
    bool has_after;
    /* the list of the arguments of the last call of loop.changed(), or JINJA_MISSING before the
     * first call */
    jinja_value changed;
} jinja_loop;

/* Begin a loop over `value`. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_loop_begin(struct jinja_machine *machine, jinja_value value,
                                                  jinja_loop **out);
/* Go to the next item. Set *item to this item, or to JINJA_MISSING if there are no more items. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_loop_next(struct jinja_machine *machine, jinja_loop *loop,
                                                 jinja_value *item);
/* Set *out to the attribute `name` of the loop, or to JINJA_MISSING if there is no such
 * attribute. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_loop_attribute(struct jinja_machine *machine,
                                                      jinja_loop *loop, const jinja_string *name,
                                                      jinja_value *out);
