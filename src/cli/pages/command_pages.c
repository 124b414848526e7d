/* Gets the option table of a command by running the command with --help, while fsdp_cli_options()
 * passes the table to show() instead of printing the help text. Some commands make their table when
 * they run, so there is no list of tables. */
#include "src/cli/pages/command_pages.h"

#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/cli/common/cli.h"

typedef struct visiting {
    fsdp_command_page *page;
    fsdp_command_page_fn *visit;
    void *arg;
    fsdp_status status;
    bool called;
} visiting;

static int show(const fsdp_options_spec *spec, void *arg)
{
    visiting *v = arg;
    v->page->spec = spec;
    v->called = true;
    v->status = v->visit(v->page, v->arg);
    return FSDP_EXIT_OK;
}

static const fsdp_command *find_in(const fsdp_command *list, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(list[i].name, name) == 0)
            return &list[i];
    return NULL;
}

static fsdp_status visit_page(fsdp_command_page *page, fsdp_command_page_fn *visit, void *arg)
{
    char option[] = "--help";
    char *command = fsdp_strdup(page->command);
    char *subcommand = page->subcommand ? fsdp_strdup(page->subcommand) : NULL;
    char *words[] = {command, subcommand ? subcommand : option, subcommand ? option : NULL, NULL};
    visiting v = {page, visit, arg, FSDP_OK, false};
    fsdp_status status = command && (subcommand || !page->subcommand) ? FSDP_OK : FSDP_ERR_NOMEM;
    if (status == FSDP_OK) {
        fsdp_cli_replace_help(show, &v);
        /* If a command fails before it shows its options, it has printed the reason itself. */
        if (fsdp_command_run(subcommand ? 3 : 2, words) != FSDP_EXIT_OK || !v.called)
            v.status =
                fsdp_error(FSDP_ERR_STATE, "the options of '%s' are not available", page->command);
        fsdp_cli_replace_help(NULL, NULL);
        status = v.status;
    }
    fsdp_free(subcommand);
    fsdp_free(command);
    return status;
}

fsdp_status fsdp_command_visit(const char *command, const char *subcommand,
                               fsdp_command_page_fn *visit, void *arg)
{
    size_t count;
    const fsdp_command *commands = fsdp_commands(&count);
    const fsdp_command *c = find_in(commands, count, command);
    const fsdp_command_group *group = fsdp_command_group_of(command);
    if (!c)
        return fsdp_error(FSDP_ERR_INVALID, "unknown command '%s'", command);
    fsdp_command_page page = {.command = c->name, .help = c->help, .group = group};
    if (!subcommand)
        return group && group->summary ? visit(&page, arg) : visit_page(&page, visit, arg);
    const fsdp_command *s = group ? find_in(group->commands, group->count, subcommand) : NULL;
    if (!s)
        return fsdp_error(FSDP_ERR_INVALID, "unknown command '%s %s'", command, subcommand);
    page.subcommand = s->name;
    page.help = s->help;
    page.group = NULL;
    return visit_page(&page, visit, arg);
}

fsdp_status fsdp_command_visit_all(fsdp_command_page_fn *visit, void *arg)
{
    size_t count;
    const fsdp_command *commands = fsdp_commands(&count);
    for (size_t i = 0; i < count; i++) {
        const fsdp_command_group *group = fsdp_command_group_of(commands[i].name);
        FSDP_TRY(fsdp_command_visit(commands[i].name, NULL, visit, arg));
        for (size_t k = 0; group && k < group->count; k++)
            FSDP_TRY(fsdp_command_visit(commands[i].name, group->commands[k].name, visit, arg));
    }
    return FSDP_OK;
}
