/* Parses the command line and the environment, and applies all sources in order of precedence. The
 * other files of this folder find options by name (options_names.c), convert values
 * (options_value.c), compare flags that are given twice (options_twice.c), read YAML
 * (options_yaml.c), add the user's spellings to errors (options_spelling.c), and print help
 * (options_help.c) and configuration (options_print.c). */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/json.h"
#include "src/base/repr.h"
#include "src/options/options_parse.h"

/* A file of options that the command line names. */
typedef struct config_file {
    const char *flag; /* "config" or spec->config_alias */
    const char *path;
} config_file;

/* The state of the parser of the command line. */
typedef struct command_line {
    fsdp_options *options;
    int argc;
    char **argv;
    int at;                   /* index of the next word */
    fsdp_option_given *given; /* values of flags, in the order of the command line */
    size_t n_given, cap;
    config_file *files; /* the arguments of all --config flags */
    size_t n_files, files_cap;
} command_line;

static fsdp_status add_file(command_line *line, const char *flag, const char *path)
{
    if (!FSDP_GROW(line->files, line->files_cap, line->n_files + 1))
        return fsdp_error_nomem();
    line->files[line->n_files++] = (config_file){flag, path};
    return FSDP_OK;
}

/* Return the next word of the command line, which is a value, and advance line->at past it. If
 * there is no next word, or if the next word begins with "--", return NULL and do not advance. */
static const char *next_value(command_line *line)
{
    if (line->at >= line->argc || strncmp(line->argv[line->at], "--", 2) == 0)
        return NULL;
    return line->argv[line->at++];
}

/* If the flag takes several words, append the words that follow it on the command line to its value
 * *text. The options own the new *text. */
static fsdp_status add_words(command_line *line, const fsdp_option *option, const char **text)
{
    const bool is_list = option->type == FSDP_OPTION_LIST && !option->repeats;
    fsdp_str joined = {0};
    if ((!is_list && !option->takes_words) || line->options->spec->positional ||
        line->at >= line->argc || line->argv[line->at][0] == '-')
        return FSDP_OK;
    fsdp_str_printf(&joined, "%s", *text);
    for (; line->at < line->argc && line->argv[line->at][0] != '-'; line->at++)
        fsdp_str_printf(&joined, "%s%s", is_list ? "," : " ", line->argv[line->at]);
    *text = fsdp_options_own(line->options, fsdp_str_take(&joined));
    return *text ? FSDP_OK : fsdp_error_nomem();
}

static fsdp_status add_given(command_line *line, int index, bool negated, const char *text,
                             const char *spelled)
{
    const fsdp_option *option = &line->options->spec->table[index];
    if (fsdp_option_is_switch(option)) {
        const bool takes_word = option->takes_word || !line->options->spec->positional;
        if (!text && takes_word && line->at < line->argc &&
            fsdp_option_is_switch_value(option, line->argv[line->at]))
            text = line->argv[line->at++];
    } else if (!text && !(text = next_value(line)) && !(text = option->bare)) {
        fsdp_str allowed = {0};
        fsdp_option_allowed(option, &allowed);
        fsdp_status status = fsdp_error(FSDP_ERR_INVALID, "%s needs a value: %s", spelled,
                                        allowed.data ? allowed.data : "");
        fsdp_str_fini(&allowed);
        return status;
    }
    if (text && !fsdp_option_is_switch(option))
        FSDP_TRY(add_words(line, option, &text));
    if (!FSDP_GROW(line->given, line->cap, line->n_given + 1))
        return fsdp_error_nomem();
    line->given[line->n_given++] = (fsdp_option_given){.index = index,
                                                       .negated = negated,
                                                       .text = text,
                                                       .origin = FSDP_ORIGIN_FLAG,
                                                       .where = spelled};
    return FSDP_OK;
}

static bool is_config_alias(const fsdp_options_spec *spec, const char *name)
{
    return spec->config_alias &&
           fsdp_option_same_name(name, spec->config_alias, strlen(spec->config_alias));
}

/* Read the topic of --help: `value` if it is not NULL, and else the next word, if there is one. If
 * the next word is a flag, it is the topic only if it is the last word of the command line. In all
 * other cases, the user has probably put a --help without a topic before other flags. */
