/* What the commands share: reading options, printing errors. Only src/cli prints
 * fsdp_last_error() and sets exit codes. */
#pragma once
#include <fsdp/comm.h>
#include <fsdp/options.h>

#include "src/cli/commands.h"

/* Go on with the command; no exit code has this value. */
#define FSDP_CLI_RUN (-1)

/* Read a command's options. Returns FSDP_CLI_RUN and *options (fsdp_options_destroy), or the exit
 * code: errors, --help and --print-config have then been printed and *options is NULL. */
int fsdp_cli_options(const fsdp_options_spec *spec, int argc, char **argv, void *target,
                     fsdp_options **options);

/* Print "fsdp train: " and fsdp_last_error(), and return FSDP_EXIT_FAILURE. A rank that `fsdp
 * launch` started leaves the message to the launcher, which prints the first failing rank's. */
int fsdp_cli_failed(const char *program);
/* The same for a wrong command line or configuration: returns FSDP_EXIT_USAGE, points to --help. */
int fsdp_cli_misused(const char *program);

/* fsdp_cli_failed() where fsdp_check_single_task() may have failed, which one task reports. */
int fsdp_cli_not_joined(const char *program);
/* fsdp_init_process_group(). A run of one rank in a Slurm allocation of several tasks gets a note
 * on stderr: its user may have expected more. */
FSDP_MUST_CHECK fsdp_status fsdp_cli_join(const char *program, fsdp_group **group);

/* Run `body` as a rank of this job, alone or of those that a launcher started, and return the exit
 * code. If it fails, that was told and the peers stop. */
typedef fsdp_status fsdp_cli_rank_fn(fsdp_group *group, void *arg);
int fsdp_cli_run_rank(const char *program, fsdp_cli_rank_fn *body, void *arg);

/* Width for help: of the terminal, within 80 and 100. */
int fsdp_cli_columns(void);
