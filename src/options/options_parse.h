/* Structs and functions that the files options*.c share. */
#pragma once
#include <fsdp/options.h>

#include "src/base/str.h"

enum {
    OPTION_NAME_BYTES = 64
};

/* One value for an option: its default, or what an environment variable, a file or a flag gives.
 * All strings are valid until fsdp_options_destroy(). They belong to the option table, to argv or
 * to the fsdp_options. */
typedef struct fsdp_option_given {
    int index;                /* index of the option in the table */
    bool negated;             /* the flag is --no-NAME */
    const char *text;         /* NULL if a boolean has no value, or if the value is a sequence */
    const char *const *items; /* for a LIST, the items of a YAML sequence; else NULL */
    size_t n_items;
    fsdp_option_origin origin;
    const char *where; /* "--batch_size", "run.yaml:7" or "FSDP_BATCH_SIZE" */
    const char *key;   /* for a file, the option's name as the file spells it; else NULL, because
                          `where` already has the name */
} fsdp_option_given;

struct fsdp_options {
    const fsdp_options_spec *given_spec; /* the caller's spec */
    char **argv;                         /* [argc] the words of the command line; all are owned */
    int argc;
    const fsdp_options_spec *spec; /* &joined if the caller's spec has a table `compat`, else the
                                      caller's spec */
    fsdp_options_spec joined;      /* the caller's spec, but with `rows` as its table */
    fsdp_option *rows; /* owned; the rows of the spec's tables `table` and `compat`; NULL if the
                          spec has no `compat` */
    fsdp_options_action action;
    const char *help_topic; /* what follows --help: a word, or a flag with its dashes; NULL: nothing
                             */
    const char *file;       /* name of the last configuration file; NULL: none */
    const char *file_flag;  /* flag that named `file`, without "--": "config", or config_alias */
    char **positional;      /* owned array of pointers to strings of argv */
    int n_positional;
    struct option_source {
        fsdp_option_origin origin;
        const char *where; /* for messages: the flag as the user wrote it, the name of the
                              environment variable, or "file:line"; NULL for a default */
        const char *key;   /* for a file, the option's name as the file spells it; else NULL */
        const char *text;  /* the value as it was given; NULL for a default, for a boolean without a
                              value, and for a sequence */
        bool says_nothing; /* the value asks for nothing; see fsdp_options_asked_for() */
        const char *without_effect; /* why the values of other options leave this option without
                                       effect; NULL if it has an effect */
    } * sources;                    /* [spec->count] */
    const char **replaced; /* [n_replaced] lines for fsdp_options_notes(), one for each flag that
                              does not count because the same flag follows with another value */
    size_t n_replaced, replaced_cap;
    char **owned; /* every allocated string and array to which the target or an entry of `sources`
                     points */
    size_t n_owned, owned_cap;
};

/* Return true if `name` equals `known` [known_length]. A dash and an underscore count as the same
 * character. */
bool fsdp_option_same_name(const char *name, const char *known, size_t known_length);
/* Return the index of the option that has `name` as its name or as an alias, or -1. A dash and an
 * underscore count as the same character. If `name` is "no-" followed by the name of a switch,
 * return the index of that switch and set *negated to true. Otherwise set *negated to false. */
int fsdp_options_find(const fsdp_options_spec *spec, const char *name, bool *negated);
/* Make the name of the `number`-th environment variable of an option, counted from 0, such as
 * "FSDP_BATCH_SIZE". Set *name to NULL if the option has fewer variables. The caller owns the
 * name. */
FSDP_MUST_CHECK fsdp_status fsdp_options_env_name(const fsdp_options_spec *spec,
                                                  const fsdp_option *option, size_t number,
                                                  char **name);
/* Append a line for each environment variable that no option reads, although it was probably meant
 * for one. These are variables of three kinds: the name begins with a prefix in spec->env_named; or
 * it resembles the name of a variable that an option reads; or it is spec->env_prefix followed by
 * the name of an option that reads another variable. Each line begins with `before`. Does nothing
 * if spec->env_named is NULL. */
void fsdp_options_unread_variables(const fsdp_options_spec *spec, const char *before,
                                   fsdp_str *out);
