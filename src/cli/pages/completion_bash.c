/* The completion script of bash. The string `code` is the part of the script that does not depend
 * on the commands. After this part comes the shell function _fsdp_tables. It has a case for each
 * command, with the options of the command and what may follow each option. */
#include <string.h>

#include "src/cli/pages/command_pages.h"
#include "src/cli/pages/completion.h"
#include "src/options/completion.h"

/* The shell function _fsdp_tables has two forms. With a command as its argument, it sets $options,
 * $commands and $positional. With a command and the name of an option without dashes, it sets $kind
 * and $words. */
static const char code[] =
    "# Completion of fsdp for bash, made by `fsdp completion bash`.\n"
    "\n"
    "# _fsdp_value COMMAND WORD: sets $kind, what follows the option WORD, and $words\n"
    "_fsdp_value() {\n"
    "    local name=${2#-}\n"
    "    name=${name#-} name=${name//_/-} kind= words=\n"
    "    _fsdp_tables \"$1\" \"$name\"\n"
    "    if [ -z \"$kind\" ]; then kind=switch; fi\n"
    "}\n"
    "\n"
    "# _fsdp_command: sets $command from the words before the one that is completed. The words "
    "that\n"
    "# `fsdp launch` starts are a command of their own.\n"
    "_fsdp_command() {\n"
    "    local i=1 word\n"
    "    command= started=\n"
    "    while [ $i -lt $COMP_CWORD ]; do\n"
    "        word=${COMP_WORDS[i]}\n"
    "        case $word in\n"
    "        -*=*) ;;\n"
    "        -*)\n"
    "            _fsdp_value \"$command\" \"$word\"\n"
    "            if [ \"${COMP_WORDS[i + 1]}\" = = ]; then i=$((i + 2))\n"
    "            elif [ $kind != switch ] && [ $kind != optional ]; then i=$((i + 1)); fi ;;\n"
    "        *)\n"
    "            options= commands= positional=\n"
    "            _fsdp_tables \"$command\"\n"
    "            case \" $commands \" in\n"
    "            *\" $word \"*)\n"
    "                case $command in\n"
    "                launch | help) command=$word ;;\n"
    "                *) command=${command:+$command }$word ;;\n"
    "                esac ;;\n"
    "            *) if [ \"$command\" = launch ]; then started=1; return; fi ;;\n"
    "            esac ;;\n"
    "        esac\n"
    "        i=$((i + 1))\n"
    "    done\n"
    "}\n"
    "\n"
    "_fsdp() {\n"
    "    local cur=${COMP_WORDS[COMP_CWORD]} option= before= command started options commands "
    "positional\n"
    "    local kind= words=\n"
    "    COMPREPLY=()\n"
    "    _fsdp_command\n"
    "    if [ -n \"$started\" ]; then compopt -o default 2>/dev/null; return; fi\n"
    "    case $cur in\n"
    "    -*=*) option=${cur%%=*} before=$option= cur=${cur#*=} ;;\n"
    "    =) option=${COMP_WORDS[COMP_CWORD - 1]} cur= ;;\n"
    "    *)\n"
    "        if [ \"${COMP_WORDS[COMP_CWORD - 1]}\" = = ]; then option=${COMP_WORDS[COMP_CWORD - "
    "2]}\n"
    "        elif [ \"${cur#-}\" = \"$cur\" ]; then option=${COMP_WORDS[COMP_CWORD - 1]}; fi\n"
    "        if [ \"${option#-}\" = \"$option\" ]; then option=; fi\n"
    "        if [ -n \"$option\" ] && [ \"${COMP_WORDS[COMP_CWORD - 1]}\" != = ]; then\n"
    "            _fsdp_value \"$command\" \"$option\"\n"
    "            if [ $kind = switch ]; then option=; fi\n"
    "        fi ;;\n"
    "    esac\n"
    "    if [ -n \"$option\" ]; then\n"
    "        _fsdp_value \"$command\" \"$option\"\n"
    "    else\n"
    "        options= commands= positional=\n"
    "        _fsdp_tables \"$command\"\n"
    "        words=\"$options --help --config --print-config\" kind=$positional\n"
    "        if [ -z \"$command\" ]; then words='--help --version'; fi\n"
    "        if [ \"${cur#-}\" = \"$cur\" ]; then words=$commands; fi\n"
    "        # Names of options may be typed with underscores, as in Python.\n"
    "        case $cur in\n"
    "        --*_*) words=$(echo \"$words\" | sed 's/-/_/g; s/ __/ --/g') ;;\n"
    "        esac\n"
    "    fi\n"
    "    local IFS=$' \\t\\n'\n"
    "    COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
    "    IFS=$'\\n'\n"
    "    case $kind in\n"
    "    file | optional) compopt -o filenames 2>/dev/null; COMPREPLY+=($(compgen -f -- \"$cur\")) "
    ";;\n"
    "    folder) compopt -o filenames 2>/dev/null; COMPREPLY+=($(compgen -d -- \"$cur\")) ;;\n"
    "    program) COMPREPLY+=($(compgen -c -- \"$cur\")) ;;\n"
    "    esac\n"
    "    if [ -n \"$before\" ]; then COMPREPLY=(\"${COMPREPLY[@]/#/$before}\"); fi\n"
    "}\n"
    "\n";

