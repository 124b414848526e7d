/* The variable `loop` of a for block, which also iterates: Jinja2's LoopContext. */
#pragma once
#include "src/text/jinja/arguments.h"
#include "src/text/jinja/value.h"

typedef struct jinja_loop {
    jinja_iterator *items;
    int64_t index0; /* index of the current item; -1 before the first */
    int64_t length; /* number of items; -1: not known yet */
    jinja_value current, previous;
    jinja_value after;   /* the next item, if it was needed already, else JINJA_MISSING */
    bool has_after;      /* `after` is known; it is JINJA_MISSING at the end */
    jinja_value changed; /* the list of arguments of the last loop.changed(), or JINJA_MISSING */
} jinja_loop;

/* Begin a loop over `value`. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_loop_begin(struct jinja_machine *machine, jinja_value value,
                                                  jinja_loop **out);
/* Go to the next item. Set *item to it, or to JINJA_MISSING at the end. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_loop_next(struct jinja_machine *machine, jinja_loop *loop,
                                                 jinja_value *item);
/* Set *out to an attribute of the loop, or to JINJA_MISSING if it has no such attribute. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_loop_attribute(struct jinja_machine *machine,
                                                      jinja_loop *loop, const jinja_string *name,
                                                      jinja_value *out);
