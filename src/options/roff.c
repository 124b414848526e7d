/* Writes roff: escaped text, sections, and the options of a table. */
#include "src/options/roff.h"

#include <ctype.h>
#include <string.h>

#include "src/options/options_parse.h"

enum {
    /* Maximum bytes of a line; the last word of the line is counted without its escapes. */
    ROFF_COLUMNS = 72
};

/* Append `c` so that roff prints it as it is. roff reads a backslash as the beginning of an escape.
 * It prints the other characters in `special` as typographic characters, which a user could not
 * paste into a shell. */
static void append_escaped(fsdp_str *out, char c)
{
    static const char special[] = "\\-'`^~";
    static const char *const escapes[] = {"\\e", "\\-", "\\(aq", "\\(ga", "\\(ha", "\\(ti"};
    const char *at = strchr(special, c);
    if (at && *at)
        fsdp_str_printf(out, "%s", escapes[at - special]);
    else
        fsdp_str_append(out, &c, 1);
}

static void append_word(fsdp_str *out, const char *word, size_t length)
{
    for (size_t i = 0; i < length; i++)
        append_escaped(out, word[i]);
}

void fsdp_roff_escape(fsdp_str *out, const char *text)
{
    append_word(out, text, strlen(text));
}

/* Append \& at the beginning of a line that roff would otherwise read as a request. */
static void protect_line(fsdp_str *out, const char *line)
{
    if (*line == '.' || *line == '\'')
        fsdp_str_printf(out, "\\&");
}

void fsdp_roff_text(fsdp_str *out, const char *text)
{
    /* `text` may continue the last line of `out`. */
    const char *line = out->data ? strrchr(out->data, '\n') : NULL;
    size_t begin = line ? (size_t)(line + 1 - out->data) : 0;
    bool first = true;
    while (*text) {
        const size_t length = strcspn(text, " \n");
        if (!first && out->len - begin + length > ROFF_COLUMNS) {
            fsdp_str_printf(out, "\n");
            begin = out->len;
            first = true;
        }
        if (first && begin == out->len)
            protect_line(out, text);
        else if (!first)
            fsdp_str_printf(out, " ");
        append_word(out, text, length);
        first = false;
        text += length;
        if (*text == '\n' && text[1]) {
            fsdp_str_printf(out, "\n.br\n");
            begin = out->len;
            first = true;
        }
        text += *text != 0;
        while (*text == ' ')
            text++;
    }
    fsdp_str_printf(out, "\n");
}

void fsdp_roff_example(fsdp_str *out, const char *text)
{
    fsdp_str_printf(out, ".nf\n");
    while (*text) {
        const size_t length = strcspn(text, "\n");
        protect_line(out, text);
        append_word(out, text, length);
        fsdp_str_printf(out, "\n");
        text += length + (text[length] == '\n');
    }
    fsdp_str_printf(out, ".fi\n");
}

void fsdp_roff_section(fsdp_str *out, const char *title)
{
    fsdp_str_printf(out, ".SH %s\n", title);
}

void fsdp_roff_item(fsdp_str *out, const char *tag, const char *text)
{
    fsdp_str_printf(out, ".TP\n\\fB");
    fsdp_roff_escape(out, tag);
    fsdp_str_printf(out, "\\fR\n");
    fsdp_roff_text(out, text);
}

/* Append the heading of a group of options, with a capital letter. */
static void append_group(fsdp_str *out, const char *group)
{
    const char first = (char)toupper((unsigned char)*group);
    fsdp_str_printf(out, ".SS ");
    append_word(out, &first, 1);
    fsdp_roff_escape(out, group + 1);
    fsdp_str_printf(out, "\n");
}

