/* The global functions, which every template can call: range, dict, namespace, raise_exception and
 * strftime_now. */
#pragma once
#include "src/text/jinja/arguments.h"
#include "src/text/jinja/value.h"

typedef struct jinja_function {
    const char *name;
    /* NULL: Jinja2 has this function, but this library does not. */
    fsdp_status (*call)(struct jinja_machine *machine, const jinja_args *args, jinja_value *out);
} jinja_function;

/* Return the global function with this name, or NULL if Jinja2 has no such function. */
const jinja_function *fsdp_jinja_find_function(const jinja_string *name);
