/* Makes the texts of --help and --print-config, and the list of options that were given but have no
 * effect. */
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/options/options_parse.h"

enum {
    HELP_COLUMN = 28,
    COMMENT_COLUMN = 40,
    MIN_COLUMNS = 60
};

/* Append `text`, wrapped to `columns` columns, and a newline. Its first line starts at column `at`,
 * all later lines at column `indent`. A code point counts as one column, so that accents do not
 * shorten lines. */
static void append_wrapped(fsdp_str *out, const char *text, int at, int indent, int columns)
{
    bool first = true;
    while (*text) {
        size_t length = strcspn(text, " \n");
        int width = 0;
        for (size_t i = 0; i < length; i++)
            width += (text[i] & 0xc0) != 0x80;
        if (!first && at + 1 + width > columns) {
            fsdp_str_printf(out, "\n%*s", indent, "");
            at = indent;
            first = true;
        }
        fsdp_str_printf(out, "%s%.*s", first ? "" : " ", (int)length, text);
        at += width + !first;
        first = false;
        text += length;
        if (*text == '\n') {
            fsdp_str_printf(out, "\n%*s", indent, "");
            at = indent;
            first = true;
        }
        text += *text != 0;
    }
    fsdp_str_printf(out, "\n");
}

/* Rows for the options that fsdp_options_parse() recognizes itself. They are only used to make
 * texts, so their types only say whether a value follows the name. */
const fsdp_option fsdp_options_built_in[] = {
    {.name = "help",
     .aliases = "h",
     .type = FSDP_OPTION_STRING,
     .offset = FSDP_OPTION_NOWHERE,
     .metavar = "",
     .help = "this text"},
    {.name = "config",
     .type = FSDP_OPTION_STRING,
     .offset = FSDP_OPTION_NOWHERE,
     .metavar = "FILE.yaml",
     .help = "options from a file, by the same names; flags win over it, it wins over the "
             "environment"},
    {.name = "print-config",
     .type = FSDP_OPTION_STRING,
     .offset = FSDP_OPTION_NOWHERE,
     .metavar = "",
     .help = "the values that would be used and where each comes from, as YAML; then exit"},
};
const size_t fsdp_options_n_built_in = FSDP_LENGTH(fsdp_options_built_in);

const char *fsdp_option_metavar(const fsdp_option *option)
{
    static const char *const by_type[] = {
        [FSDP_OPTION_BOOL] = "",        [FSDP_OPTION_INT] = "N",
        [FSDP_OPTION_INT64] = "N",      [FSDP_OPTION_DOUBLE] = "X",
        [FSDP_OPTION_STRING] = "TEXT",  [FSDP_OPTION_CHOICE] = "WORD",
        [FSDP_OPTION_DTYPE] = "DTYPE",  [FSDP_OPTION_SIZE] = "BYTES",
        [FSDP_OPTION_LIST] = "A,B,...", [FSDP_OPTION_BOOL_OR_INT] = "[N]",
    };
    return option->metavar ? option->metavar : option->repeats ? "TEXT" : by_type[option->type];
}

/* Append the left column of an option, such as "-n, --nproc-per-node N". One-letter aliases come
 * first. */
static void append_left(fsdp_str *out, const fsdp_option *option)
{
    fsdp_str_printf(out, "  ");
    for (const char *alias = option->aliases; alias && *alias;) {
        size_t length = strcspn(alias, ",");
        if (length == 1)
            fsdp_str_printf(out, "-%c, ", *alias);
        alias += length + (alias[length] == ',');
    }
    bool switchable = fsdp_option_is_switch(option) && strncmp(option->name, "no-", 3) != 0;
    fsdp_str_printf(out, "--%s%s", switchable ? "[no-]" : "", option->name);
    if (*fsdp_option_metavar(option))
        fsdp_str_printf(out, " %s", fsdp_option_metavar(option));
}

/* Append the right column of an option: help text, allowed values, default and other names. */
static void append_right(fsdp_str *out, const fsdp_option *option)
{
    const char *help = option->help ? option->help : "";
    fsdp_str_printf(out, "%s", help);
    if (option->type == FSDP_OPTION_CHOICE) {
        /* After a text of several parts, a colon would seem to belong to the last part alone. */
        fsdp_str_printf(out, "%s", strpbrk(help, ":;") ? "; it takes " : ": ");
        fsdp_option_allowed(option, out);
    }
    if (option->required)
        fsdp_str_printf(out, " (required)");
    else if (option->shown_default)
        fsdp_str_printf(out, " (default: %s)", option->shown_default);
    else if (option->value && *option->value)
        fsdp_str_printf(out, " (default: %s)", option->value);
    bool any = false;
    for (const char *alias = option->aliases; alias && *alias;) {
        size_t length = strcspn(alias, ",");
        if (length > 1) {
            fsdp_str_printf(out, "%s--%.*s", any ? ", " : " [also ", (int)length, alias);
            any = true;
        }
        alias += length + (alias[length] == ',');
    }
    if (any)
        fsdp_str_printf(out, "]");
}

