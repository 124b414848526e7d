/* Internals of option parsing, shared by options*.c. */
#pragma once
#include <fsdp/options.h>

#include "src/base/str.h"

enum {
    OPTION_NAME_BYTES = 64
};

/* One value given by the environment, a file or a flag. All strings are valid until
 * fsdp_options_destroy(): they belong to argv, to the environment or to the fsdp_options. */
typedef struct fsdp_option_given {
    int index;                /* index of the option in the table */
    bool negated;             /* --no-name */
    const char *text;         /* NULL if a boolean has no value, or if the value is a sequence */
    const char *const *items; /* for a LIST, the items of a YAML sequence; else NULL */
    size_t n_items;
    fsdp_option_origin origin;
    const char *where; /* "--batch_size", "run.yaml:7" or "FSDP_BATCH_SIZE" */
    const char *key;   /* the name as spelled in a file; NULL if `where` already names the option */
} fsdp_option_given;

struct fsdp_options {
    const fsdp_options_spec *spec; /* the caller's spec, or `joined` if there is a table `compat` */
    fsdp_options_spec joined;      /* the caller's spec, but with `rows` as its table */
    fsdp_option *rows; /* owned; the rows of `table` and `compat`; NULL without `compat` */
    fsdp_options_action action;
    char **positional; /* owned array of pointers to strings of argv */
    int n_positional;
    struct option_source {
        fsdp_option_origin origin;
        const char *where; /* NULL for a default */
        const char *text;  /* the value as given; NULL for a default, for a boolean without a value,
                              and for a sequence */
        bool says_nothing; /* see fsdp_options_asked_for() */
        const char
            *without_effect; /* why the other values leave this option without effect, or NULL */
    } * sources;             /* [spec->count] */
    char **owned;            /* every string and array to which the target or a source points */
    size_t n_owned, owned_cap;
};

/* Return whether `name` equals `known` [known_length]. A dash and an underscore are the same. */
bool fsdp_option_same_name(const char *name, const char *known, size_t known_length);
/* Return the index of the option with the name or alias `name`, or -1. A dash and an underscore are
 * the same. *negated becomes true if `name` is the "no-" form of a switch. */
int fsdp_options_find(const fsdp_options_spec *spec, const char *name, bool *negated);
/* Return FSDP_ERR_INVALID for a name that no option has. The message suggests the nearest name. */
fsdp_status fsdp_options_unknown(const fsdp_options_spec *spec, const char *prefix,
                                 const char *name);
/* Give ownership of `p` to `options`, which keeps it until fsdp_options_destroy(), and return `p`.
 * When out of memory, free `p` and return NULL. */
void *fsdp_options_own(fsdp_options *options, void *p);

/* Convert, check and store a value, and record its source. */
fsdp_status fsdp_options_set(fsdp_options *options, void *target, const fsdp_option_given *given);
/* Return the reason why option `i` has no effect, or NULL if it has an effect. The option need not
 * have been given. */
const char *fsdp_options_without_effect(const fsdp_options *options, size_t i);
/* Store zero, false, NULL or NAN, depending on the type. This is the value of an option that has no
 * default, unless a source gives one. */
void fsdp_option_clear(const fsdp_option *option, void *place);
/* Return whether the option is a switch: --name alone sets it, and --no-name negates it. */
static inline bool fsdp_option_is_switch(const fsdp_option *option)
{
    return option->type == FSDP_OPTION_BOOL || option->type == FSDP_OPTION_BOOL_OR_INT;
}
/* Return whether `text` is a value of the switch `option`. */
bool fsdp_option_is_switch_value(const fsdp_option *option, const char *text);
bool fsdp_option_bool_from_text(const char *text, bool *value);
/* Append the allowed values, such as "a number from 0 to 1" or "step, linear or cosine". */
void fsdp_option_allowed(const fsdp_option *option, fsdp_str *out);
/* Return whether `word` is one of the spellings of a choice ("adamw|adam-w"). Case is ignored, and
 * a dash and an underscore are the same. */
bool fsdp_option_choice_matches(const char *choice, const char *word);
/* Return the length of a choice's first spelling. */
int fsdp_option_choice_length(const char *choice);

/* Read a YAML file and set every option in it. */
fsdp_status fsdp_options_read_yaml(fsdp_options *options, void *target, const char *path);
