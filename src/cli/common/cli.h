/* Functions with which all commands read options, print errors and join a process group. Only
 * src/cli prints fsdp_last_error() and sets exit codes. */
#pragma once
#include <fsdp/comm.h>
#include <fsdp/options.h>

#include "src/cli/common/commands.h"

/* If this environment variable is set, another process has already printed which of the given
 * options have no effect. */
#define FSDP_NOTES_SHOWN_ENV "FSDP_NOTES_SHOWN"

/* fsdp_cli_options() returns this value if the command must run. No exit code has this value. */
#define FSDP_CLI_RUN (-1)

/* Read the options of a command into `target`. If the result is FSDP_CLI_RUN, the caller runs the
 * command and then frees *options with fsdp_options_destroy(). Any other result is an exit code,
 * which the caller returns without running the command. In this case, an error, the help text
 * (--help) or the configuration (--print-config) has already been printed, and *options is NULL. */
int fsdp_cli_options(const fsdp_options_spec *spec, int argc, char **argv, void *target,
                     fsdp_options **options);

/* Print `program` and the last error, such as "fsdp train: ...", and return FSDP_EXIT_FAILURE. If
 * `fsdp launch` started this rank, pass the message to the launcher instead of printing it. The
 * launcher prints the message of the first rank that failed. */
int fsdp_cli_failed(const char *program);
/* Let fsdp_cli_options() call `show` instead of printing the help text, until this function is
 * called with NULL. `show` returns the exit code. In this way, manual pages and completion scripts
 * are made from the table of each command: see src/cli/pages/command_pages.c. */
typedef int fsdp_cli_show_fn(const fsdp_options_spec *spec, void *arg);
void fsdp_cli_replace_help(fsdp_cli_show_fn *show, void *arg);

/* Report the last error as fsdp_cli_failed() does, for a wrong command line or configuration. If
 * the message is printed, also print how to get help (--help). Returns FSDP_EXIT_USAGE. */
int fsdp_cli_misused(const char *program);

/* Report the last error as fsdp_cli_failed() does, for a process that could not join its process
 * group. If srun or a similar launcher started several processes, the same error may occur in all
 * of them (fsdp_check_single_task()). Then only the first process, task 0, prints the error.
 * Returns FSDP_EXIT_FAILURE. */
int fsdp_cli_not_joined(const char *program);
/* Join the process group with fsdp_init_process_group(). If this process runs alone in a Slurm
 * allocation of several tasks, also print a note on stderr, because the user may have expected more
 * ranks. */
FSDP_MUST_CHECK fsdp_status fsdp_cli_join(const char *program, fsdp_group **group);

typedef fsdp_status fsdp_cli_rank_fn(fsdp_group *group, void *arg);
/* Join the process group and call `body` with it and with `arg`. Without a launcher, the group has
 * one rank. If `body` fails, print its error and stop the other ranks. Returns the exit code. */
int fsdp_cli_run_rank(const char *program, fsdp_cli_rank_fn *body, void *arg);

/* Return the width of help texts: the width of the terminal, but at least 80 and at most 100
 * columns. */
int fsdp_cli_columns(void);
