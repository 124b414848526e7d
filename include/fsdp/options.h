/**
 * @file
 * The arguments of a program, like argparse. One typed table describes each option once; flags,
 * YAML, environment, --help, --print-config and the checks are derived from it.
 *
 * A command has a struct for its values and a table that says which option goes where:
 *
 *     typedef struct bench_config { int steps; double lr; int shape; fsdp_dtype dtype; } ...;
 *     static const char *const shapes[] = {"t5-small", "t5-base", NULL};
 *     static const fsdp_option table[] = {
 *         {.name = "steps", .type = FSDP_OPTION_INT, .offset = offsetof(bench_config, steps),
 *          .value = "10", .bounds = FSDP_AT_LEAST(1), .group = "work", .help = "steps to time"},
 *         {.name = "shape", .type = FSDP_OPTION_CHOICE, .offset = offsetof(bench_config, shape),
 *          .value = "t5-small", .choices = shapes, .help = "..."},
 *     };
 *     static const fsdp_options_spec spec = {
 *         .program = "fsdp bench", .usage = "[options]", .summary = "...",
 *         .table = table, .count = sizeof table / sizeof *table};
 *     bench_config config = {0};
 *     fsdp_options *options;
 *     FSDP_TRY(fsdp_options_parse(&spec, argc, argv, &config, &options));
 *
 * The command line: --name value, --name=value, -n value for one-letter aliases; a dash equals an
 * underscore. A boolean is --name, --no-name, or takes true/false/yes/no/on/off/1/0, also as the
 * next word. The last one wins; -- ends the options; other words are positional. A word that
 * begins with -- is a value only after =. Every spec also has --help (-h), --config FILE.yaml,
 * which takes the text itself if it begins with "{", and --print-config.
 *
 * Sources of a value, highest precedence first: flag, YAML file, environment (FSDP_<NAME>, dashes
 * as underscores, upper case; an empty variable counts as unset), default. An option of other tools
 * that changes nothing here (no_effect), or changes nothing with the other values (in_vain), is
 * checked like any other, stored if it has a place, and listed by --print-config. An option that
 * has no counterpart here (instead) is an error that says what to use instead, unless its value
 * asks for nothing.
 *
 * Errors are FSDP_ERR_INVALID (FSDP_ERR_NOT_FOUND, _FORMAT, _IO for the YAML file) and name the
 * option, where it was given, the value and what is allowed; for an unknown name, the nearest. The
 * caller prints them, and the texts that fsdp_options_wanted() asks for.
 */
#pragma once
#include <math.h>
#include <stddef.h>

#include <fsdp/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum fsdp_option_type {
    FSDP_OPTION_BOOL,        /**< bool */
    FSDP_OPTION_INT,         /**< int */
    FSDP_OPTION_INT64,       /**< int64_t */
    FSDP_OPTION_DOUBLE,      /**< double; finite unless `infinite`; NAN if never given and without a
                                default */
    FSDP_OPTION_STRING,      /**< const char *, owned by the fsdp_options; NULL if never given */
    FSDP_OPTION_CHOICE,      /**< int: index into choices (an enum declared in the same order) */
    FSDP_OPTION_DTYPE,       /**< fsdp_dtype, by any name fsdp_dtype_from_name knows */
    FSDP_OPTION_SIZE,        /**< int64_t bytes: 8GiB, 512MB, 1.5g (KB MB GB TB are powers of 1000,
                                K M G T and KiB MiB GiB TiB of 1024), 4096 */
    FSDP_OPTION_BOOL_OR_INT, /**< int: 0 false, 1 true, or a number above 1 within bounds; -1 - i
                                  for word i of `choices`, if there are any */
    /** fsdp_option_list: a,b,c (spaces around items are ignored) or a YAML sequence; the last one
     * given wins */
    FSDP_OPTION_LIST,
} fsdp_option_type;

typedef struct fsdp_option_list {
    const char *const *items; /**< owned by the fsdp_options; NULL if empty */
    size_t count;
} fsdp_option_list;

