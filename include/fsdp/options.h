/**
 * @file
 * Parses the arguments of a program, like Python's argparse. A table describes each option once.
 * Flags, YAML keys, environment variables, --help, --print-config and the checks are derived from
 * the table.
 *
 * A command has a struct for its values, and a table that gives the place of each option in the
 * struct:
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
 * a value (true/false/yes/no/on/off/1/0). This value may be the next word. In a program with
 * positional words, the next word is the value only if fsdp_option.takes_word is set. A value that
 * begins with -- must be given as --name=value. If a flag is given several times, its last value
 * counts, and --no-name is the same flag as --name; fsdp_options_notes() names the other values.
 * But two different values of one option are an error if fsdp_option.several is set, or if the two
 * flags use different names of the option. -- ends options. A word that is neither an option nor an
 * option's value is positional. Every program also has --help (-h), --print-config, and --config
 * FILE.yaml. The word after --help selects the options that are described: `--help all` selects all
 * options, `--help --lr` selects one, and any other word selects the options that have this word in
 * their name, heading or description. If the value of --config begins with "{", it is not a file
 * name, but the YAML text itself.
 *
 * Sources of a value, highest precedence first: flag, YAML file, environment variable, default. The
 * variable of an option is FSDP_<NAME>, in upper case and with underscores for dashes; an empty
 * variable counts as unset.
 *
 * A table may also have options that only other tools need. An option can be without effect for two
 * reasons. If its field `no_effect` is set, it never changes anything in this program. If
 * fsdp_options_spec.without_effect() returns a text for it, it changes nothing now, because of the
 * values of other options. An option without effect is nevertheless checked like all others, stored
 * if it has a place, and listed by --print-config. An option whose field `instead` is set is not
 * supported: any value but its default is an error.
 *
 * Most errors are FSDP_ERR_INVALID. An option with `instead` gives FSDP_ERR_UNSUPPORTED. A YAML
 * file that cannot be read gives FSDP_ERR_NOT_FOUND, FSDP_ERR_FORMAT or FSDP_ERR_IO. The message
 * names the option and says where it was given, its value and the allowed values. For an unknown
 * name, the message suggests the nearest known one. The caller prints errors. It also prints the
 * help or the configuration if fsdp_options_requested_action() returns FSDP_OPTIONS_HELP or
 * FSDP_OPTIONS_PRINT_CONFIG.
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
    FSDP_OPTION_DOUBLE,      /**< double, infinite only if `infinite` is set; NAN if the option has
                                  no default and was not given */
    FSDP_OPTION_STRING,      /**< const char *, owned by the fsdp_options; NULL if the option has no
                                  default and was not given */
    FSDP_OPTION_CHOICE,      /**< int: index into `choices`, or an enum whose constants are in the
                                  order of `choices` */
    FSDP_OPTION_DTYPE,       /**< fsdp_dtype, by any name that fsdp_dtype_from_name() knows */
    FSDP_OPTION_SIZE,        /**< int64_t bytes: 4096, 8GiB, 512MB, 1.5g. KB, MB, GB, TB are powers
                                  of 1000; K, M, G, T and KiB, MiB, GiB, TiB are powers of 1024 */
    FSDP_OPTION_BOOL_OR_INT, /**< int: 0 for false, 1 for true, or a larger number within `bounds`.
                                  If `choices` is set, the value -1 - i means choices[i] */
    /** fsdp_option_list: a,b,c (spaces around items are ignored) or a YAML sequence. If several
     * lists are given, only the last one counts, unless `repeats` is set */
    FSDP_OPTION_LIST,
} fsdp_option_type;

typedef struct fsdp_option_list {
    const char *const *items; /**< owned by the fsdp_options; NULL if empty */
    size_t count;
} fsdp_option_list;