static void read_help(command_line *line, const char *value)
{
    const char *next = line->at < line->argc ? line->argv[line->at] : NULL;
    if (!value && next && (next[0] != '-' || line->at + 1 == line->argc))
        value = next;
    line->options->action = FSDP_OPTIONS_HELP;
    line->options->help_topic = value;
}

static fsdp_status read_built_in(command_line *line, const char *name, const char *value,
                                 bool *found)
{
    const bool is_config = strcmp(name, "config") == 0;
    *found = true;
    if (strcmp(name, "help") == 0) {
        read_help(line, value);
    } else if (fsdp_option_same_name(name, "print-config", strlen("print-config"))) {
        line->options->action = FSDP_OPTIONS_PRINT_CONFIG;
    } else if (is_config || is_config_alias(line->options->spec, name)) {
        if (!value && !(value = next_value(line)))
            return fsdp_error(FSDP_ERR_INVALID, "--%s needs a value: a YAML or JSON file", name);
        return add_file(line, is_config ? "config" : line->options->spec->config_alias, value);
    } else {
        *found = false;
    }
    return FSDP_OK;
}

/* Return the text that a flag would have for a JSON string, boolean or number. Return NULL for any
 * other value, or when out of memory. The caller owns the text. */
static char *scalar_text(fsdp_json_node value)
{
    char number[FSDP_REPR_BYTES];
    const char *text;
    double real;
    bool on;
    switch (fsdp_json_kind_of(value)) {
    case FSDP_JSON_STRING:
        return fsdp_json_get_str(value, NULL, &text) == FSDP_OK ? fsdp_strdup(text) : NULL;
    case FSDP_JSON_BOOL:
        return fsdp_json_get_bool(value, NULL, &on) == FSDP_OK ? fsdp_strdup(on ? "true" : "false")
                                                               : NULL;
    case FSDP_JSON_INT:
    case FSDP_JSON_REAL:
        if (fsdp_json_get_f64(value, NULL, &real) != FSDP_OK)
            return NULL;
        fsdp_f64_repr(real, number);
        return fsdp_strdup(number);
    default:
        return NULL;
    }
}

/* Add an option that the JSON object of spec->map_flag sets, as if the command line had a flag of
 * its own for it. `value` is a member of this object, and its key is the name of the option. */
static fsdp_status add_map_value(command_line *line, fsdp_json_node value, const char *flag)
{
    const fsdp_options_spec *spec = line->options->spec;
    char *where = fsdp_options_own(line->options, fsdp_strdup_printf("--%s %s", flag, value.key));
    bool is_known = false, negated;
    for (const char *known = spec->map_keys; *known && !is_known;) {
        const size_t length = strcspn(known, ",");
        is_known = fsdp_option_same_name(value.key, known, length);
        known += length + (known[length] == ',');
    }
    if (!where)
        return fsdp_error_nomem();
    if (!is_known)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--%s: '%.100s' is none of the keys that have an effect: %s", flag,
                          value.key, spec->map_keys);
    if (fsdp_json_kind_of(value) == FSDP_JSON_NULL)
        return FSDP_OK;
    char *text = fsdp_options_own(line->options, scalar_text(value));
    if (!text)
        return fsdp_error(FSDP_ERR_INVALID, "--%s: %s: expected a number", flag, value.key);
    const int index = fsdp_options_find(spec, value.key, &negated);
    FSDP_ASSERT(index >= 0);
    return add_given(line, index, false, text, where);
}

/* If `name` is spec->map_flag and its value is a JSON object, add the options that the members of
 * the object name, and set *found to true. Otherwise set *found to false. */
static fsdp_status read_map_flag(command_line *line, const char *name, const char *value,
                                 bool *found)
{
    const char *flag = line->options->spec->map_flag;
    *found = false;
    if (!value && line->at < line->argc)
        value = line->argv[line->at];
    if (!flag || !value || *value != '{' || !fsdp_option_same_name(name, flag, strlen(flag)))
        return FSDP_OK;
    *found = true;
    line->at += line->at < line->argc && value == line->argv[line->at];
    char source[160];
    fsdp_json *doc;
    snprintf(source, sizeof source, "--%s", name);
    FSDP_TRY(fsdp_json_parse(source, 1, value, strlen(value), &doc));
    fsdp_status status = FSDP_OK;
    for (fsdp_json_node v = fsdp_json_first(fsdp_json_root(doc)); v.value && status == FSDP_OK;
         v = fsdp_json_next(v))
        status = add_map_value(line, v, name);
    fsdp_json_destroy(doc);
    return status;
}