/** Bounds of a number or size; checked only if `set`. Written with the macros below. */
typedef struct fsdp_option_bounds {
    double min, max;
    bool set, above, below; /**< above: greater than min; below: less than max; else inclusive */
} fsdp_option_bounds;
#define FSDP_AT_LEAST(lo)                                                                          \
    {                                                                                              \
        .set = true, .min = (lo), .max = (double)INFINITY                                          \
    }
#define FSDP_ABOVE(lo)                                                                             \
    {                                                                                              \
        .set = true, .min = (lo), .max = (double)INFINITY, .above = true                           \
    }
#define FSDP_BETWEEN(lo, hi)                                                                       \
    {                                                                                              \
        .set = true, .min = (lo), .max = (hi)                                                      \
    }
#define FSDP_FROM_TO_BELOW(lo, hi)                                                                 \
    {                                                                                              \
        .set = true, .min = (lo), .max = (hi), .below = true                                       \
    }
#define FSDP_ABOVE_UP_TO(lo, hi)                                                                   \
    {                                                                                              \
        .set = true, .min = (lo), .max = (hi), .above = true                                       \
    }

/** `offset` of an option whose value is not stored. */
#define FSDP_OPTION_NOWHERE SIZE_MAX

/** One option. Zero means none for every field but name, type and offset. */
typedef struct fsdp_option {
    const char *name;    /**< with dashes: "batch-size" */
    const char *aliases; /**< "test-batch-size,eval-batch-size,b": a single letter is also -b */
    fsdp_option_type type;
    size_t offset;     /**< offsetof the value in the command's struct */
    const char *value; /**< default, as a user would write it; NULL: zero, false, NULL, NAN */
    /** shown by --help instead of `value`, e.g. "number of cores / ranks" */
    const char *shown_default;
    fsdp_option_bounds bounds;  /**< INT, INT64, DOUBLE, SIZE */
    bool infinite;              /**< DOUBLE: inf is accepted */
    const char *const *choices; /**< CHOICE: NULL-terminated; "adamw|adam-w" adds other spellings.
                                   Case does not matter */
    const char *metavar;        /**< "FILE", "N": what --help shows for the value */
    const char *group;          /**< heading in --help; NULL: that of the option before it */
    const char *help;           /**< one or two sentences without a final full stop */
    const char *bare;           /**< value of a flag that is followed by none; NULL: an error */
    const char *env;            /**< name of the variable if it is not <prefix><NAME> */
    const char *no_effect;      /**< why it changes nothing: "there is no GPU in this build" */
    /** makes any value but the default an error with this text, which says what to use instead;
     * NULL: values are accepted. STRING: `value` is a choice, "none|null" */
    const char *instead;
    /** text that fsdp_parse_args() prints after the name of a flag that was given and is not false;
     * NULL: nothing */
    const char *note;
    bool required; /**< an error if no source gives it */
    bool optional; /**< has no effect unless it is given: --print-config says null */
    /** BOOL that files and variables of other tools give routinely: false counts as not given
     * there. `no-name: true` gives it explicitly */
    bool false_is_silence;
    bool hidden; /**< not in --help, but in the suggestions of errors */
} fsdp_option;

typedef struct fsdp_options fsdp_options;

typedef struct fsdp_options_spec {
    const char *program;  /**< "fsdp train" */
    const char *usage;    /**< text after the program's name: "--model DIR --data FILE [options]" */
    const char *summary;  /**< text before the options; paragraphs are wrapped */
    const char *epilogue; /**< text after the options (examples), printed as is; or NULL */
    const fsdp_option *table; /**< static storage: outlives every fsdp_options */
    size_t count;
    /** Options of other tools that are accepted and change nothing: each has no_effect and no
     * place. --help lists them under a heading of their own. NULL: none. Static storage, too. */
    const fsdp_option *compat;
    size_t n_compat;
    const char *env_prefix;   /**< NULL: "FSDP_" */
    const char *positional;   /**< "FILE..."; NULL: none are accepted */
    int min_positional;       /**< fewer are an error */
    int max_positional;       /**< more are an error; 0 with `positional`: no limit */
    bool stop_at_positional;  /**< the first positional ends the options (fsdp launch) */
    const char *config_alias; /**< another name of --config: "fsdp-config"; or NULL */
    /** Set values that were not given and follow from others (fsdp_options_given); or NULL. */
    void (*derive)(void *target, const fsdp_options *options);
    fsdp_status (*check)(void *target, const fsdp_options *options); /**< across fields; or NULL */
    /** Called after derive for an option `name` that fsdp_options_says(): returns why it changes
     * nothing with these values ("needs --validation-data"; static storage), or NULL if it has an
     * effect. The member may be NULL. */
    const char *(*in_vain)(const void *target, const fsdp_options *options, const char *name);
} fsdp_options_spec;

