/* Inside the configuration engine: what options*.c share. */
#pragma once
#include <fsdp/options.h>

#include "src/base/str.h"

enum {
    OPTION_NAME_BYTES = 64
};

/* One value that was given: by the environment, a file or a flag. All strings outlive the
 * fsdp_options: argv's, the environment's, or owned by it. */
typedef struct fsdp_option_given {
    int index;                /* in the table */
    bool negated;             /* --no-name */
    const char *text;         /* NULL: a bare boolean, or a sequence */
    const char *const *items; /* of a YAML sequence, for a LIST; else NULL */
    size_t n_items;
    fsdp_option_origin origin;
    const char *where; /* "--batch_size", "run.yaml:7", "FSDP_BATCH_SIZE" */
    const char *key;   /* the name as a file spells it; NULL if `where` names the option */
} fsdp_option_given;

struct fsdp_options {
    const fsdp_options_spec *spec; /* the caller's; with a table `compat`: `joined` */
    fsdp_options_spec joined;      /* has the rows of both tables in `rows` */
    fsdp_option *rows;             /* owned; NULL without `compat` */
    fsdp_options_action action;
    char **positional; /* owned array of argv's pointers */
    int n_positional;
    struct option_source {
        fsdp_option_origin origin;
        const char *where;   /* NULL for a default */
        const char *text;    /* as given; NULL for a default, a bare boolean or a sequence */
        bool says_nothing;   /* see fsdp_options_says() */
        const char *in_vain; /* why it changes nothing beside the other values; or NULL */
    } * sources;             /* [spec->count] */
    char **owned;            /* every string and array that target or `where` points to */
    size_t n_owned, owned_cap;
};

/* Is `name` that name? Dash and underscore are alike. */
bool fsdp_option_same_name(const char *name, const char *known, size_t known_length);
/* Index of the option called `name` (dash = underscore; aliases too), or -1. *negated tells that it
 * was found as the boolean's "no-" form. */
int fsdp_options_find(const fsdp_options_spec *spec, const char *name, bool *negated);
/* FSDP_ERR_INVALID for a name that is in no table, with the nearest one. */
fsdp_status fsdp_options_unknown(const fsdp_options_spec *spec, const char *prefix,
                                 const char *name);
/* Keep `p` until fsdp_options_destroy; returns it, or NULL (and frees it) when out of memory. */
void *fsdp_options_own(fsdp_options *options, void *p);

/* Convert, check and store a value, and note its source. */
fsdp_status fsdp_options_set(fsdp_options *options, void *target, const fsdp_option_given *given);
/* Why option `i` changes nothing, whoever gave it; NULL: it does. */
const char *fsdp_options_in_vain(const fsdp_options *options, size_t i);
/* What an option without a default holds when it was never given. */
void fsdp_option_clear(const fsdp_option *option, void *place);
/* true/false/yes/no/on/off/1/0 in any case. */
/* Does --no-name negate it, and --name alone set it? */
static inline bool fsdp_option_is_switch(const fsdp_option *option)
{
    return option->type == FSDP_OPTION_BOOL || option->type == FSDP_OPTION_BOOL_OR_INT;
}
/* Is this a value of that switch? */
bool fsdp_option_is_switch_value(const fsdp_option *option, const char *text);
bool fsdp_option_bool_from_text(const char *text, bool *value);
/* What is allowed: "a number from 0 to 1", "step, linear or cosine". Appends. */
void fsdp_option_allowed(const fsdp_option *option, fsdp_str *out);
/* Does `word` name this spelling of a choice ("adamw|adam-w")? Case and dash/underscore alike. */
bool fsdp_option_choice_matches(const char *choice, const char *word);
/* Length of a choice's first spelling. */
int fsdp_option_choice_length(const char *choice);

/* Read a YAML file: set every option in it. */
fsdp_status fsdp_options_read_yaml(fsdp_options *options, void *target, const char *path);
