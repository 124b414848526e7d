/* Functions that the commands share to read options and print errors. Only src/cli prints
 * fsdp_last_error() and sets exit codes. */
#pragma once
#include <fsdp/comm.h>
#include <fsdp/options.h>

#include "src/cli/commands.h"

/* Result of fsdp_cli_options() if the command must continue. No exit code has this value. */
#define FSDP_CLI_RUN (-1)

/* Read the options of a command into `target`. Returns FSDP_CLI_RUN if the command must continue;
 * the caller then frees *options with fsdp_options_destroy(). Otherwise returns the exit code: an
 * error, --help or --print-config has been printed, and *options is NULL. */
int fsdp_cli_options(const fsdp_options_spec *spec, int argc, char **argv, void *target,
                     fsdp_options **options);

/* Print `program` and the last error, as in "fsdp train: ...", and return FSDP_EXIT_FAILURE. A rank
 * that `fsdp launch` started passes the message to the launcher instead; the launcher prints the
 * message of the first rank that failed. */
int fsdp_cli_failed(const char *program);
/* Report the error of a wrong command line or configuration as fsdp_cli_failed() does, refer to
 * --help, and return FSDP_EXIT_USAGE. */
int fsdp_cli_misused(const char *program);

/* Report an error as fsdp_cli_failed() does, but print nothing if task 0 reports it. Use this for
 * errors that may come from fsdp_check_single_task(): every task gets such an error, and only one
 * task must report it. */
int fsdp_cli_not_joined(const char *program);
/* Call fsdp_init_process_group(). If a run of one rank is in a Slurm allocation of several tasks,
 * also print a note on stderr, because the user may have expected more ranks. */
FSDP_MUST_CHECK fsdp_status fsdp_cli_join(const char *program, fsdp_group **group);

typedef fsdp_status fsdp_cli_rank_fn(fsdp_group *group, void *arg);
/* Run `body` on this rank and return the exit code. The job has one rank, or the ranks that a
 * launcher started. If `body` fails, its error is printed and the other ranks are stopped. */
int fsdp_cli_run_rank(const char *program, fsdp_cli_rank_fn *body, void *arg);

/* Return the width of help texts: the width of the terminal, but at least 80 and at most 100
 * columns. */
int fsdp_cli_columns(void);
