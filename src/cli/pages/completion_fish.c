/* The completion script of fish: a line for each option of each command. */
#include <string.h>

#include "src/cli/pages/command_pages.h"
#include "src/cli/pages/completion.h"
#include "src/options/completion.h"

static const char code[] =
    "# Completion of fsdp for fish, made by `fsdp completion fish`.\n"
    "\n"
    "# Succeeds if the words before the one that is completed are COMMAND, or COMMAND SUBCOMMAND.\n"
    "# The words that `fsdp launch` starts are a command of their own.\n"
    "function __fsdp_is\n"
    "    set -l words (string match -v -- '-*' (commandline -opc)[2..-1])\n"
    "    if contains -- \"$words[1]\" launch help; and test \"$words[1]\" != \"$argv[1]\"\n"
    "        set -l at (contains -i -- $argv[1] $words); or return 1\n"
    "        set words $words[$at..-1]\n"
    "    end\n"
    "    test \"$words[1]\" = \"$argv[1]\"; or return 1\n"
    "    test (count $argv) -eq 1; or contains -- \"$words[2]\" $argv[2..-1]\n"
    "end\n"
    "\n"
    "complete -c fsdp -n 'test (count (commandline -opc)) -eq 1' -s h -l help -f -d 'the list of "
    "commands'\n"
    "complete -c fsdp -n 'test (count (commandline -opc)) -eq 1' -l version -f -d 'how this "
    "program was built'\n";

/* The argument of append_option(): the script, and fish's condition for the options of a command.
 */
typedef struct place {
    fsdp_str *out;
    const char *condition;
} place;

/* Append what fish offers as the value of the option. */
static void append_value(fsdp_str *out, const fsdp_option *option)
{
    const fsdp_value_kind kind = fsdp_option_value_kind(option);
    fsdp_str words = {0};
    fsdp_option_words(option, &words);
    if (kind == FSDP_VALUE_FILE)
        fsdp_str_printf(out, " -r -F");
    else if (kind == FSDP_VALUE_FOLDER)
        fsdp_str_printf(out, " -x -a '(__fish_complete_directories)'");
    else if (kind == FSDP_VALUE_WORDS)
        fsdp_str_printf(out, " -x -a '%s'", words.data ? words.data + 1 : "");
    else
        fsdp_str_printf(out, kind == FSDP_VALUE_TEXT ? " -x" : " -f");
    out->failed |= words.failed;
    fsdp_str_fini(&words);
}

static void append_option(const fsdp_option *option, void *arg)
{
    const place *p = arg;
    fsdp_str flags = {0}, help = {0};
    fsdp_option_flags(option, &flags);
    fsdp_first_sentence(&help, option->help        ? option->help
                               : option->no_effect ? option->no_effect
                                                   : "");
    for (const char *at = flags.data; at && *at;) {
        at += strspn(at, " ");
        const size_t length = strcspn(at, " "), dashes = strspn(at, "-");
        fsdp_str_printf(p->out, "complete -c fsdp -n '%s' -%c %.*s", p->condition,
                        dashes == 1 ? 's' : 'l', (int)(length - dashes), at + dashes);
        append_value(p->out, option);
        fsdp_str_printf(p->out, " -d ");
        fsdp_shell_quote(p->out, help.data ? help.data : "", true);
        fsdp_str_printf(p->out, "\n");
        at += length;
    }
    p->out->failed |= flags.failed || help.failed;
    fsdp_str_fini(&help);
    fsdp_str_fini(&flags);
}

static void append_commands(fsdp_str *out, const char *condition, const fsdp_command *commands,
                            size_t count)
{
    for (size_t i = 0; i < count; i++) {
        fsdp_str_printf(out, "complete -c fsdp -n '%s' -f -a %s -d ", condition, commands[i].name);
        fsdp_shell_quote(out, commands[i].help, true);
        fsdp_str_printf(out, "\n");
    }
}

static fsdp_status append_command(const fsdp_command_page *page, void *arg)
{
    fsdp_str *out = arg, condition = {0};
    const fsdp_options_spec *spec = page->spec;
    size_t count;
    const fsdp_command *commands = fsdp_commands(&count);
    fsdp_str_printf(&condition, "__fsdp_is %s%s%s", page->command, page->subcommand ? " " : "",
                    page->subcommand ? page->subcommand : "");
    /* Once a subcommand was typed, the options of the command itself are no longer offered. */
    if (page->group)
        fsdp_str_printf(&condition, "; and not __fsdp_is %s", page->command);
    for (size_t i = 0; page->group && i < page->group->count; i++)
        fsdp_str_printf(&condition, " %s", page->group->commands[i].name);
    out->failed |= condition.failed;
    if (condition.failed) {
        fsdp_str_fini(&condition);
        return FSDP_OK; /* fsdp_str_take() then returns NULL, because out->failed is set */
    }
    place p = {out, condition.data};
    if (page->group)
        append_commands(out, condition.data, page->group->commands, page->group->count);
    if ((spec && spec->stop_at_positional) || strcmp(page->command, "help") == 0)
        append_commands(out, condition.data, commands, count);
    if (spec && spec->stop_at_positional)
        fsdp_str_printf(out, "complete -c fsdp -n '%s' -a '(__fish_complete_command)'\n",
                        condition.data);
    else if (spec && fsdp_positional_kind(spec) != FSDP_VALUE_FILE)
        fsdp_str_printf(out, "complete -c fsdp -n '%s' -f\n", condition.data);
    for (size_t i = 0; spec && spec->positional_words && spec->positional_words[i]; i++)
        fsdp_str_printf(out, "complete -c fsdp -n '%s' -a %s\n", condition.data,
                        spec->positional_words[i]);
    if (spec)
        fsdp_options_visit(spec, append_option, &p);
    fsdp_str_fini(&condition);
    return FSDP_OK;
}

fsdp_status fsdp_completion_fish(fsdp_str *out)
{
    size_t count;
    const fsdp_command *commands = fsdp_commands(&count);
    fsdp_str_printf(out, "%s", code);
    append_commands(out, "test (count (commandline -opc)) -eq 1", commands, count);
    return fsdp_command_visit_all(append_command, out);
}