/* Read --name, --name=value or --no-name. */
static fsdp_status read_long(command_line *line, const char *word)
{
    const fsdp_options_spec *spec = line->options->spec;
    size_t length = strcspn(word, "=");
    char *spelled = fsdp_options_own(line->options, fsdp_strndup(word, length));
    if (!spelled)
        return fsdp_error_nomem();
    const char *name = spelled + 2, *value = word[length] ? word + length + 1 : NULL;
    bool negated, built_in, is_map;
    FSDP_TRY(read_map_flag(line, name, value, &is_map));
    if (is_map)
        return FSDP_OK;
    int index = fsdp_options_find(spec, name, &negated);
    if (index >= 0)
        return add_given(line, index, negated, value, spelled);
    FSDP_TRY(read_built_in(line, name, value, &built_in));
    return built_in ? FSDP_OK : fsdp_options_unknown(spec, "--", name);
}

/* Read -n value, -n=value or -nvalue. */
static fsdp_status read_short(command_line *line, const char *word)
{
    const char name[2] = {word[1], 0};
    bool negated;
    int index = fsdp_options_find(line->options->spec, name, &negated);
    if (index < 0 && strcmp(word, "-h") == 0) {
        read_help(line, NULL);
        return FSDP_OK;
    }
    /* A word such as -lr is probably a long name with a missing dash, so the error suggests a long
     * name. */
    if (index < 0)
        return word[2] ? fsdp_options_unknown(line->options->spec, "-", word + 1)
                       : fsdp_error(FSDP_ERR_INVALID, "unknown option '%s'", word);
    char *spelled = fsdp_options_own(line->options, fsdp_strndup(word, 2));
    if (!spelled)
        return fsdp_error_nomem();
    const char *value = word[2] ? word + 2 + (word[2] == '=') : NULL;
    return add_given(line, index, negated, value, spelled);
}

static fsdp_status read_positional(command_line *line, char *word)
{
    fsdp_options *o = line->options;
    const char *ending = strrchr(word, '.');
    const bool is_file = ending && (strcmp(ending, ".json") == 0 || strcmp(ending, ".yaml") == 0 ||
                                    strcmp(ending, ".yml") == 0);
    if (!o->spec->positional)
        return fsdp_error(FSDP_ERR_INVALID, "unexpected argument '%.200s'%s", word,
                          is_file ? "; --config FILE reads options from a file" : "");
    if (o->spec->max_positional && o->n_positional == o->spec->max_positional)
        return fsdp_error(FSDP_ERR_INVALID, "unexpected argument '%.200s': %d is the most (%s)",
                          word, o->spec->max_positional, o->spec->positional);
    o->positional[o->n_positional++] = word;
    return FSDP_OK;
}

static fsdp_status read_arguments(command_line *line)
{
    bool ended = false;
    while (line->at < line->argc && line->options->action != FSDP_OPTIONS_HELP) {
        char *word = line->argv[line->at++];
        bool dash = word[0] == '-' && word[1] && !isdigit((unsigned char)word[1]) && word[1] != '.';
        if (ended || !dash) {
            ended |= line->options->spec->stop_at_positional;
            FSDP_TRY(read_positional(line, word));
        } else if (strcmp(word, "--") == 0) {
            ended = true;
        } else if (word[1] == '-') {
            FSDP_TRY(read_long(line, word));
        } else {
            FSDP_TRY(read_short(line, word));
        }
    }
    return FSDP_OK;
}

static fsdp_status set_defaults(fsdp_options *options, void *target)
{
    for (size_t i = 0; i < options->spec->count; i++) {
        const fsdp_option *option = &options->spec->table[i];
        if (option->offset == FSDP_OPTION_NOWHERE)
            continue;
        if (!option->value) {
            fsdp_option_clear(option, (char *)target + option->offset);
            continue;
        }
        fsdp_option_given given = {.index = (int)i, .text = option->value};
        FSDP_TRY(fsdp_options_set(options, target, &given));
    }
    return FSDP_OK;
}

/* Set *name to the first environment variable of the option that is set and not empty, and *text to
 * its value. The options own both strings. *text is set to NULL if there is no such variable. */
