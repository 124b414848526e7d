/* Derives from an option table what a shell completes. */
#include "src/options/completion.h"

#include <string.h>

#include "src/base/assert.h"
#include "src/options/options_parse.h"

static void visit_table(const fsdp_option *table, size_t count, fsdp_option_visit_fn *visit,
                        void *arg)
{
    for (size_t i = 0; i < count; i++)
        if (!table[i].hidden)
            visit(&table[i], arg);
}

void fsdp_options_visit(const fsdp_options_spec *spec, fsdp_option_visit_fn *visit, void *arg)
{
    visit_table(spec->table, spec->count, visit, arg);
    visit_table(spec->compat, spec->n_compat, visit, arg);
    visit_table(fsdp_options_built_in, fsdp_options_n_built_in, visit, arg);
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
