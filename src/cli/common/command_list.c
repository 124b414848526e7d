/* The list of commands. main.c has the tables of commands, and passes them to this file. The tables
 * contain the functions of the commands, and some of these call functions of this file. If this
 * file had the tables, it and the commands would depend on each other. */
#include <string.h>

#include "src/base/assert.h"
#include "src/base/nearest.h"
#include "src/cli/common/commands.h"

static const fsdp_command *commands;
static size_t n_commands;
static const fsdp_command_subcommands *groups;
static size_t n_groups;

void fsdp_commands_set(const fsdp_command *list, size_t count)
{
    FSDP_ASSERT(count <= FSDP_COMMANDS_MAX);
    commands = list;
    n_commands = count;
}

void fsdp_command_groups_set(const fsdp_command_subcommands *list, size_t count)
{
    groups = list;
    n_groups = count;
}

const fsdp_command *fsdp_commands(size_t *count)
{
    *count = n_commands;
    return commands;
}

const fsdp_command_group *fsdp_command_group_of(const char *name)
{
    for (size_t i = 0; i < n_groups; i++)
        if (strcmp(groups[i].command, name) == 0)
            return groups[i].group;
    return NULL;
}

static const fsdp_command *find_command(const char *name)
{
    for (size_t i = 0; i < n_commands; i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    return NULL;
}

bool fsdp_command_exists(const char *name)
{
    return find_command(name) != NULL;
}

const char *fsdp_command_nearest(const char *name)
{
    const char *names[FSDP_COMMANDS_MAX];
    for (size_t i = 0; i < n_commands; i++)
        names[i] = commands[i].name;
    int near = fsdp_nearest_name(name, names, n_commands);
    return near < 0 ? NULL : names[near];
}

int fsdp_command_run(int argc, char **argv)
{
    const fsdp_command *c = find_command(argv[0]);
    FSDP_ASSERT(c);
    return c->run(argc, argv);
}

int fsdp_command_unknown(const char *name)
{
    const char *near = fsdp_command_nearest(name);
    fprintf(stderr, "fsdp: unknown command '%s'", name);
    if (near)
        fprintf(stderr, "; did you mean '%s'?", near);
    fputs("\ntry 'fsdp help'\n", stderr);
    return FSDP_EXIT_USAGE;
}

void fsdp_print_commands(FILE *to)
{
    fputs("usage: fsdp COMMAND [options]\n\n"
          "Fully sharded data parallel training without Python.\n\ncommands:\n",
          to);
    for (size_t i = 0; i < n_commands; i++)
        fprintf(to, "  %-10s %s\n", commands[i].name, commands[i].help);
    fputs("\n'fsdp help COMMAND' or 'fsdp COMMAND --help' shows the options that most runs use.\n"
          "'fsdp help COMMAND all' shows all options, 'fsdp help COMMAND WORD' those about WORD.\n"
          "'fsdp --version' shows how this program was built.\n",
          to);
}