typedef enum fsdp_options_action {
    FSDP_OPTIONS_RUN,
    FSDP_OPTIONS_HELP,        /**< --help was given: nothing was checked, and target is unchanged */
    FSDP_OPTIONS_PRINT_CONFIG /**< --print-config: `required` and spec->check are not checked */
} fsdp_options_action;

typedef enum fsdp_option_origin {
    FSDP_ORIGIN_DEFAULT,
    FSDP_ORIGIN_ENV,
    FSDP_ORIGIN_FILE,
    FSDP_ORIGIN_FLAG
} fsdp_option_origin;

/** Fill `target` from all sources; argv[0] is the command's name and is skipped. On success
 * *options owns every string in target and must outlive it; free it with fsdp_options_destroy().
 * On failure target's contents are unspecified. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_options_parse(const fsdp_options_spec *spec, int argc,
                                                        char **argv, void *target,
                                                        fsdp_options **options);
FSDP_API void fsdp_options_destroy(fsdp_options *options); /**< accepts NULL */

FSDP_API fsdp_options_action fsdp_options_wanted(const fsdp_options *options);
/** Check the required options and call spec->check. fsdp_options_parse() has done so if the action
 * is RUN. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_options_check(const fsdp_options *options, void *target);
/** Where an option's value came from. `name` is in the table (asserted). */
FSDP_API fsdp_option_origin fsdp_options_origin(const fsdp_options *options, const char *name);
/** Given by a flag, file or variable, not by default? */
FSDP_API bool fsdp_options_given(const fsdp_options *options, const char *name);
/**
 * Does the user ask for what the option does? True if it was given by a flag, or by a file with a
 * value other than the default, since files of other tools list every option. False for a value
 * that asks for nothing: a switch in its default position, 0, an empty text.
 */
FSDP_API bool fsdp_options_says(const fsdp_options *options, const char *name);
/** "--batch_size", "run.yaml:7", "FSDP_BATCH_SIZE"; NULL for a default. */
FSDP_API const char *fsdp_options_where(const fsdp_options *options, const char *name);
/** The positional words; pointers into argv. */
FSDP_API char **fsdp_options_positional(const fsdp_options *options, int *count);

/** The text of --help, at most `columns` wide (80 to 100 are readable). Free with fsdp_text_free();
 * NULL when out of memory. */
FSDP_API char *fsdp_options_help(const fsdp_options_spec *spec, int columns);
/** The text of --print-config: a YAML file that --config reads back to the same values, each with a
 * comment saying where it came from, followed by the options that were accepted without effect. A
 * value that was not given is printed as a comment, because a value that is read back counts as
 * given and may contradict the flag that it follows from. Free with fsdp_text_free(); NULL when
 * out of memory. */
FSDP_API char *fsdp_options_print(const fsdp_options *options, const void *target);
/** One line for each reason why something that a flag or file says changes nothing, with the
 * options that it applies to: "--machine-rank, --num-machines: ranks come from fsdp launch"; "" if
 * everything has an effect. The environment is left out, because other tools export variables for
 * all programs. Free with fsdp_text_free(); NULL when out of memory. */
FSDP_API char *fsdp_options_notes(const fsdp_options *options);
/** The value of one option as a user would write it, e.g. "bfloat16". Free with fsdp_text_free();
 * NULL when out of memory. */
FSDP_API char *fsdp_option_text(const fsdp_option *option, const void *target);

#ifdef __cplusplus
}
#endif
