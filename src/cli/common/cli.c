/* Reads options and prints errors for all commands. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/error_file.h"
#include "src/cli/common/cli.h"
#include "src/cli/common/guard.h"
#include "src/comm/mpi/library.h"
#include "src/comm/task.h"

int fsdp_cli_columns(void)
{
    struct winsize size;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 80)
        return 80;
    return size.ws_col > 100 ? 100 : size.ws_col;
}

static int print_text(char *text)
{
    if (!text)
        return fsdp_cli_failed("fsdp");
    fputs(text, stdout);
    fsdp_free(text);
    return FSDP_EXIT_OK;
}

int fsdp_cli_failed(const char *program)
{
    fsdp_error_report(program);
    return FSDP_EXIT_FAILURE;
}

int fsdp_cli_misused(const char *program)
{
    if (fsdp_error_report(program))
        fprintf(stderr, "try '%s --help'\n", program);
    return FSDP_EXIT_USAGE;
}

int fsdp_cli_not_joined(const char *program)
{
    /* In a job of MPI on several hosts, each process prints the error, because its cause may be on
     * one host only. */
    fsdp_mpi_job job;
    return fsdp_task_0_reports() && !fsdp_mpi_find_job(&job) ? FSDP_EXIT_FAILURE
                                                             : fsdp_cli_failed(program);
}

fsdp_status fsdp_cli_join(const char *program, fsdp_group **group)
{
    const int64_t tasks = fsdp_allocated_tasks();
    fsdp_mpi_job job;
    if (fsdp_mpi_find_job(&job) && !getenv("FSDP_LAUNCHER_PID"))
        fsdp_cli_guard_begin();
    FSDP_TRY(fsdp_init_process_group(NULL, group));
    if (tasks > 1)
        fprintf(stderr,
                "%s: note: SLURM_NTASKS is %lld, but this run has 1 rank: `fsdp launch -n %lld "
                "...` starts as many\n",
                program, (long long)tasks, (long long)tasks);
    return FSDP_OK;
}

int fsdp_cli_run_rank(const char *program, fsdp_cli_rank_fn *body, void *arg)
{
    fsdp_group *group = NULL;
    if (fsdp_cli_join(program, &group) != FSDP_OK)
        return fsdp_cli_not_joined(program);
    fsdp_status status = body(group, arg);
    if (status != FSDP_OK)
        fsdp_group_abort(group, status);
    const int code = status == FSDP_OK ? FSDP_EXIT_OK : fsdp_cli_failed(program);
    fsdp_destroy_process_group(group);
    return code;
}

/* On rank 0, print the notes of fsdp_options_notes() under a heading. The notes list the given
 * options that have no effect. */
static void print_notes(const char *program, const fsdp_options *options)
{
    const char *rank = getenv("RANK");
    if (getenv(FSDP_NOTES_SHOWN_ENV))
        return;
    char *notes = rank && atoi(rank) > 0 ? NULL : fsdp_options_notes(options);
    char *rest = notes;
    if (notes && *notes)
        fprintf(stderr, "%s: accepted, without effect here:\n", program);
    for (char *line; rest && *rest && (line = strsep(&rest, "\n"));)
        fprintf(stderr, "    %s\n", line);
    fsdp_free(notes);
}

/* The arguments of the last call of fsdp_cli_replace_help(). */
static fsdp_cli_show_fn *show_instead;
static void *show_arg;

void fsdp_cli_replace_help(fsdp_cli_show_fn *show, void *arg)
{
    show_instead = show;
    show_arg = arg;
}

static int show_help(const fsdp_options_spec *spec, const fsdp_options *options)
{
    char *text;
    if (show_instead)
        return show_instead(spec, show_arg);
    if (fsdp_options_requested_help(options, fsdp_cli_columns(), &text) != FSDP_OK)
        return fsdp_cli_misused(spec->program);
    return print_text(text);
}

int fsdp_cli_options(const fsdp_options_spec *spec, int argc, char **argv, void *target,
                     fsdp_options **options)
{
    *options = NULL;
    fsdp_status status = fsdp_options_parse(spec, argc, argv, target, options);
    if (status != FSDP_OK)
        return fsdp_cli_misused(spec->program);
    int code = FSDP_CLI_RUN;
    if (fsdp_options_requested_action(*options) == FSDP_OPTIONS_HELP) {
        code = show_help(spec, *options);
    } else if (fsdp_options_requested_action(*options) == FSDP_OPTIONS_PRINT_CONFIG) {
        code = print_text(fsdp_options_print(*options, target));
        status = fsdp_options_check(*options, target);
        if (code == FSDP_EXIT_OK && status != FSDP_OK)
            code = fsdp_cli_misused(spec->program);
    }
    if (code == FSDP_CLI_RUN) {
        if (spec->default_config && fsdp_options_file(*options))
            fprintf(stderr, "%s: configuration from %s\n", spec->program,
                    fsdp_options_file(*options));
        print_notes(spec->program, *options);
        return code;
    }
    fsdp_options_destroy(*options);
    *options = NULL;
    return code;
}