static void append_row(fsdp_str *out, const char *left, const char *right, int columns)
{
    int width = (int)strlen(left);
    if (width + 2 > HELP_COLUMN)
        fsdp_str_printf(out, "%s\n%*s", left, HELP_COLUMN, "");
    else
        fsdp_str_printf(out, "%-*s", HELP_COLUMN, left);
    append_wrapped(out, right, HELP_COLUMN, HELP_COLUMN, columns);
}

static void append_option(fsdp_str *out, const fsdp_option *option, int columns)
{
    fsdp_str left = {0}, right = {0};
    append_left(&left, option);
    append_right(&right, option);
    if (left.failed || right.failed)
        out->failed = true;
    else
        append_row(out, left.data, right.data ? right.data : "", columns);
    fsdp_str_fini(&left);
    fsdp_str_fini(&right);
}

/* Append the options of `table` whose `no_effect` is set. If *any is false, append the heading
 * before the first of them and set *any to true. In this way, several tables share one heading. */
static void append_without_effect(fsdp_str *out, const fsdp_option *table, size_t count, bool *any,
                                  int columns)
{
    for (size_t i = 0; i < count; i++) {
        const fsdp_option *option = &table[i];
        if (!option->no_effect || option->hidden)
            continue;
        fsdp_str left = {0};
        append_left(&left, option);
        if (!*any)
            fsdp_str_printf(out, "\naccepted, without effect here:\n");
        *any = true;
        if (left.failed)
            out->failed = true;
        else
            append_row(out, left.data, option->no_effect, columns);
        fsdp_str_fini(&left);
    }
}

/* Append the usage. spec->usage has one line for each form of the command line. */
static void append_usage(fsdp_str *out, const fsdp_options_spec *spec, int columns)
{
    const char *usage = spec->usage ? spec->usage : "[options]";
    const int margin = (int)strlen("usage: "), indent = margin + (int)strlen(spec->program) + 1;
    fsdp_str first = {0};
    fsdp_str_append(&first, usage, strcspn(usage, "\n"));
    fsdp_str_printf(out, "usage: %s ", spec->program);
    append_wrapped(out, first.data ? first.data : "", indent, indent, columns);
    out->failed |= first.failed;
    fsdp_str_fini(&first);
    usage = strchr(usage, '\n');
    if (!usage)
        return;
    fsdp_str_printf(out, "%*s", margin, "");
    append_wrapped(out, usage + 1, margin, margin, columns);
}

char *fsdp_options_help(const fsdp_options_spec *spec, int columns)
{
    fsdp_str out = {0};
    const char *group = "options";
    bool heading = true;
    if (columns < MIN_COLUMNS)
        columns = MIN_COLUMNS;
    append_usage(&out, spec, columns);
    if (spec->summary) {
        fsdp_str_printf(&out, "\n");
        append_wrapped(&out, spec->summary, 0, 0, columns);
    }
    for (size_t i = 0; i < spec->count; i++) {
        const fsdp_option *option = &spec->table[i];
        if (option->group && strcmp(option->group, group) != 0) {
            group = option->group;
            heading = true;
        }
        if (option->no_effect || option->hidden)
            continue;
        if (heading)
            fsdp_str_printf(&out, "\n%s:\n", group);
        heading = false;
        append_option(&out, option, columns);
    }
    bool any = false;
    append_without_effect(&out, spec->table, spec->count, &any, columns);
    append_without_effect(&out, spec->compat, spec->n_compat, &any, columns);
    fsdp_str_printf(&out, "\nalways:\n");
    for (size_t i = 0; i < fsdp_options_n_built_in; i++)
        append_option(&out, &fsdp_options_built_in[i], columns);
    fsdp_str_printf(&out, "\n");
    fsdp_str note = {0};
    fsdp_str_printf(&note,
                    "A dash in a name equals an underscore. Each option can also come from the "
                    "environment: %s and its name in capitals, dashes as underscores.",
                    spec->env_prefix ? spec->env_prefix : "FSDP_");
    append_wrapped(&out, note.data ? note.data : "", 0, 0, columns);
    fsdp_str_fini(&note);
    if (spec->epilogue)
        fsdp_str_printf(&out, "\n%s", spec->epilogue);
    return fsdp_str_take(&out);
}

/* Append `text` as a double-quoted YAML scalar. */
static void append_quoted(fsdp_str *out, const char *text)
{
    fsdp_str_printf(out, "\"");
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            fsdp_str_printf(out, "\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            fsdp_str_printf(out, "\\x%02X", c);
        else
            fsdp_str_append(out, text, 1);
    }
    fsdp_str_printf(out, "\"");
}

static void append_value(fsdp_str *out, const fsdp_option *option, const void *target)
{
    const void *place = (const char *)target + option->offset;
    if (option->type == FSDP_OPTION_STRING) {
        const char *text = *(const char *const *)place;
        text ? append_quoted(out, text) : fsdp_str_printf(out, "null");
        return;
    }
    if (option->type == FSDP_OPTION_LIST) {
        fsdp_option_list list = *(const fsdp_option_list *)place;
        fsdp_str_printf(out, "[");
        for (size_t i = 0; i < list.count; i++) {
            fsdp_str_printf(out, i ? ", " : "");
            append_quoted(out, list.items[i]);
        }
        fsdp_str_printf(out, "]");
        return;
    }
    char *text = fsdp_option_text(option, target);
    out->failed |= !text;
    fsdp_str_printf(out, "%s", text ? text : "");
    fsdp_free(text);
}