/* Append the patterns of a case: 'lr' | 'learning-rate'. */
static void append_patterns(fsdp_str *out, const fsdp_option *option)
{
    fsdp_str flags = {0};
    fsdp_option_flags(option, &flags);
    bool first = true;
    for (const char *at = flags.data; at && *at;) {
        at += strspn(at, " -");
        const size_t length = strcspn(at, " ");
        fsdp_str_printf(out, "%s%.*s", first ? "" : " | ", (int)length, at);
        first = false;
        at += length;
    }
    out->failed |= flags.failed;
    fsdp_str_fini(&flags);
}

static void append_value(const fsdp_option *option, void *arg)
{
    static const char *const kinds[] = {[FSDP_VALUE_NONE] = "switch",
                                        [FSDP_VALUE_TEXT] = "text",
                                        [FSDP_VALUE_WORDS] = "words",
                                        [FSDP_VALUE_FILE] = "file",
                                        [FSDP_VALUE_FOLDER] = "folder"};
    fsdp_str *out = arg, words = {0};
    const fsdp_value_kind kind = fsdp_option_value_kind(option);
    fsdp_option_words(option, &words);
    if (kind != FSDP_VALUE_NONE || words.len) {
        fsdp_str_printf(out, "        ");
        append_patterns(out, option);
        fsdp_str_printf(out, ") kind=%s", option->bare ? "optional" : kinds[kind]);
        if (words.len) {
            fsdp_str_printf(out, " words=");
            fsdp_shell_quote(out, words.data + 1, false);
        }
        fsdp_str_printf(out, " ;;\n");
    }
    out->failed |= words.failed;
    fsdp_str_fini(&words);
}

static void append_flags(const fsdp_option *option, void *arg)
{
    fsdp_option_flags(option, arg);
}

/* Append a name for each command, after a space. */
static void append_names(fsdp_str *out, const fsdp_command *commands, size_t count)
{
    for (size_t i = 0; i < count; i++)
        fsdp_str_printf(out, " %s", commands[i].name);
}

static fsdp_status append_command(const fsdp_command_page *page, void *arg)
{
    fsdp_str *out = arg;
    const fsdp_options_spec *spec = page->spec;
    const bool starts = spec && spec->stop_at_positional;
    size_t count;
    const fsdp_command *commands = fsdp_commands(&count);
    fsdp_str_printf(out, "    '%s%s%s')\n        options='", page->command,
                    page->subcommand ? " " : "", page->subcommand ? page->subcommand : "");
    if (spec)
        fsdp_options_visit(spec, append_flags, out);
    fsdp_str_printf(out, "'\n");
    if (page->group || starts || strcmp(page->command, "help") == 0) {
        fsdp_str_printf(out, "        commands='");
        append_names(out, page->group ? page->group->commands : commands,
                     page->group ? page->group->count : count);
        fsdp_str_printf(out, " '\n");
    }
    if (spec && spec->positional_words) {
        fsdp_str_printf(out, "        commands='");
        for (const char *const *word = spec->positional_words; *word; word++)
            fsdp_str_printf(out, " %s", *word);
        fsdp_str_printf(out, " '\n");
    }
    if (starts)
        fsdp_str_printf(out, "        positional=program\n");
    else if (spec && fsdp_positional_kind(spec) == FSDP_VALUE_FILE)
        fsdp_str_printf(out, "        positional=file\n");
    if (spec) {
        fsdp_str_printf(out, "        case $2 in\n");
        fsdp_options_visit(spec, append_value, out);
        fsdp_str_printf(out, "        esac\n");
    }
    fsdp_str_printf(out, "        ;;\n");
    return FSDP_OK;
}

fsdp_status fsdp_completion_bash(fsdp_str *out)
{
    size_t count;
    const fsdp_command *commands = fsdp_commands(&count);
    fsdp_str_printf(out, "%s_fsdp_tables() {\n    case $1 in\n    '')\n        commands='", code);
    append_names(out, commands, count);
    fsdp_str_printf(out, " ' ;;\n");
    FSDP_TRY(fsdp_command_visit_all(append_command, out));
    fsdp_str_printf(out, "    esac\n}\n\ncomplete -F _fsdp fsdp\n");
    return FSDP_OK;
}
