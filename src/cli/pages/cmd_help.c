/* `fsdp help`: shows the commands, the options of one command, or pages of the manual. */
#include <string.h>

#include "src/base/assert.h"
#include "src/cli/common/cli.h"
#include "src/cli/pages/man.h"

typedef struct help_config {
    bool man;
    const char *man_pages;
} help_config;

static const fsdp_option table[] = {
    {.name = "man",
     .type = FSDP_OPTION_BOOL,
     .offset = offsetof(help_config, man),
     .help = "print the page of the manual, for man -l"},
    {.name = "man-pages",
     .type = FSDP_OPTION_STRING,
     .offset = offsetof(help_config, man_pages),
     .metavar = "DIR",
     .help = "write the pages of all commands into a folder: fsdp.1, fsdp-train.1, ..."},
};

static const fsdp_options_spec spec = {
    .program = "fsdp help",
    .usage = "[COMMAND [SUBCOMMAND] [WORD]] [--man | --man-pages DIR]",
    .summary =
        "Show the commands, the options of one that most runs use, or those with WORD in name, "
        "heading or description. The WORD all means all options.",
    .epilogue = "examples:\n"
                "  fsdp help train\n"
                "  fsdp help train all\n"
                "  fsdp help train lora\n"
                "  fsdp help checkpoint convert\n"
                "  fsdp help train --man >fsdp-train.1\n",
    .table = table,
    .count = FSDP_LENGTH(table),
    .positional = "COMMAND",
    .max_positional = 3,
};

static bool has_subcommand(const char *command, const char *subcommand)
{
    const fsdp_command_group *group = fsdp_command_group_of(command);
    for (size_t i = 0; group && i < group->count; i++)
        if (strcmp(group->commands[i].name, subcommand) == 0)
            return true;
    return false;
}

static int refuse_subcommand(const char *command, const char *subcommand)
{
    (void)fsdp_error(FSDP_ERR_INVALID, "unknown command '%s %s'", command, subcommand);
    return fsdp_cli_misused(spec.program);
}

/* Run a command with --help. `words` [n] are the name of the command, then perhaps the name of a
 * subcommand, then perhaps a word that selects the options to show. */
static int show_options(char **words, int n)
{
    char option[] = "--help", *arguments[5];
    int count = 0;
    if (!fsdp_command_exists(words[0]))
        return fsdp_command_unknown(words[0]);
    const fsdp_command_group *group = fsdp_command_group_of(words[0]);
    const bool is_subcommand = n > 1 && has_subcommand(words[0], words[1]);
    const int n_names = is_subcommand ? 2 : 1;
    /* A group with a summary has no options of its own. */
    if (n > 1 && !is_subcommand && group && group->summary)
        return refuse_subcommand(words[0], words[1]);
    if (n > n_names + 1)
        return refuse_subcommand(words[0], words[1]);
    for (int i = 0; i < n_names; i++)
        arguments[count++] = words[i];
    arguments[count++] = option;
    if (n > n_names)
        arguments[count++] = words[n_names];
    arguments[count] = NULL;
    return fsdp_command_run(count, arguments);
}

static int show_manual(const help_config *config, char **words, int n)
{
    const char *command = n > 0 ? words[0] : NULL, *subcommand = n > 1 ? words[1] : NULL;
    fsdp_status status;
    if (n > 2)
        return refuse_subcommand(command, subcommand);
    if (config->man_pages && (config->man || command))
        status = fsdp_error(FSDP_ERR_INVALID,
                            "--man-pages writes the pages of all commands: no --man, no COMMAND");
    else if (config->man_pages)
        status = fsdp_man_write_all(config->man_pages);
    else
        status = fsdp_man_print(command, subcommand);
    if (status == FSDP_ERR_INVALID)
        return fsdp_cli_misused(spec.program);
    return status == FSDP_OK ? FSDP_EXIT_OK : fsdp_cli_failed(spec.program);
}

int fsdp_cmd_help(int argc, char **argv)
{
    help_config config = {0};
    fsdp_options *options;
    int n, code = fsdp_cli_options(&spec, argc, argv, &config, &options);
    if (code != FSDP_CLI_RUN)
        return code;
    char **words = fsdp_options_positional(options, &n);
    code = FSDP_EXIT_OK;
    if (config.man || config.man_pages)
        code = show_manual(&config, words, n);
    else if (n > 0)
        code = show_options(words, n);
    else
        fsdp_print_commands(stdout);
    fsdp_options_destroy(options);
    return code;
}
