/* Internals of option parsing, shared by options*.c. */
#pragma once
#include <fsdp/options.h>

#include "src/base/str.h"

enum {
    OPTION_NAME_BYTES = 64
};

/* One value given by the environment, a file or a flag. All strings outlive the fsdp_options: they
 * belong to argv or the environment, or the fsdp_options owns them. */
typedef struct fsdp_option_given {
    int index;                /* in the table */
    bool negated;             /* --no-name */
    const char *text;         /* NULL: a bare boolean, or a sequence */
    const char *const *items; /* the items of a YAML sequence, for a LIST; else NULL */
    size_t n_items;
    fsdp_option_origin origin;
    const char *where; /* "--batch_size", "run.yaml:7", "FSDP_BATCH_SIZE" */
    const char *key;   /* the name as spelled in a file; NULL if `where` names the option */
} fsdp_option_given;

struct fsdp_options {
    const fsdp_options_spec *spec; /* owned by the caller, or `joined` if it has a table `compat` */
    fsdp_options_spec joined;      /* the same spec with the rows of both tables, `rows` */
    fsdp_option *rows;             /* owned; NULL without `compat` */
    fsdp_options_action action;
    char **positional; /* owned array of pointers to strings of argv */
    int n_positional;
    struct option_source {
        fsdp_option_origin origin;
        const char *where;   /* NULL for a default */
        const char *text;    /* as given; NULL for a default, a bare boolean or a sequence */
        bool says_nothing;   /* see fsdp_options_says() */
        const char *in_vain; /* why it has no effect with the other values; or NULL */
    } * sources;             /* [spec->count] */
    char **owned;            /* every string and array that target or `where` points to */
    size_t n_owned, owned_cap;
};

/* Whether `name` equals `known`. Dash equals underscore. */
bool fsdp_option_same_name(const char *name, const char *known, size_t known_length);
/* Index of the option `name` (dash = underscore, aliases included), or -1. *negated is set if
 * `name` is the "no-" form of a boolean. */
int fsdp_options_find(const fsdp_options_spec *spec, const char *name, bool *negated);
/* FSDP_ERR_INVALID for a name that is in no table; the message suggests the nearest one. */
fsdp_status fsdp_options_unknown(const fsdp_options_spec *spec, const char *prefix,
                                 const char *name);
/* Keep `p` until fsdp_options_destroy; returns it, or NULL (and frees it) when out of memory. */
void *fsdp_options_own(fsdp_options *options, void *p);

/* Convert, check and store a value, and record its source. */
fsdp_status fsdp_options_set(fsdp_options *options, void *target, const fsdp_option_given *given);
/* The reason why option `i` has no effect, whichever source set it; NULL if it has an effect. */
const char *fsdp_options_in_vain(const fsdp_options *options, size_t i);
/* Store the value of an option without a default that was not given. */
void fsdp_option_clear(const fsdp_option *option, void *place);
/* Whether --no-name negates the option and --name alone sets it. */
static inline bool fsdp_option_is_switch(const fsdp_option *option)
{
    return option->type == FSDP_OPTION_BOOL || option->type == FSDP_OPTION_BOOL_OR_INT;
}
/* Whether `text` is a value of that switch. */
bool fsdp_option_is_switch_value(const fsdp_option *option, const char *text);
bool fsdp_option_bool_from_text(const char *text, bool *value);
/* Append the allowed values: "a number from 0 to 1", "step, linear or cosine". */
void fsdp_option_allowed(const fsdp_option *option, fsdp_str *out);
/* Whether `word` is one of the spellings of a choice ("adamw|adam-w"). Ignores case; dash equals
 * underscore. */
bool fsdp_option_choice_matches(const char *choice, const char *word);
/* Length of a choice's first spelling. */
int fsdp_option_choice_length(const char *choice);

/* Read a YAML file and set every option in it. */
fsdp_status fsdp_options_read_yaml(fsdp_options *options, void *target, const char *path);
