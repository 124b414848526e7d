/* Makes the texts of --help. There are three: the first page, which has the options that most runs
 * use; all options; and the options that a word selects. */
#include <ctype.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/options/options_parse.h"

enum {
    HELP_COLUMN = 28,
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

#define ALL_OPTIONS "all"
static const char *const help_words[] = {ALL_OPTIONS, NULL};

/* Rows for the options that fsdp_options_parse() recognizes itself. They are only used to make
 * texts, so their types only say whether a value follows the name. */
const fsdp_option fsdp_options_built_in[] = {
    {.name = "help",
     .aliases = "h",
     .type = FSDP_OPTION_STRING,
     .offset = FSDP_OPTION_NOWHERE,
     .metavar = "[WORD]",
     .completions = help_words,
     .help = "this text; WORD: the options with this word in name, heading or description; all: "
             "all options"},
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

/* Return true if the character at `at` is a full stop that ends a sentence. The full stops in
 * "e.g. one" and "FSDP_... of" do not end one. */
static bool ends_sentence(const char *at)
{
    return at[0] == '.' && at[1] == ' ' && isupper((unsigned char)at[2]);
}

/* Return the length of the part of a help text that the first page shows: up to the first semicolon
 * or the first end of a sentence that is not in parentheses. */
static size_t brief_length(const char *help)
{
    int depth = 0;
    size_t i = 0;
    for (; help[i]; i++) {
        depth += (help[i] == '(') - (help[i] == ')');
        if (depth == 0 && (help[i] == ';' || ends_sentence(help + i)))
            break;
    }
    return i;
}

static void append_other_names(fsdp_str *out, const fsdp_option *option)
{
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

/* Append the right column of an option: help text, allowed values, default and other names. If
 * `brief` is true, append only the beginning of the help text, and no other names. */
static void append_right(fsdp_str *out, const fsdp_option *option, bool brief)
{
    const char *help = option->help ? option->help : "";
    const size_t length = brief ? brief_length(help) : strlen(help);
    fsdp_str_append(out, help, length);
    if (option->type == FSDP_OPTION_CHOICE) {
        /* After a text of several parts, a colon would seem to belong to the last part alone. */
        fsdp_str_printf(out, "%s", strcspn(help, ":;") < length ? "; it takes " : ": ");
        fsdp_option_allowed(option, out);
    }
    if (option->required)
        fsdp_str_printf(out, " (required)");
    else if (option->shown_default)
        fsdp_str_printf(out, " (default: %s)", option->shown_default);
    else if (option->value && *option->value)
        fsdp_str_printf(out, " (default: %s)", option->value);
    if (!brief)
        append_other_names(out, option);
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

static void append_option(fsdp_str *out, const fsdp_option *option, bool brief, int columns)
{
    fsdp_str left = {0}, right = {0};
    append_left(&left, option);
    append_right(&right, option, brief);
    if (left.failed || right.failed)
        out->failed = true;
    else
        append_row(out, left.data, right.data ? right.data : "", columns);
    fsdp_str_fini(&left);
    fsdp_str_fini(&right);
}

/* Append an option with `reason`, which says why it has no effect or is not supported. */
static void append_with_reason(fsdp_str *out, const fsdp_option *option, const char *reason,
                               int columns)
{
    fsdp_str left = {0};
    append_left(&left, option);
    if (left.failed)
        out->failed = true;
    else
        append_row(out, left.data, reason, columns);
    fsdp_str_fini(&left);
}

static char plain(char c)
{
    return c == '_' || c == ' ' ? '-' : (char)tolower((unsigned char)c);
}

/* Return true if a word of `text` begins with `word`. Case is ignored. A dash, an underscore and a
 * blank count as the same character. */
static bool has_word(const char *text, const char *word)
{
    const size_t n = strlen(word);
    for (const char *at = text; at && *at; at++) {
        size_t i = 0;
        if (at > text && isalnum((unsigned char)at[-1]))
            continue;
        while (i < n && at[i] && plain(at[i]) == plain(word[i]))
            i++;
        if (i == n)
            return true;
    }
    return false;
}

/* Return true if `word` is NULL, or if it is a word of the heading, of the option's names, or of
 * the text that describes the option. When out of memory, set out->failed. */
static bool is_selected(fsdp_str *out, const fsdp_option *option, const char *group,
                        const char *word)
{
    if (!word || has_word(group, word))
        return true;
    fsdp_str text = {0};
    append_left(&text, option);
    fsdp_str_printf(&text, " ");
    append_right(&text, option, false);
    fsdp_str_printf(&text, " %s", option->no_effect ? option->no_effect : "");
    out->failed |= text.failed;
    const bool selected = !text.failed && has_word(text.data, word);
    fsdp_str_fini(&text);
    return selected;
}

#define NO_EFFECT_HEADING "accepted, without effect here"
#define ALWAYS_HEADING "always"

/* Append the options of `table` whose `no_effect` is set and which `word` selects. If *any is
 * false, append the heading before the first of them and set *any to true. In this way, several
 * tables share one heading. */
static void append_without_effect(fsdp_str *out, const fsdp_option *table, size_t count,
                                  const char *word, bool *any, int columns)
{
    for (size_t i = 0; i < count; i++) {
        const fsdp_option *option = &table[i];
        if (!option->no_effect || option->hidden ||
            !is_selected(out, option, NO_EFFECT_HEADING, word))
            continue;
        if (!*any)
            fsdp_str_printf(out, "\n" NO_EFFECT_HEADING ":\n");
        *any = true;
        append_with_reason(out, option, option->no_effect, columns);
    }
}

/* Append the options of the spec that `word` selects, under their headings. If `word` is NULL,
 * append all options. */
static void append_options(fsdp_str *out, const fsdp_options_spec *spec, const char *word,
                           int columns)
{
    const char *group = "options", *shown = NULL;
    for (size_t i = 0; i < spec->count; i++) {
        const fsdp_option *option = &spec->table[i];
        group = option->group ? option->group : group;
        if (option->no_effect || option->hidden || !is_selected(out, option, group, word))
            continue;
        if (!shown || strcmp(shown, group) != 0)
            fsdp_str_printf(out, "\n%s:\n", group);
        shown = group;
        append_option(out, option, false, columns);
    }
    bool any = false;
    append_without_effect(out, spec->table, spec->count, word, &any, columns);
    append_without_effect(out, spec->compat, spec->n_compat, word, &any, columns);
    any = false;
    for (size_t i = 0; i < fsdp_options_n_built_in; i++) {
        if (!is_selected(out, &fsdp_options_built_in[i], ALWAYS_HEADING, word))
            continue;
        if (!any)
            fsdp_str_printf(out, "\n" ALWAYS_HEADING ":\n");
        any = true;
        append_option(out, &fsdp_options_built_in[i], false, columns);
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

static void append_head(fsdp_str *out, const fsdp_options_spec *spec, int columns)
{
    append_usage(out, spec, columns);
    if (!spec->summary)
        return;
    fsdp_str_printf(out, "\n");
    append_wrapped(out, spec->summary, 0, 0, columns);
}

static void append_foot(fsdp_str *out, const fsdp_options_spec *spec, int columns)
{
    fsdp_str note = {0};
    fsdp_str_printf(&note,
                    "A dash in a name equals an underscore. Each option can also come from the "
                    "environment: %s and its name in capitals, dashes as underscores.",
                    spec->env_prefix ? spec->env_prefix : "FSDP_");
    fsdp_str_printf(out, "\n");
    append_wrapped(out, note.data ? note.data : "", 0, 0, columns);
    out->failed |= note.failed;
    fsdp_str_fini(&note);
    if (spec->epilogue)
        fsdp_str_printf(out, "\n%s", spec->epilogue);
}

static int at_least_min(int columns)
{
    return columns < MIN_COLUMNS ? MIN_COLUMNS : columns;
}

char *fsdp_options_help(const fsdp_options_spec *spec, int columns)
{
    fsdp_str out = {0};
    columns = at_least_min(columns);
    append_head(&out, spec, columns);
    append_options(&out, spec, NULL, columns);
    append_foot(&out, spec, columns);
    return fsdp_str_take(&out);
}

/* Return the row of the spec's table with this name [length], or NULL. */
static const fsdp_option *find_row(const fsdp_options_spec *spec, const char *name, size_t length)
{
    for (size_t i = 0; i < spec->count; i++)
        if (strncmp(spec->table[i].name, name, length) == 0 && !spec->table[i].name[length])
            return &spec->table[i];
    return NULL;
}

/* Append a row of spec->first_page: its heading and its options. */
static void append_first_group(fsdp_str *out, const fsdp_options_spec *spec, const char *row,
                               int columns)
{
    size_t length = strcspn(row, ":");
    fsdp_str_printf(out, "\n%.*s:\n", (int)length, row);
    for (const char *at = row + length + 1; *at; at += length) {
        at += strspn(at, " ");
        length = strcspn(at, " ");
        const fsdp_option *option = find_row(spec, at, length);
        FSDP_ASSERT(option);
        append_option(out, option, true, columns);
    }
}

/* Return the number of options that --help all shows. Append their headings to `headings`, with
 * commas between them. */
static size_t list_headings(const fsdp_options_spec *spec, fsdp_str *headings)
{
    const char *group = "options", *shown = NULL;
    size_t n = fsdp_options_n_built_in;
    for (size_t i = 0; i < spec->count; i++) {
        const fsdp_option *option = &spec->table[i];
        group = option->group ? option->group : group;
        n += !option->hidden;
        if (option->no_effect || option->hidden || (shown && strcmp(shown, group) == 0))
            continue;
        /* A table may have a heading twice. */
        if (!headings->data || !strstr(headings->data, group))
            fsdp_str_printf(headings, "%s%s", shown ? "; " : "", group);
        shown = group;
    }
    for (size_t i = 0; i < spec->n_compat; i++)
        n += !spec->compat[i].hidden;
    return n;
}

/* Append the end of the first page, which says how to see the other options. */
static void append_more(fsdp_str *out, const fsdp_options_spec *spec, int columns)
{
    fsdp_str headings = {0}, words = {0}, all = {0};
    const size_t n = list_headings(spec, &headings);
    fsdp_str_printf(&words,
                    "the options with WORD in name, heading or description, in full. The headings "
                    "are: %s",
                    headings.data ? headings.data : "");
    fsdp_str_printf(&all, "all %zu options", n);
    out->failed |= headings.failed || words.failed || all.failed;
    if (!out->failed) {
        fsdp_str_printf(out, "\nmore:\n");
        append_row(out, "  --help WORD", words.data, columns);
        append_row(out, "  --help --NAME", "one option in full, with its other names", columns);
        append_row(out, "  --help " ALL_OPTIONS, all.data, columns);
    }
    fsdp_str_fini(&all);
    fsdp_str_fini(&words);
    fsdp_str_fini(&headings);
    for (size_t i = 1; i < fsdp_options_n_built_in; i++)
        append_option(out, &fsdp_options_built_in[i], true, columns);
}

static char *first_page(const fsdp_options_spec *spec, int columns)
{
    fsdp_str out = {0};
    append_head(&out, spec, columns);
    for (const char *const *row = spec->first_page; *row; row++)
        append_first_group(&out, spec, *row, columns);
    append_more(&out, spec, columns);
    append_foot(&out, spec, columns);
    return fsdp_str_take(&out);
}

/* Make the text about one option, whose row is `option`. */
static char *describe_option(const fsdp_option *option, int columns)
{
    fsdp_str out = {0};
    if (option->instead) {
        fsdp_str_printf(&out, "not supported:\n");
        append_with_reason(&out, option, option->instead, columns);
    } else if (option->no_effect) {
        fsdp_str_printf(&out, NO_EFFECT_HEADING ":\n");
        append_with_reason(&out, option, option->no_effect, columns);
    } else {
        append_option(&out, option, false, columns);
    }
    return fsdp_str_take(&out);
}

/* Make the text about the option that `flag` names: "--lr" or "-n". */
static fsdp_status describe_flag(const fsdp_options *options, const char *flag, int columns,
                                 char **text)
{
    const char *name = flag + strspn(flag, "-");
    bool negated;
    const int index = fsdp_options_find(options->spec, name, &negated);
    const fsdp_option *option = index >= 0 ? &options->spec->table[index] : NULL;
    for (size_t i = 0; !option && i < fsdp_options_n_built_in; i++)
        if (fsdp_option_same_name(name, fsdp_options_built_in[i].name,
                                  strlen(fsdp_options_built_in[i].name)))
            option = &fsdp_options_built_in[i];
    if (!option)
        return fsdp_options_unknown(options->spec, "--", name);
    *text = describe_option(option, columns);
    return *text ? FSDP_OK : fsdp_error_nomem();
}

/* Make the text about the options that `word` selects. */
static fsdp_status describe_word(const fsdp_options *options, const char *word, int columns,
                                 char **text)
{
    const fsdp_options_spec *spec = options->given_spec;
    char near[OPTION_NAME_BYTES];
    fsdp_str out = {0};
    append_options(&out, spec, word, columns);
    if (out.len || out.failed) {
        char *found = fsdp_str_take(&out);
        if (!found)
            return fsdp_error_nomem();
        memmove(found, found + 1, strlen(found)); /* the empty line before the first heading */
        *text = found;
        return FSDP_OK;
    }
    fsdp_str_fini(&out);
    const bool is_near = fsdp_options_nearest(options->spec, word, near) >= 0;
    return fsdp_error(FSDP_ERR_INVALID,
                      "--help '%.100s': no option has this word in name, heading or "
                      "description%s%s%s; '%s --help " ALL_OPTIONS "' shows all options",
                      word, is_near ? "; did you mean '--" : "", is_near ? near : "",
                      is_near ? "'?" : "", spec->program);
}

fsdp_status fsdp_options_requested_help(const fsdp_options *options, int columns, char **text)
{
    const fsdp_options_spec *spec = options->given_spec;
    const char *topic = options->help_topic;
    columns = at_least_min(columns);
    if (topic && *topic == '-' && topic[strspn(topic, "-")])
        return describe_flag(options, topic, columns, text);
    if (topic && *topic && strcmp(topic, ALL_OPTIONS) != 0)
        return describe_word(options, topic, columns, text);
    *text =
        spec->first_page && !topic ? first_page(spec, columns) : fsdp_options_help(spec, columns);
    return *text ? FSDP_OK : fsdp_error_nomem();
}