static fsdp_status find_variable(fsdp_options *options, const fsdp_option *option,
                                 const char **name, const char **text)
{
    *text = NULL;
    for (size_t i = 0; !*text; i++) {
        char *variable;
        FSDP_TRY(fsdp_options_env_name(options->spec, option, i, &variable));
        if (!variable)
            return FSDP_OK;
        const char *value = getenv(variable);
        if (!value || !*value) {
            fsdp_free(variable);
            continue;
        }
        *name = fsdp_options_own(options, variable);
        *text = *name ? fsdp_options_own(options, fsdp_strdup(value)) : NULL;
        if (!*text)
            return fsdp_error_nomem();
    }
    return FSDP_OK;
}

static fsdp_status set_from_environment(fsdp_options *options, void *target)
{
    for (size_t i = 0; i < options->spec->count; i++) {
        const char *name, *text;
        FSDP_TRY(find_variable(options, &options->spec->table[i], &name, &text));
        if (!text)
            continue;
        fsdp_option_given given = {
            .index = (int)i, .text = text, .origin = FSDP_ORIGIN_ENV, .where = name};
        FSDP_TRY(fsdp_options_set(options, target, &given));
    }
    return FSDP_OK;
}

static fsdp_status read_file(fsdp_options *options, void *target, const char *flag,
                             const char *path)
{
    options->file = path;
    options->file_flag = flag;
    return fsdp_options_read_yaml(options, target, path);
}

/* Read the files of --config. If there is no such flag, read the file of spec->default_config, if
 * there is one. */
static fsdp_status read_files(fsdp_options *options, const command_line *line, void *target)
{
    const fsdp_options_spec *spec = options->spec;
    for (size_t i = 0; i < line->n_files; i++)
        if (!spec->default_config || strcmp(line->files[i].path, "none") != 0)
            FSDP_TRY(read_file(options, target, line->files[i].flag, line->files[i].path));
    if (line->n_files || !spec->default_config)
        return FSDP_OK;
    char *path;
    FSDP_TRY(spec->default_config(&path));
    if (!path)
        return FSDP_OK;
    path = fsdp_options_own(options, path);
    if (!path)
        return fsdp_error_nomem();
    const fsdp_status status = read_file(options, target, "config", path);
    fsdp_error_context(status, "the default file (--config none reads no file)");
    return status;
}

static bool asks_for_something(const struct option_source *source)
{
    return source->origin > FSDP_ORIGIN_ENV && !source->says_nothing;
}

static void find_in_vain(fsdp_options *options, const void *target)
{
    const fsdp_options_spec *spec = options->spec;
    for (size_t i = 0; spec->without_effect && i < spec->count; i++)
        if (asks_for_something(&options->sources[i]))
            options->sources[i].without_effect =
                spec->without_effect(target, options, spec->table[i].name);
}

fsdp_status fsdp_options_check(const fsdp_options *options, void *target)
{
    const fsdp_options_spec *spec = options->spec;
    for (size_t i = 0; i < spec->count; i++)
        if (spec->table[i].required && options->sources[i].origin == FSDP_ORIGIN_DEFAULT)
            return fsdp_error(FSDP_ERR_INVALID, "--%s is missing: %s", spec->table[i].name,
                              spec->table[i].help);
    if (options->n_positional < spec->min_positional)
        return fsdp_error(FSDP_ERR_INVALID, "an argument is missing: %s", spec->positional);
    return spec->check ? fsdp_options_add_spellings(options, spec->check(target, options))
                       : FSDP_OK;
}

static fsdp_status set_all(fsdp_options *options, command_line *line, void *target)
{
    FSDP_TRY(set_defaults(options, target));
    FSDP_TRY(set_from_environment(options, target));
    FSDP_TRY(read_files(options, line, target));
    for (size_t i = 0; i < line->n_given; i++)
        FSDP_TRY(fsdp_options_set(options, target, &line->given[i]));
    FSDP_TRY(fsdp_options_check_twice(options, line->given, line->n_given));
    if (options->spec->derive)
        options->spec->derive(target, options);
    find_in_vain(options, target);
    return options->action == FSDP_OPTIONS_RUN ? fsdp_options_check(options, target) : FSDP_OK;
}

/* Join the tables `table` and `compat` of the spec into one table, so that one index identifies any
 * option. */