/** Bounds of a number or size. Use the macros below to write them. */
typedef struct fsdp_option_bounds {
    double min, max;
    bool set, above, below; /**< `set`: values are checked against min and max. `above`: the value
                                 min itself is not allowed. `below`: the value max itself is not
                                 allowed */
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
    size_t offset;     /**< place of the value: its offset in the command's struct, in bytes
                            (offsetof) */
    const char *value; /**< default, as a user would write it; NULL: the default is zero, false,
                            NULL or NAN, depending on the type */
    /** shown by --help instead of `value`, e.g. "number of cores / ranks" */
    const char *shown_default;
    fsdp_option_bounds bounds;  /**< INT, INT64, DOUBLE, SIZE */
    bool infinite;              /**< DOUBLE: inf is accepted */
    const char *const *choices; /**< CHOICE: the accepted words, NULL-terminated; "adamw|adam-w" is
                                     one choice with two spellings. Case does not matter */
    const char *const *completions; /**< words that a shell completes, NULL-terminated; other values
                                         are allowed, too. CHOICE and DTYPE need no such list */
    const char *metavar;            /**< name of the value in --help: "FILE", "N". If the name
                                         contains "FILE", "PATH" or "OUT", a shell completes files;
                                         if it contains "DIR", a shell completes folders */
    const char *group; /**< heading in --help; NULL: the heading of the option before this one */
    const char *help;  /**< one or two sentences without a final full stop */
    const char *bare;  /**< the value that the flag means if no value follows it; NULL: a value must
                            follow */
    /** name of the environment variable; NULL: the spec's env_prefix followed by the option's name,
     * e.g. FSDP_BATCH_SIZE. Several names are separated by commas: the first of them that is set
     * gives the value, e.g. "FSDP_MIXED_PRECISION,ACCELERATE_MIXED_PRECISION" */
    const char *env;
    const char *no_effect; /**< why the option changes nothing, e.g. "there is no GPU in this
                                build" */
    /** text that says what to use instead of this option; NULL: the option is supported. If the
     * text is not NULL, any value but the default is an error, and the message contains the text.
     * STRING: the default in `value` may have several spellings, e.g. "none|null" */
    const char *instead;
    /** text that fsdp_parse_args() prints after the name of a flag that was given and is not false;
     * NULL: nothing */
    const char *note;
    bool required; /**< it is an error if no source gives the option */
    bool optional; /**< if no source gives the option, it has no effect, and --print-config prints
                        null as its value */
    /** BOOL: if a file or an environment variable sets the option `name` to false, the option
     * counts as not given. This is for options that other tools always write, even if they are
     * false. But if the file has `no-name: true`, the option counts as given, with the value
     * false */
    bool false_is_silence;
    /** LIST: each flag gives one item, which may contain commas, and the items of all flags of a
     * command line form the list: --stop A --stop B */
    bool repeats;
    /** STRING: the words after the value that do not begin with a dash belong to it, too, if the
     * command has no positional words: --fsdp full_shard auto_wrap. A LIST always takes them:
     * --report_to tensorboard csv */
    bool takes_words;
    /** BOOL, BOOL_OR_INT: in a command that has positional words, the word after the flag may be
     * its value, too: --do_sample True. Without this field, a value needs an equals sign there
     * (--json=true), because the word may be a positional one: generate --json no. In a command
     * without positional words, every switch takes such a word */
    bool takes_word;
    /** STRING, LIST: two flags with different values are an error, because the user may believe
     * that both count. This text says how several are given: "--mix-data adds data". NULL: no error
     */
    const char *several;
    bool hidden; /**< not shown by --help, but errors may suggest it */
} fsdp_option;

typedef struct fsdp_options fsdp_options;

/** A map in a YAML file of another tool. If a key of the map does not begin with `prefix`, the
 * option's name is `prefix` followed by the key. For example, the key "version" in Accelerate's map
 * "fsdp_config" gives the option fsdp_version. */
typedef struct fsdp_options_section {
    const char *name;    /**< "fsdp_config" */
    const char *prefix;  /**< "fsdp_" */
    const char *instead; /**< text that says what to use instead of this map; NULL: the map is
                              supported. If the text is not NULL, a map that is not empty is an
                              error, and the message contains the text */
} fsdp_options_section;

