/* The arguments of a call in a template, and functions that check them. */
#pragma once
#include "src/text/jinja/value.h"

typedef struct jinja_keyword {
    const jinja_string *name;
    jinja_value value;
} jinja_keyword;

typedef struct jinja_args {
    const jinja_value *values; /* [n] positional arguments */
    size_t n;
    const jinja_keyword *keywords; /* [n_keywords] */
    size_t n_keywords;
} jinja_args;

enum {
    JINJA_MAX_PARAMS = 8
};

/* Assign the arguments of a call to the parameters of a function, by Python's rules.
 *
 * @param names    the names of the parameters, separated by commas: at most JINJA_MAX_PARAMS
 * @param required number of parameters without a default
 * @param values   out: [number of parameters]; JINJA_MISSING for a parameter that gets no
 * argument */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_bind(const char *function, const char *names,
                                            size_t required, const jinja_args *args,
                                            jinja_value *values);

/* The following functions check the type of an argument, and set *out to its value. If the argument
 * is missing, they set *out to `fallback`. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_arg_int(const char *function, jinja_value value,
                                               int64_t fallback, int64_t *out);
/* Like fsdp_jinja_arg_int(), but for a text. If the value is None, the argument counts as
 * missing. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_arg_text(const char *function, jinja_value value,
                                                jinja_string *fallback, jinja_string **out);
