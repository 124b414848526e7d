/* Methods of values: text.strip(), dict.items() and so on. */
#pragma once
#include "src/text/jinja/arguments.h"
#include "src/text/jinja/value.h"

typedef fsdp_status jinja_method_fn(struct jinja_machine *machine, jinja_value self,
                                    const jinja_args *args, jinja_value *out);

typedef struct jinja_method_entry {
    const char *name;
    jinja_method_fn *call; /* NULL: Python has this method, but this library does not */
} jinja_method_entry;

typedef struct jinja_method {
    jinja_value self;
    const jinja_method_entry *entry;
} jinja_method;

/* The methods of str. The last element has the name NULL. */
extern const jinja_method_entry fsdp_jinja_text_methods[];

typedef enum jinja_lookup {
    JINJA_LOOKUP_NONE,   /* the type of the value has no such attribute */
    JINJA_LOOKUP_FOUND,  /* *out is the attribute */
    JINJA_LOOKUP_UNSAFE, /* Jinja2's sandbox forbids the method, because it changes the value */
} jinja_lookup;

/* Look up a method of a value whose type is one of Python's own types. If Python has the method but
 * this library does not, *lookup is JINJA_LOOKUP_FOUND, and calling the method is an error. The
 * message contains the name of the method. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_find_method(struct jinja_machine *machine, jinja_value self,
                                                   const jinja_string *name, jinja_lookup *lookup,
                                                   jinja_value *out);
