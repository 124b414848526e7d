/* The functions that every template knows: range, dict, namespace, raise_exception and
 * strftime_now. */
#pragma once
#include "src/text/jinja/arguments.h"
#include "src/text/jinja/value.h"

typedef struct jinja_function {
    const char *name;
    /* NULL: a function of Jinja2 that this library does not have. */
    fsdp_status (*call)(struct jinja_machine *machine, const jinja_args *args, jinja_value *out);
} jinja_function;

/* Return the function with this name, or NULL. */
const jinja_function *fsdp_jinja_find_function(const jinja_string *name);