typedef struct fsdp_options_spec {
    const char *program;  /**< "fsdp train" */
    const char *usage;    /**< text after the program's name: "--model DIR --data FILE [options]" */
    const char *summary;  /**< text that --help prints before the options; paragraphs are wrapped */
    const char *epilogue; /**< text that --help prints after the options (examples), without
                               wrapping it; or NULL */
    /** the rows of the page that plain --help shows (without a topic). A row is a heading and names
     * of options in `table`, such as "training: epochs batch-size lr"; NULL-terminated. NULL: plain
     * --help shows all options */
    const char *const *first_page;
    const fsdp_option *table; /**< static storage: outlives every fsdp_options */
    size_t count;
    /** [n_compat] options of other tools that are accepted and change nothing. Each has no_effect
     * set, and FSDP_OPTION_NOWHERE as its offset. --help lists them under a heading of their own.
     * NULL: none. Static storage, like `table`. */
    const fsdp_option *compat;
    size_t n_compat;
    const char *env_prefix; /**< NULL: "FSDP_" */
    const char *positional; /**< name of the positional words in errors: "FILE..."; NULL:
                                 positional words are an error */
    const char *const *positional_words; /**< words that a shell completes as positional words,
                                              NULL-terminated; NULL: files, or nothing if
                                              `positional` says that they are a TEXT or COMMAND */
    int min_positional;                  /**< minimum number of positional words */
    int max_positional;                  /**< maximum number of positional words; 0: no limit */
    bool stop_at_positional;  /**< the first positional word ends the options (fsdp launch) */
    const char *config_alias; /**< another name of --config: "fsdp-config"; or NULL */
    /** name of a flag whose value may be a JSON object of options: --lr-scheduler-kwargs
     * '{"min_lr": 1e-5}' has the same effect as --min-lr 1e-5. NULL: none */
    const char *map_flag;
    const char *map_keys; /**< the keys that the JSON object of map_flag may have, separated by
                               commas */
    /** [n_sections] the maps that a file may contain; a map with another name is an error, unless
     * `other_sections` is set. NULL: the name of a map does not matter */
    const fsdp_options_section *sections;
    size_t n_sections;
    bool other_sections; /**< true: maps with other names are accepted, and their names are
                              ignored */
    /** Set *path to the file that is read if --config is not given, or to NULL if there is none.
     * The caller owns the path and frees it with fsdp_text_free(). With `--config none`, no file is
     * read. The function pointer itself may be NULL. */
    fsdp_status (*default_config)(char **path);
    /** Return the reason why the option `name`, which is not in the table, is refused, e.g. "there
     * is no DeepSpeed here". Return NULL for any other name. The function pointer itself may be
     * NULL. */
    const char *(*refused_name)(const char *name);
    /** prefixes of the environment variables of other tools, separated by commas: "ACCELERATE_".
     * fsdp_options_notes() and fsdp_options_print() name the variables with such a prefix that no
     * option reads. They also name a variable that begins with env_prefix and that no option reads,
     * in two cases: it looks like a spelling mistake (FSDP_SHARDING_STRATGY), or it is env_prefix
     * followed by the name of an option that reads another variable. NULL: no variable is named,
     * not even one that begins with env_prefix */
    const char *env_named;
    /** Compute values that were not given (fsdp_options_given()) from other values. May be NULL. */
    void (*derive)(void *target, const fsdp_options *options);
    fsdp_status (*check)(void *target, const fsdp_options *options); /**< check values against each
                                                                          other; may be NULL */
    /** Called after `derive` for each option for which fsdp_options_asked_for() returns true. If
     * the values of other options leave option `name` without effect, return the reason, e.g.
     * "needs --validation-data", in static storage. Otherwise return NULL. The function pointer
     * itself may be NULL. */
    const char *(*without_effect)(const void *target, const fsdp_options *options,
                                  const char *name);
} fsdp_options_spec;

typedef enum fsdp_options_action {
    FSDP_OPTIONS_RUN,
    FSDP_OPTIONS_HELP,        /**< --help was given. No value was checked, and `target` is
                                   unchanged */
    FSDP_OPTIONS_PRINT_CONFIG /**< --print-config was given. Required options may be missing, and
                                   spec->check was not called */
} fsdp_options_action;

typedef enum fsdp_option_origin {
    FSDP_ORIGIN_DEFAULT,
    FSDP_ORIGIN_ENV,
    FSDP_ORIGIN_FILE,
    FSDP_ORIGIN_FLAG
} fsdp_option_origin;

/** Fill `target` from all sources. argv[0] is the command's name and is skipped. On success,
 * *options owns every string in `target` and must outlive it; the caller frees *options with
 * fsdp_options_destroy(). On failure, the contents of `target` are unspecified. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_options_parse(const fsdp_options_spec *spec, int argc,
                                                        char **argv, void *target,
                                                        fsdp_options **options);
FSDP_API void fsdp_options_destroy(fsdp_options *options); /**< accepts NULL */

