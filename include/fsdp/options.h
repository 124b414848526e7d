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
 * On the command line, an option is --name value, --name=value, or -n value if n is a one-letter
 * alias. In names, dashes and underscores are equivalent. A boolean is --name or --no-name, or has
 * a value (true/false/yes/no/on/off/1/0), which may be the next word. If an option is given several
 * times, the last one wins. -- ends the options. Other words are positional. A word that begins
 * with -- is a value only after =. Every spec also has --help (-h), --print-config, and --config
 * FILE.yaml. If the argument of --config begins with "{", it is not a file name, but the YAML text
 * itself.
 *
 * Sources of a value, highest precedence first: flag, YAML file, environment variable, default. The
 * variable is FSDP_<NAME>, in upper case and with underscores for dashes; an empty variable counts
 * as unset. A table may also have options that only other tools need. An option with no_effect
 * never changes anything in this program. If without_effect() returns a text for an option, the
 * option has no effect because of the values of other options. Both kinds are checked like any
 * other option, stored if they have a place, and listed by --print-config. An option with `instead`
 * is not supported: any value but its default is an error that says what to use instead.
 *
 * Errors are FSDP_ERR_INVALID, FSDP_ERR_UNSUPPORTED for an option with `instead`, or
 * FSDP_ERR_NOT_FOUND, _FORMAT or _IO for the YAML file. The message names the option, where it was
 * given, its value and what is allowed; for an unknown name, it names the nearest known one. The
 * caller prints the errors, and also the help or configuration if fsdp_options_requested_action()
 * says that the user asked for it.
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
    FSDP_OPTION_DOUBLE,      /**< double; finite unless `infinite` is set; NAN if the option has no
                                  default and was not given */
    FSDP_OPTION_STRING,      /**< const char *, owned by the fsdp_options; NULL if the option has no
                                  default and was not given */
    FSDP_OPTION_CHOICE,      /**< int: index into choices (an enum declared in the same order) */
    FSDP_OPTION_DTYPE,       /**< fsdp_dtype, by any name that fsdp_dtype_from_name() knows */
    FSDP_OPTION_SIZE,        /**< int64_t bytes: 4096, 8GiB, 512MB, 1.5g. KB, MB, GB, TB are powers
                                  of 1000; K, M, G, T and KiB, MiB, GiB, TiB are powers of 1024 */
    FSDP_OPTION_BOOL_OR_INT, /**< int: 0 for false, 1 for true, a number above 1 within bounds, or
                                  -1 - i for choices[i] (if there are choices) */
    /** fsdp_option_list: a,b,c (spaces around items are ignored) or a YAML sequence; if several
     * lists are given, the last one wins */
    FSDP_OPTION_LIST,
} fsdp_option_type;

typedef struct fsdp_option_list {
    const char *const *items; /**< owned by the fsdp_options; NULL if empty */
    size_t count;
} fsdp_option_list;

