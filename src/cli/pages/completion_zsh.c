/* The completion script of zsh: a function for each command, which passes the options to
 * _arguments. */
#include <string.h>

#include "src/cli/pages/command_pages.h"
#include "src/cli/pages/completion.h"
#include "src/options/completion.h"

/* Append `text` to a single-quoted word that _arguments reads. Escape the characters that have a
 * meaning for _arguments (brackets, colons, backslashes) or for the shell (single quotes). */
static void append_description(fsdp_str *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '\'')
            fsdp_str_printf(out, "'\\''");
        else if (*text == '[' || *text == ']' || *text == ':' || *text == '\\')
            fsdp_str_printf(out, "\\%c", *text);
        else
            fsdp_str_append(out, text, 1);
    }
}

/* Append the description of an option's value: ":N:" or ":TASK:(auto seq2seq)". */
static void append_action(fsdp_str *out, const fsdp_option *option)
{
    const fsdp_value_kind kind = fsdp_option_value_kind(option);
    const char *metavar = option->metavar && *option->metavar ? option->metavar : "value";
    fsdp_str words = {0};
    if (kind == FSDP_VALUE_NONE)
        return;
    fsdp_option_words(option, &words);
    fsdp_str_printf(out, option->bare ? "::" : ":");
    append_description(out, metavar);
    fsdp_str_printf(out, ":");
    if (kind == FSDP_VALUE_FILE)
        fsdp_str_printf(out, "_files");
    else if (kind == FSDP_VALUE_FOLDER)
        fsdp_str_printf(out, "_directories");
    else if (words.len)
        fsdp_str_printf(out, "(%s)", words.data + 1);
    out->failed |= words.failed;
    fsdp_str_fini(&words);
}

/* Append a line for each flag of an option. */
static void append_option(const fsdp_option *option, void *arg)
{
    fsdp_str *out = arg, flags = {0}, help = {0};
    fsdp_option_flags(option, &flags);
    fsdp_first_sentence(&help, option->help        ? option->help
                               : option->no_effect ? option->no_effect
                                                   : "");
    const bool takes_value = fsdp_option_value_kind(option) != FSDP_VALUE_NONE;
    for (const char *at = flags.data; at && *at;) {
        at++;
        const size_t length = strcspn(at, " ");
        fsdp_str_printf(out, "        '*%.*s", (int)length, at);
        /* The value follows after "=" or as the next word. */
        fsdp_str_printf(out, "%s[", takes_value && length > 2 ? "=" : "");
        append_description(out, help.data ? help.data : "");
        fsdp_str_printf(out, "]");
        append_action(out, option);
        fsdp_str_printf(out, "' \\\n");
        at += length;
    }
    out->failed |= flags.failed || help.failed;
    fsdp_str_fini(&help);
    fsdp_str_fini(&flags);
}

/* Append the argument of _describe: an array with a line for each command. */
static void append_commands(fsdp_str *out, const fsdp_command *commands, size_t count)
{
    fsdp_str_printf(out, "    local -a commands\n    commands=(\n");
    for (size_t i = 0; i < count; i++) {
        fsdp_str_printf(out, "        '%s:", commands[i].name);
        append_description(out, commands[i].help);
        fsdp_str_printf(out, "'\n");
    }
    fsdp_str_printf(out, "    )\n");
}