FSDP_API fsdp_options_action fsdp_options_requested_action(const fsdp_options *options);
/** Check that required options were given, and call spec->check. fsdp_options_parse() does the same
 * if the action is FSDP_OPTIONS_RUN. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_options_check(const fsdp_options *options, void *target);
/** Return the kind of source that gave the option its value. `name` must be in the table
 * (asserted). */
FSDP_API fsdp_option_origin fsdp_options_origin(const fsdp_options *options, const char *name);
/** Return true if a flag, a file or an environment variable gave the option. */
FSDP_API bool fsdp_options_given(const fsdp_options *options, const char *name);
/**
 * Return true if the user asks for what the option does. The result depends on where the value of
 * the option comes from:
 * - a file: true, unless the value is the option's default. Files of other tools list every option,
 *   so a default in a file does not mean that the user asks for the option.
 * - a flag: true, with two exceptions. The result is false if the option is a switch and the value
 *   is its default. The result is also false if the value is the option's default, this default is
 *   0 or empty, and the type is neither CHOICE nor DTYPE.
 * - an environment variable: always false.
 */
FSDP_API bool fsdp_options_asked_for(const fsdp_options *options, const char *name);
/** Return where the option was given, e.g. "--batch_size", "run.yaml:7" or "FSDP_BATCH_SIZE"; NULL
 * if it has its default. */
FSDP_API const char *fsdp_options_source(const fsdp_options *options, const char *name);
/** Return the value of the option as it was given. Return NULL if the option has its default, if it
 * is a switch that was given without a value, or if the value is a YAML sequence. */
FSDP_API const char *fsdp_options_text(const fsdp_options *options, const char *name);
/** Return the option's name as it is spelled in the file that gave the option; NULL if no file gave
 * it. */
FSDP_API const char *fsdp_options_key(const fsdp_options *options, const char *name);
/** Return the name of the last configuration file that was read, or NULL if there was none. */
FSDP_API const char *fsdp_options_file(const fsdp_options *options);
/** Get the positional words: [*count] pointers into argv. */
FSDP_API char **fsdp_options_positional(const fsdp_options *options, int *count);

/** Make the text of --help all, which describes all options, at most `columns` characters wide (80
 * to 100 are readable). Free it with fsdp_text_free(). Return NULL when out of memory. */
FSDP_API char *fsdp_options_help(const fsdp_options_spec *spec, int columns);
/** Make the text that the --help of the command line asks for: spec->first_page, all options, or
 * those that the word after --help selects. Set *text to the text, which is freed with
 * fsdp_text_free().
 * @return FSDP_ERR_INVALID if the word selects no option; FSDP_ERR_UNSUPPORTED if it is a flag that
 *         the program refuses */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_options_requested_help(const fsdp_options *options,
                                                                 int columns, char **text);
/** Make the text of --print-config: YAML that gives the same values when --config reads it. After
 * each value, a comment says where the value came from. The line of an option that was not given is
 * a comment as a whole, so that --config does not read it. (If --config read the line, the option
 * would count as given. But the value in the line may have been derived from another option. If the
 * user then changes that other option, the two options contradict each other.) At the end, comments
 * list what was given without effect: options, values of flags that do not count, and environment
 * variables that no option reads (see fsdp_options_spec.env_named). Free the text with
 * fsdp_text_free(). Return NULL when out of memory. */
FSDP_API char *fsdp_options_print(const fsdp_options *options, const void *target);
/** List the options that a flag or a file has given but that have no effect. Options that have no
 * effect for the same reason share a line: "--machine-rank, --num-machines: ranks come from fsdp
 * launch". If there are no such options, the text is "". Options from environment variables are
 * left out, because other tools export these variables for all programs. If a file sets an option
 * to the default in fsdp_option.value, this option is left out, too, because files of other tools
 * list all options. If a flag was given several times, the text then has a line for each value but
 * the last one, because these values do not count. At the end, the text has a line for each
 * environment variable that no option reads, although it was probably meant for one
 * (fsdp_options_spec.env_named). Free the text with fsdp_text_free(). Return NULL when out of
 * memory. */
FSDP_API char *fsdp_options_notes(const fsdp_options *options);
/** Make the text of an option's value in `target`, as a user would write it, e.g. "bfloat16". Free
 * it with fsdp_text_free(). Return NULL when out of memory. */
FSDP_API char *fsdp_option_text(const fsdp_option *option, const void *target);

#ifdef __cplusplus
}
#endif
