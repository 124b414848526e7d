/* Derives from an option table what a shell completes. */
#include "src/options/completion.h"

#include <ctype.h>
#include <string.h>

#include "src/base/assert.h"
#include "src/options/options_parse.h"

enum {
    MOST_TOPICS = 64,
    TOPIC_BYTES = 24
};

/* The words that a shell offers after --help: those in the row of --help in fsdp_options_built_in,
 * and the words in the headings of the command's options. */
typedef struct topics {
    char texts[MOST_TOPICS][TOPIC_BYTES];
    const char *list[MOST_TOPICS + 1]; /* ends with NULL */
    size_t count;
} topics;

/* Add a word [length] in lower case. Skip it if it is in `t` already, if it is in `ignored` because
 * it says nothing about options, or if it has fewer than 4 or at least TOPIC_BYTES letters. */
static void add_topic(topics *t, const char *word, size_t length)
{
    static const char *const ignored[] = {"with", "other", "options", "several", "making"};
    char text[TOPIC_BYTES];
    if (length < 4 || length >= sizeof text || t->count == MOST_TOPICS)
        return;
    for (size_t i = 0; i < length; i++)
        text[i] = (char)tolower((unsigned char)word[i]);
    text[length] = '\0';
    for (size_t i = 0; i < FSDP_LENGTH(ignored); i++)
        if (strcmp(ignored[i], text) == 0)
            return;
    for (size_t i = 0; i < t->count; i++)
        if (strcmp(t->list[i], text) == 0)
            return;
    t->list[t->count] = memcpy(t->texts[t->count], text, length + 1);
    t->list[++t->count] = NULL;
}

static void add_heading(topics *t, const char *heading)
{
    while (*heading) {
        size_t length = 0;
        while (isalnum((unsigned char)heading[length]) || heading[length] == '-')
            length++;
        add_topic(t, heading, length);
        heading += length + (heading[length] != '\0');
    }
}

static void list_topics(const fsdp_options_spec *spec, topics *t)
{
    t->list[0] = NULL;
    t->count = 0;
    for (const char *const *word = fsdp_options_built_in[0].completions; *word; word++) {
        t->list[t->count] = *word;
        t->list[++t->count] = NULL;
    }
    for (size_t i = 0; i < spec->count; i++)
        if (spec->table[i].group && !spec->table[i].hidden && !spec->table[i].no_effect)
            add_heading(t, spec->table[i].group);
}

static void visit_table(const fsdp_option *table, size_t count, fsdp_option_visit_fn *visit,
                        void *arg)
{
    for (size_t i = 0; i < count; i++)
        if (!table[i].hidden)
            visit(&table[i], arg);
}

void fsdp_options_visit(const fsdp_options_spec *spec, fsdp_option_visit_fn *visit, void *arg)
{
    topics words;
    fsdp_option help = fsdp_options_built_in[0];
    list_topics(spec, &words);
    help.completions = words.list;
    visit_table(spec->table, spec->count, visit, arg);
    visit_table(spec->compat, spec->n_compat, visit, arg);
    visit(&help, arg);
    visit_table(fsdp_options_built_in + 1, fsdp_options_n_built_in - 1, visit, arg);
    if (spec->config_alias)
        visit(&(fsdp_option){.name = spec->config_alias,
                             .type = FSDP_OPTION_STRING,
                             .offset = FSDP_OPTION_NOWHERE,
                             .metavar = "FILE",
                             .help = "the same as --config"},
              arg);
}

/* Append a flag and, if it has one, its negation --no-NAME. */
static void append_flag(const fsdp_option *option, const char *name, int length, fsdp_str *out)
{
    if (length == 1) {
        fsdp_str_printf(out, " -%c", *name);
        return;
    }
    fsdp_str_printf(out, " --%.*s", length, name);
    if (fsdp_option_is_switch(option) && strncmp(name, "no-", 3) != 0)
        fsdp_str_printf(out, " --no-%.*s", length, name);
}

void fsdp_option_flags(const fsdp_option *option, fsdp_str *out)
{
    append_flag(option, option->name, (int)strlen(option->name), out);
    for (const char *alias = option->aliases; alias && *alias;) {
        const size_t length = strcspn(alias, ",");
        append_flag(option, alias, (int)length, out);
        alias += length + (alias[length] == ',');
    }
}

/* Return true if `text` contains one of `words`, a list that ends with NULL. */
static bool contains_any(const char *text, const char *const *words)
{
    for (; *words; words++)
        if (strstr(text, *words))
            return true;
    return false;
}

fsdp_value_kind fsdp_option_value_kind(const fsdp_option *option)
{
    static const char *const files[] = {"FILE", "PATH", "OUT", NULL};
    const char *metavar = fsdp_option_metavar(option);
    if (fsdp_option_is_switch(option) || !*metavar)
        return FSDP_VALUE_NONE;
    if (option->type == FSDP_OPTION_CHOICE || option->type == FSDP_OPTION_DTYPE)
        return FSDP_VALUE_WORDS;
    if (contains_any(metavar, files))
        return FSDP_VALUE_FILE;
    if (strstr(metavar, "DIR"))
        return FSDP_VALUE_FOLDER;
    return option->completions ? FSDP_VALUE_WORDS : FSDP_VALUE_TEXT;
}

void fsdp_option_words(const fsdp_option *option, fsdp_str *out)
{
    if (fsdp_option_is_switch(option))
        fsdp_str_printf(out, " true false");
    for (const char *const *choice = option->choices; choice && *choice; choice++)
        fsdp_str_printf(out, " %.*s", fsdp_option_choice_length(*choice), *choice);
    for (int i = 0; option->type == FSDP_OPTION_DTYPE && i < FSDP_DTYPE_COUNT; i++)
        if (fsdp_dtype_is_floating((fsdp_dtype)i))
            fsdp_str_printf(out, " %s", fsdp_dtype_name((fsdp_dtype)i));
    for (const char *const *word = option->completions; word && *word; word++)
        fsdp_str_printf(out, " %s", *word);
    if (option->bare)
        fsdp_str_printf(out, " %s", option->bare);
}

fsdp_value_kind fsdp_positional_kind(const fsdp_options_spec *spec)
{
    static const char *const texts[] = {"TEXT", "=", "COMMAND", NULL};
    if (spec->positional_words)
        return FSDP_VALUE_WORDS;
    if (!spec->positional)
        return FSDP_VALUE_NONE;
    return contains_any(spec->positional, texts) ? FSDP_VALUE_TEXT : FSDP_VALUE_FILE;
}