/* Append what _arguments completes for words that are not options. */
static void append_positional(fsdp_str *out, const fsdp_command_page *page)
{
    const fsdp_options_spec *spec = page->spec;
    if (spec && spec->stop_at_positional)
        fsdp_str_printf(out, "        '(-)1:command:_fsdp_started' '*::argument:_fsdp_dispatch'\n");
    else if (page->group)
        fsdp_str_printf(out, "        '1:command:(");
    else if (strcmp(page->command, "help") == 0)
        fsdp_str_printf(out, "        '1:command:_fsdp_commands'\n");
    else if (spec && fsdp_positional_kind(spec) == FSDP_VALUE_FILE)
        fsdp_str_printf(out, "        '*:file:_files'\n");
    else if (spec && spec->positional_words)
        fsdp_str_printf(out, "        '1:word:(");
    else
        fsdp_str_printf(out, "        '*:word:'\n");
    for (size_t i = 0; spec && spec->positional_words && spec->positional_words[i]; i++)
        fsdp_str_printf(out, "%s%s", i ? " " : "", spec->positional_words[i]);
    if (spec && spec->positional_words)
        fsdp_str_printf(out, ")'\n");
    if (page->group && !(spec && spec->stop_at_positional)) {
        for (size_t i = 0; i < page->group->count; i++)
            fsdp_str_printf(out, "%s%s", i ? " " : "", page->group->commands[i].name);
        fsdp_str_printf(out, ")' '*:word:'\n");
    }
}

static fsdp_status append_command(const fsdp_command_page *page, void *arg)
{
    fsdp_str *out = arg;
    fsdp_str_printf(out, "_fsdp_%s%s%s() {\n", page->command, page->subcommand ? "_" : "",
                    page->subcommand ? page->subcommand : "");
    for (size_t i = 0; page->group && i < page->group->count; i++)
        fsdp_str_printf(out,
                        "    if [[ $words[2] == %s && CURRENT -gt 2 ]]; then\n"
                        "        shift words; (( CURRENT-- )); _fsdp_%s_%s; return\n    fi\n",
                        page->group->commands[i].name, page->command,
                        page->group->commands[i].name);
    fsdp_str_printf(out, "    _arguments -s \\\n");
    if (page->spec)
        fsdp_options_visit(page->spec, append_option, out);
    append_positional(out, page);
    fsdp_str_printf(out, "}\n\n");
    return FSDP_OK;
}

fsdp_status fsdp_completion_zsh(fsdp_str *out)
{
    size_t count;
    const fsdp_command *commands = fsdp_commands(&count);
    fsdp_str_printf(out, "#compdef fsdp\n"
                         "# Completion of fsdp for zsh, made by `fsdp completion zsh`.\n\n");
    FSDP_TRY(fsdp_command_visit_all(append_command, out));
    fsdp_str_printf(out, "_fsdp_commands() {\n");
    append_commands(out, commands, count);
    fsdp_str_printf(out,
                    "    _describe command commands\n}\n\n"
                    "# What fsdp launch starts.\n"
                    "_fsdp_started() { _fsdp_commands; _command_names -e; }\n\n"
                    "# Completes the arguments of the command $words[1]. Names of options "
                    "may be typed\n"
                    "# with underscores, as in Python.\n"
                    "_fsdp_dispatch() {\n"
                    "    local i\n"
                    "    for (( i = 2; i <= $#words; i++ )); do\n"
                    "        if [[ $words[i] = --*_* ]]; then\n"
                    "            words[i]=${${words[i]%%%%=*}//_/-}${words[i]#${words[i]%%%%=*}}\n"
                    "        fi\n"
                    "    done\n"
                    "    if [[ $PREFIX = --*_* ]]; then\n"
                    "        PREFIX=${${PREFIX%%%%=*}//_/-}${PREFIX#${PREFIX%%%%=*}}\n"
                    "    fi\n"
                    "    if (( $+functions[_fsdp_$words[1]] )) && [[ $words[1] != "
                    "(commands|started|dispatch) ]]; then\n"
                    "        _fsdp_$words[1]\n"
                    "    else\n"
                    "        _files\n"
                    "    fi\n"
                    "}\n\n"
                    "_fsdp() {\n"
                    "    _arguments '(-)'{-h,--help}'[the list of commands]' "
                    "'(-)--version[how this program was built]' \\\n"
                    "        '(-)1:command:_fsdp_commands' '*::argument:_fsdp_dispatch'\n"
                    "}\n\n"
                    "if [[ $zsh_eval_context[-1] == loadautofunc ]]; then\n"
                    "    _fsdp \"$@\"\n"
                    "else\n"
                    "    compdef _fsdp fsdp\n"
                    "fi\n");
    return FSDP_OK;
}