/* Find the option that the unknown name `word` probably means. Set `name` to its correct name, and
 * return its index. The index of an option that all commands have, such as --help, is spec->count.
 * Return -1 if no option is near, or if several are equally near. */
int fsdp_options_nearest(const fsdp_options_spec *spec, const char *word,
                         char name[OPTION_NAME_BYTES]);
/* Return the error FSDP_ERR_INVALID for a name that no option has. The message suggests the nearest
 * name, if there is one. */
fsdp_status fsdp_options_unknown(const fsdp_options_spec *spec, const char *prefix,
                                 const char *name);
/* Make `options` the owner of `p`, which fsdp_options_destroy() will free, and return `p`. When out
 * of memory, free `p` and return NULL. */
void *fsdp_options_own(fsdp_options *options, void *p);

/* Convert and check the value `given`, store it in `target`, and record its source. */
fsdp_status fsdp_options_set(fsdp_options *options, void *target, const fsdp_option_given *given);
/* Return true if two flags of one option give the same value. The texts may be different spellings
 * of the value. The option must not be a LIST with `repeats`. Both values must be valid. */
bool fsdp_option_same_value(fsdp_options *options, const fsdp_option_given *a,
                            const fsdp_option_given *b);
/* Compare the flags `given` [n_given] that belong to one option and have different values. Return
 * FSDP_ERR_INVALID if two of them use different names of the option, or if option->several is set.
 * Otherwise, add a line to options->replaced for each flag that does not count. All values must be
 * valid. */
fsdp_status fsdp_options_check_twice(fsdp_options *options, const fsdp_option_given *given,
                                     size_t n_given);
/* If `status` is an error, look for the names of options in its message. At the end of the message,
 * say how the user gave each of them, unless this was a flag of that name: "--eval_steps gives
 * --evaluation-steps" or "batch in run.yaml:7 gives --batch-size". Return `status`. */
fsdp_status fsdp_options_add_spellings(const fsdp_options *options, fsdp_status status);
/* Return the reason why option `i` has no effect, or NULL if there is none. An option whose field
 * `no_effect` is set always has a reason, even if it was not given. Any other option has a reason
 * only if the user asks for the option (fsdp_options_asked_for()) and spec->without_effect() has
 * returned a reason. */
const char *fsdp_options_without_effect(const fsdp_options *options, size_t i);
/* Store zero, false, NULL or NAN, depending on the type: the value of an option that has no default
 * and was not given. */
void fsdp_option_clear(const fsdp_option *option, void *place);
/* Return true if the option is a switch: --name without a value turns it on, and --no-name turns it
 * off. */
static inline bool fsdp_option_is_switch(const fsdp_option *option)
{
    return option->type == FSDP_OPTION_BOOL || option->type == FSDP_OPTION_BOOL_OR_INT;
}
/* Return true if `text` is a valid value of the switch `option`. */
bool fsdp_option_is_switch_value(const fsdp_option *option, const char *text);
bool fsdp_option_bool_from_text(const char *text, bool *value);
/* Return the name of the option's value in help texts, such as "FILE" or "N". It is "" for a switch
 * that takes no value. */
const char *fsdp_option_metavar(const fsdp_option *option);
/* [fsdp_options_n_built_in] Rows for --help, --config and --print-config, which every program has.
 * They are only used for texts about options. */
extern const fsdp_option fsdp_options_built_in[];
extern const size_t fsdp_options_n_built_in;
/* Append a text for the allowed values, such as "a number from 0 to 1" or "step, linear or
 * cosine". */
void fsdp_option_allowed(const fsdp_option *option, fsdp_str *out);
/* Return true if `word` is one of the spellings of `choice` ("adamw|adam-w"). Case is ignored, and
 * a dash and an underscore count as the same character. */
bool fsdp_option_choice_matches(const char *choice, const char *word);
/* Return the length of the first spelling of `choice`. */
int fsdp_option_choice_length(const char *choice);

/* Read a YAML file and set every option in it. */
fsdp_status fsdp_options_read_yaml(fsdp_options *options, void *target, const char *path);