/** Bounds of a number or size; checked only if `set`. Use the macros below to write them. */
typedef struct fsdp_option_bounds {
    double min, max;
    bool set, above, below; /**< above: values must be greater than min, not equal to it; below:
                                 values must be less than max, not equal to it */
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

/** One option. In every field but name, type and offset, zero means "none". */
typedef struct fsdp_option {
    const char *name;    /**< with dashes: "batch-size" */
    const char *aliases; /**< other names: "test-batch-size,eval-batch-size,b"; a name of one
                              letter, like b here, is also accepted with one dash: -b */
    fsdp_option_type type;
    size_t offset;     /**< offset of the value in the command's struct, in bytes (offsetof) */
    const char *value; /**< default, as a user would write it; NULL: the default is zero, false,
                            NULL or NAN, depending on the type */
    /** shown by --help instead of `value`, e.g. "number of cores / ranks" */
    const char *shown_default;
    fsdp_option_bounds bounds;  /**< INT, INT64, DOUBLE, SIZE */
    bool infinite;              /**< DOUBLE: inf is accepted */
    const char *const *choices; /**< CHOICE: the accepted words, NULL-terminated; "adamw|adam-w" is
                                     one choice with two spellings. Case does not matter */
    const char *metavar;        /**< name of the value in --help: "FILE", "N" */
    const char *group; /**< heading in --help; NULL: the heading of the option before this one */
    const char *help;  /**< one or two sentences without a final full stop */
    const char *bare;  /**< value if the flag is given without one; NULL: the flag needs a value */
    const char *env;   /**< name of the environment variable; NULL: <prefix><NAME> */
    const char *no_effect; /**< why the option changes nothing: "there is no GPU in this build" */
    /** if not NULL, any value but the default is an error. This text is part of the message and
     * says what to use instead. STRING: like a choice, the default in `value` may have several
     * spellings, e.g. "none|null" */
    const char *instead;
    /** text that fsdp_parse_args() prints after the name of a flag that was given and is not false;
     * NULL: nothing */
    const char *note;
    bool required; /**< it is an error if no source gives the option */
    bool optional; /**< if not given, it has no effect, and --print-config prints null */
    /** For a BOOL that other tools always write into files and environment variables, even if it is
     * false. In these, false therefore counts as not given; `no-name: true` gives false
     * explicitly */
    bool false_is_silence;
    bool hidden; /**< not shown by --help, but errors may suggest it */
} fsdp_option;

typedef struct fsdp_options fsdp_options;

typedef struct fsdp_options_spec {
    const char *program;  /**< "fsdp train" */
    const char *usage;    /**< text after the program's name: "--model DIR --data FILE [options]" */
    const char *summary;  /**< text before the options; paragraphs are wrapped */
    const char *epilogue; /**< text after the options (examples), printed as is; or NULL */
    const fsdp_option *table; /**< static storage: outlives every fsdp_options */
    size_t count;
    /** [n_compat] options of other tools that are accepted and change nothing. Each has no_effect
     * set, and FSDP_OPTION_NOWHERE as its offset. --help lists them under a heading of their own.
     * NULL: none. Static storage, like `table`. */
    const fsdp_option *compat;
    size_t n_compat;
    const char *env_prefix;   /**< NULL: "FSDP_" */
    const char *positional;   /**< positional words as shown in --help: "FILE..."; NULL: none are
                                   accepted */
    int min_positional;       /**< fewer positional words are an error */
    int max_positional;       /**< more positional words are an error; 0: no limit if `positional`
                                   is set */
    bool stop_at_positional;  /**< the first positional word ends the options (fsdp launch) */
    const char *config_alias; /**< another name of --config: "fsdp-config"; or NULL */
    /** Set the values that were not given (fsdp_options_given()) but follow from other values. May
     * be NULL. */
    void (*derive)(void *target, const fsdp_options *options);
    fsdp_status (*check)(void *target, const fsdp_options *options); /**< check values against each
                                                                          other; may be NULL */
    /** Called after derive for each option `name` for which fsdp_options_asked_for() is true.
     * Returns why the option has no effect, given the other values ("needs --validation-data";
     * static storage), or NULL if it has one. The member may be NULL. */
    const char *(*without_effect)(const void *target, const fsdp_options *options,
                                  const char *name);
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

FSDP_API fsdp_options_action fsdp_options_requested_action(const fsdp_options *options);
/** Check the required options and call spec->check. If the action is RUN, fsdp_options_parse() has
 * already done this. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_options_check(const fsdp_options *options, void *target);
/** Return the source of an option's value. `name` must be in the table (asserted). */
FSDP_API fsdp_option_origin fsdp_options_origin(const fsdp_options *options, const char *name);
/** Was the option given by a flag, a file or a variable? */
FSDP_API bool fsdp_options_given(const fsdp_options *options, const char *name);
/**
 * Does the user ask for what the option does? True if a flag gave the option, or if a file gave a
 * value other than the default (because files of other tools list every option). False for a value
 * that asks for nothing: the default of a switch, 0, or an empty text.
 */
FSDP_API bool fsdp_options_asked_for(const fsdp_options *options, const char *name);
/** Return where the option was given, e.g. "--batch_size", "run.yaml:7" or "FSDP_BATCH_SIZE"; NULL
 * if it has its default. */
FSDP_API const char *fsdp_options_source(const fsdp_options *options, const char *name);
/** Get the positional words: [*count] pointers into argv. */
FSDP_API char **fsdp_options_positional(const fsdp_options *options, int *count);

/** Make the text of --help, at most `columns` characters wide (80 to 100 are readable). Free it
 * with fsdp_text_free(). NULL when out of memory. */
FSDP_API char *fsdp_options_help(const fsdp_options_spec *spec, int columns);
/** Make the text of --print-config: YAML that gives the same values when --config reads it. Each
 * value has a comment that says where it came from. The options that were accepted without effect
 * follow. A value that was not given is itself printed as a comment: if it were read back, it would
 * count as given and could contradict the option from which it was derived. Free the text with
 * fsdp_text_free(). NULL when out of memory. */
FSDP_API char *fsdp_options_print(const fsdp_options *options, const void *target);
/** List the options that a flag or file gives and that change nothing, in one line for each reason:
 * "--machine-rank, --num-machines: ranks come from fsdp launch". The text is "" if every option
 * has an effect. Environment variables are left out, because other tools export them for all
 * programs. Free the text with fsdp_text_free(). NULL when out of memory. */
FSDP_API char *fsdp_options_notes(const fsdp_options *options);
/** Make the text of one option's value as a user would write it, e.g. "bfloat16". Free it with
 * fsdp_text_free(). NULL when out of memory. */
FSDP_API char *fsdp_option_text(const fsdp_option *option, const void *target);

#ifdef __cplusplus
}
#endif