/* Append a YAML line that sets the option to its current value, without the newline. The line is
 * "name: value". There is one exception: if option->false_is_silence is set and the value is false,
 * the line is "no-name: true". If `by_default` is true, append the line as a comment. In the
 * comment, the value of an option with `optional` is null. */
static void append_setting(fsdp_str *out, const fsdp_option *option, bool by_default,
                           const void *target)
{
    const char *place = (const char *)target + option->offset;
    if (option->false_is_silence && !by_default && !*(const bool *)place) {
        fsdp_str_printf(out, "no-%s: true", option->name);
        return;
    }
    fsdp_str_printf(out, "%s%s: ", by_default ? "# " : "", option->name);
    if (option->optional && by_default)
        fsdp_str_printf(out, "null");
    else
        append_value(out, option, target);
}

char *fsdp_options_print(const fsdp_options *options, const void *target)
{
    static const char *const kinds[] = {"default", "environment ", "", "flag "};
    const fsdp_options_spec *spec = options->spec;
    fsdp_str out = {0};
    bool any = false;
    for (size_t i = 0; i < spec->count; i++) {
        const fsdp_option *option = &spec->table[i];
        const struct option_source *source = &options->sources[i];
        if (option->offset == FSDP_OPTION_NOWHERE ||
            (option->no_effect && source->origin == FSDP_ORIGIN_DEFAULT))
            continue;
        const bool by_default = source->origin == FSDP_ORIGIN_DEFAULT;
        size_t begin = out.len;
        append_setting(&out, option, by_default, target);
        int pad = COMMENT_COLUMN - (int)(out.len - begin);
        fsdp_str_printf(&out, "%*s # %s%s\n", pad > 0 ? pad : 0, "", kinds[source->origin],
                        source->where ? source->where : "");
    }
    for (size_t i = 0; i < spec->count; i++) {
        const fsdp_option *option = &spec->table[i];
        const struct option_source *source = &options->sources[i];
        const char *without_effect = fsdp_options_without_effect(options, i);
        if (!without_effect || source->origin == FSDP_ORIGIN_DEFAULT)
            continue;
        if (!any)
            fsdp_str_printf(&out, "\n# accepted, without effect here:\n");
        any = true;
        fsdp_str_printf(&out, "#   %s", option->name);
        if (source->text) {
            fsdp_str_printf(&out, " ");
            append_quoted(&out, source->text);
        }
        fsdp_str_printf(&out, " (%s%s): %s\n", kinds[source->origin], source->where,
                        without_effect);
    }
    fsdp_str unread = {0};
    fsdp_options_unread_variables(spec, "#   ", &unread);
    if (unread.len && !any)
        fsdp_str_printf(&out, "\n# accepted, without effect here:\n");
    fsdp_str_printf(&out, "%s", unread.len ? unread.data : "");
    out.failed |= unread.failed;
    fsdp_str_fini(&unread);
    return fsdp_str_take(&out);
}

/* Return the reason why option `i` has no effect, if a flag or file gave the option. Return NULL if
 * the option has an effect, if no flag and no file gave it, or if a file gave its default. */
static const char *without_effect(const fsdp_options *options, size_t i)
{
    const struct option_source *source = &options->sources[i];
    const fsdp_option *option = &options->spec->table[i];
    const bool by_file = source->origin == FSDP_ORIGIN_FILE && source->says_nothing &&
                         (option->value || option->type == FSDP_OPTION_LIST);
    return source->origin > FSDP_ORIGIN_ENV && !by_file ? fsdp_options_without_effect(options, i)
                                                        : NULL;
}

static bool is_without_effect_for(const fsdp_options *options, size_t i, const char *reason)
{
    const char *own = without_effect(options, i);
    return own && strcmp(own, reason) == 0;
}

/* Return true if an option before option `i` has no effect for the same reason. The line for that
 * earlier option also lists option `i`. */
static bool is_noted(const fsdp_options *options, size_t i, const char *reason)
{
    for (size_t k = 0; k < i; k++)
        if (is_without_effect_for(options, k, reason))
            return true;
    return false;
}

char *fsdp_options_notes(const fsdp_options *options)
{
    const fsdp_option *table = options->spec->table;
    fsdp_str out = {0};
    fsdp_str_printf(&out, "%s", "");
    for (size_t i = 0; i < options->spec->count; i++) {
        const char *reason = without_effect(options, i);
        if (!reason || is_noted(options, i, reason))
            continue;
        for (size_t k = i; k < options->spec->count; k++)
            if (is_without_effect_for(options, k, reason))
                fsdp_str_printf(&out, "%s--%s", k == i ? "" : ", ", table[k].name);
        fsdp_str_printf(&out, ": %s\n", reason);
    }
    fsdp_options_unread_variables(options->spec, "", &out);
    return fsdp_str_take(&out);
}
