/* What the commands share: reading options and printing errors. Only src/cli prints
 * fsdp_last_error() and sets exit codes. */
#pragma once
#include <fsdp/comm.h>
#include <fsdp/options.h>

#include "src/cli/commands.h"

/* Continue with the command. No exit code has this value. */
#define FSDP_CLI_RUN (-1)

/* Read a command's options. Returns FSDP_CLI_RUN and sets *options (free with
 * fsdp_options_destroy), or returns the exit code. In the second case errors, --help or
 * --print-config have been printed and *options is NULL. */
int fsdp_cli_options(const fsdp_options_spec *spec, int argc, char **argv, void *target,
                     fsdp_options **options);

/* Print "fsdp train: " and fsdp_last_error(), and return FSDP_EXIT_FAILURE. A rank that `fsdp
 * launch` started passes the message to the launcher, which prints the message of the first failing
 * rank. */
int fsdp_cli_failed(const char *program);
/* The same for a wrong command line or configuration: also refers to --help and returns
 * FSDP_EXIT_USAGE. */
int fsdp_cli_misused(const char *program);

/* The same as fsdp_cli_failed() for a failure that may come from fsdp_check_single_task(), which
 * only one task reports. */
int fsdp_cli_not_joined(const char *program);
/* Calls fsdp_init_process_group(). Prints a note on stderr if a run of one rank is in a Slurm
 * allocation of several tasks: its user may have expected more ranks. */
FSDP_MUST_CHECK fsdp_status fsdp_cli_join(const char *program, fsdp_group **group);

/* Run `body` as a rank of this job, which has one rank or those that a launcher started. Returns
 * the exit code. If `body` fails, its error is printed and the peers are stopped. */
typedef fsdp_status fsdp_cli_rank_fn(fsdp_group *group, void *arg);
int fsdp_cli_run_rank(const char *program, fsdp_cli_rank_fn *body, void *arg);

/* Width of help texts: the terminal's width, but at least 80 and at most 100 columns. */
int fsdp_cli_columns(void);