static fsdp_status join_tables(fsdp_options *options, const fsdp_options_spec *spec)
{
    options->spec = spec;
    if (spec->n_compat == 0)
        return FSDP_OK;
    options->rows = fsdp_calloc(spec->count + spec->n_compat, sizeof *options->rows);
    if (!options->rows)
        return FSDP_ERR_NOMEM;
    memcpy(options->rows, spec->table, spec->count * sizeof *options->rows);
    for (size_t i = 0; i < spec->n_compat; i++) {
        FSDP_ASSERT(spec->compat[i].no_effect);
        FSDP_ASSERT(spec->compat[i].offset == FSDP_OPTION_NOWHERE);
        options->rows[spec->count + i] = spec->compat[i];
    }
    options->joined = *spec;
    options->joined.table = options->rows;
    options->joined.count += spec->n_compat;
    options->spec = &options->joined;
    return FSDP_OK;
}

/* Keep a copy of the command line, for fsdp_options_check_added(). */
static fsdp_status keep_words(fsdp_options *options, int argc, char **argv)
{
    options->argv = fsdp_calloc((size_t)argc + 1, sizeof *options->argv);
    if (!options->argv)
        return fsdp_error_nomem();
    for (; options->argc < argc; options->argc++) {
        char *word =
            fsdp_options_own(options, fsdp_strdup(argv[options->argc] ? argv[options->argc] : ""));
        if (!word)
            return fsdp_error_nomem();
        options->argv[options->argc] = word;
    }
    return FSDP_OK;
}

fsdp_status fsdp_options_parse(const fsdp_options_spec *spec, int argc, char **argv, void *target,
                               fsdp_options **out)
{
    fsdp_options *options = fsdp_calloc(1, sizeof *options);
    if (!options)
        return fsdp_error_nomem();
    fsdp_status status = join_tables(options, spec);
    options->sources = fsdp_calloc(options->spec->count, sizeof *options->sources);
    options->positional = fsdp_calloc((size_t)argc + 1, sizeof *options->positional);
    command_line line = {.options = options, .argc = argc, .argv = argv, .at = 1};
    if (!options->sources || !options->positional)
        status = fsdp_error_nomem();
    options->given_spec = spec;
    if (status == FSDP_OK)
        status = keep_words(options, argc, argv);
    if (status == FSDP_OK)
        status = read_arguments(&line);
    if (status == FSDP_OK && options->action != FSDP_OPTIONS_HELP)
        status = set_all(options, &line, target);
    fsdp_free(line.given);
    fsdp_free(line.files);
    if (status == FSDP_OK)
        *out = options;
    else
        fsdp_options_destroy(options);
    return status;
}

void fsdp_options_destroy(fsdp_options *options)
{
    if (!options)
        return;
    for (size_t i = 0; i < options->n_owned; i++)
        fsdp_free(options->owned[i]);
    fsdp_free(options->owned);
    fsdp_free(options->sources);
    fsdp_free(options->replaced);
    fsdp_free(options->positional);
    fsdp_free(options->argv);
    fsdp_free(options->rows);
    fsdp_free(options);
}

fsdp_options_action fsdp_options_requested_action(const fsdp_options *options)
{
    return options->action;
}

static const struct option_source *source_of(const fsdp_options *options, const char *name)
{
    bool negated;
    int index = fsdp_options_find(options->spec, name, &negated);
    FSDP_ASSERT(index >= 0 && !negated);
    return &options->sources[index];
}

fsdp_option_origin fsdp_options_origin(const fsdp_options *options, const char *name)
{
    return source_of(options, name)->origin;
}

bool fsdp_options_asked_for(const fsdp_options *options, const char *name)
{
    return asks_for_something(source_of(options, name));
}

const char *fsdp_options_source(const fsdp_options *options, const char *name)
{
    return source_of(options, name)->where;
}

const char *fsdp_options_text(const fsdp_options *options, const char *name)
{
    return source_of(options, name)->text;
}

const char *fsdp_options_key(const fsdp_options *options, const char *name)
{
    return source_of(options, name)->key;
}

const char *fsdp_options_file(const fsdp_options *options)
{
    return options->file;
}

const char *fsdp_options_without_effect(const fsdp_options *options, size_t i)
{
    const char *always = options->spec->table[i].no_effect;
    return always ? always : options->sources[i].without_effect;
}

bool fsdp_options_given(const fsdp_options *options, const char *name)
{
    return fsdp_options_origin(options, name) != FSDP_ORIGIN_DEFAULT;
}

char **fsdp_options_positional(const fsdp_options *options, int *count)
{
    *count = options->n_positional;
    return options->positional;
}