/* Append the line above the text of an option: its names and the name of its value. */
static void append_tag(fsdp_str *out, const fsdp_option *option)
{
    fsdp_str_printf(out, ".TP\n");
    for (const char *alias = option->aliases; alias && *alias;) {
        const size_t length = strcspn(alias, ",");
        if (length == 1)
            fsdp_str_printf(out, "\\fB\\-%c\\fR, ", *alias);
        alias += length + (alias[length] == ',');
    }
    const bool switchable = fsdp_option_is_switch(option) && strncmp(option->name, "no-", 3) != 0;
    fsdp_str_printf(out, "\\fB\\-\\-%s", switchable ? "[no\\-]" : "");
    fsdp_roff_escape(out, option->name);
    fsdp_str_printf(out, "\\fR");
    if (*fsdp_option_metavar(option)) {
        fsdp_str_printf(out, " \\fI");
        fsdp_roff_escape(out, fsdp_option_metavar(option));
        fsdp_str_printf(out, "\\fR");
    }
    fsdp_str_printf(out, "\n");
}

/* Return true if the manual page needs a line with the allowed values of the option. Options with
 * other types need none, because their help texts describe the values. */
static bool has_range(const fsdp_option *option)
{
    return option->type == FSDP_OPTION_CHOICE || option->bounds.set || option->infinite;
}

static void append_details(fsdp_str *text, const fsdp_option *option)
{
    if (has_range(option)) {
        fsdp_str_printf(text, "\nAllowed: ");
        fsdp_option_allowed(option, text);
    }
    if (option->required)
        fsdp_str_printf(text, "\nRequired");
    else if (option->shown_default)
        fsdp_str_printf(text, "\nDefault: %s", option->shown_default);
    else if (option->value && *option->value)
        fsdp_str_printf(text, "\nDefault: %s", option->value);
    bool any = false;
    for (const char *alias = option->aliases; alias && *alias;) {
        const size_t length = strcspn(alias, ",");
        if (length > 1)
            fsdp_str_printf(text, "%s--%.*s", any ? ", " : "\nAlso: ", (int)length, alias);
        any |= length > 1;
        alias += length + (alias[length] == ',');
    }
    if (option->env)
        fsdp_str_printf(text, "\nEnvironment: %s", option->env);
}

static void append_option(fsdp_str *out, const fsdp_option *option, const char *help)
{
    fsdp_str text = {0};
    fsdp_str_printf(&text, "%s", help ? help : "");
    append_details(&text, option);
    append_tag(out, option);
    if (text.failed)
        out->failed = true;
    else
        fsdp_roff_text(out, text.data[0] == '\n' ? text.data + 1 : text.data);
    fsdp_str_fini(&text);
}

/* Append the options of `table` whose `no_effect` is set, each with the reason. *any is as in
 * append_without_effect() of options_help.c. */
static void append_without_effect(fsdp_str *out, const fsdp_option *table, size_t count, bool *any)
{
    for (size_t i = 0; i < count; i++) {
        if (!table[i].no_effect || table[i].hidden)
            continue;
        if (!*any)
            append_group(out, "accepted, without effect here");
        *any = true;
        append_tag(out, &table[i]);
        fsdp_roff_text(out, table[i].no_effect);
    }
}

void fsdp_roff_options(fsdp_str *out, const fsdp_options_spec *spec)
{
    const char *group = "options", *shown = NULL;
    for (size_t i = 0; i < spec->count; i++) {
        const fsdp_option *option = &spec->table[i];
        group = option->group ? option->group : group;
        if (option->no_effect || option->hidden)
            continue;
        if (!shown || strcmp(shown, group) != 0)
            append_group(out, group);
        shown = group;
        append_option(out, option, option->help);
    }
    bool any = false;
    append_without_effect(out, spec->table, spec->count, &any);
    append_without_effect(out, spec->compat, spec->n_compat, &any);
    append_group(out, "always");
    for (size_t i = 0; i < fsdp_options_n_built_in; i++)
        append_option(out, &fsdp_options_built_in[i], fsdp_options_built_in[i].help);
}
