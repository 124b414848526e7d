/* Commands and subcommands with their option tables, for texts that describe all of them: manual
 * pages and completion scripts. */
#pragma once
#include <fsdp/options.h>

#include "src/cli/common/commands.h"

typedef struct fsdp_command_page {
    const char *command;
    const char *subcommand;          /* NULL: the command itself */
    const char *help;                /* one line of help, as in the list of commands */
    const fsdp_command_group *group; /* subcommands of `command`; NULL: none */
    /* Options of the command. NULL: the command has only subcommands. */
    const fsdp_options_spec *spec;
} fsdp_command_page;

/* Receives a page, which is valid only during the call. */
typedef fsdp_status fsdp_command_page_fn(const fsdp_command_page *page, void *arg);

/* Call `visit` for the command or, if `subcommand` is not NULL, for this subcommand of it. Returns
 * FSDP_ERR_INVALID if there is no such command, or else the result of `visit`. */
FSDP_MUST_CHECK fsdp_status fsdp_command_visit(const char *command, const char *subcommand,
                                               fsdp_command_page_fn *visit, void *arg);
/* Call `visit` for all commands and subcommands, until it fails. The subcommands of a command come
 * after the command. */
FSDP_MUST_CHECK fsdp_status fsdp_command_visit_all(fsdp_command_page_fn *visit, void *arg);
