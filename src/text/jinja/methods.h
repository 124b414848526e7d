/* Methods of values: text.strip(), dict.items() and so on. */
#pragma once
#include "src/text/jinja/arguments.h"
#include "src/text/jinja/value.h"

typedef fsdp_status jinja_method_fn(struct jinja_machine *machine, jinja_value self,
                                    const jinja_args *args, jinja_value *out);

typedef struct jinja_method_entry {
    const char *name;
    jinja_method_fn *call; /* NULL: a method of Python that this library does not have */
} jinja_method_entry;

typedef struct jinja_method {
    jinja_value self;
    const jinja_method_entry *entry;
} jinja_method;

/* The methods of str; the list ends with a NULL name. */
extern const jinja_method_entry fsdp_jinja_text_methods[];

typedef enum jinja_lookup {
    JINJA_LOOKUP_NONE,   /* the type has no such attribute */
    JINJA_LOOKUP_FOUND,  /* *out is the attribute */
    JINJA_LOOKUP_UNSAFE, /* Jinja's sandbox forbids it, because it changes the value */
} jinja_lookup;

/* Look up a method of a value whose type is one of Python's own. If this library does not have the
 * method but Python does, it is found, and calling it is an error that names it. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_find_method(struct jinja_machine *machine, jinja_value self,
                                                   const jinja_string *name, jinja_lookup *lookup,
                                                   jinja_value *out);
