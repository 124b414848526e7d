/* The program `fsdp`. Runs a command, and does what is necessary before and after every command. */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/assert.h"
#include "src/cli/common/cli.h"
#include "src/cli/common/commands.h"
#include "src/cli/common/version.h"
#include "src/launch/launch.h"

#define COMMAND_ROW(name, help) {#name, help, fsdp_cmd_##name},
static const fsdp_command commands[] = {FSDP_COMMANDS(COMMAND_ROW)};
static const fsdp_command_subcommands groups[] = {{"bench", &fsdp_bench_group},
                                                  {"checkpoint", &fsdp_checkpoint_group},
                                                  {"config", &fsdp_config_group}};

/* Change the variable OMP_NUM_THREADS to the value that --threads-per-rank must read. If only the
 * launcher has set the variable (FSDP_LAUNCH_OMP_ENV), remove it. The value may be a list such as
 * 4,2, with a number for each level of nested parallel regions. Replace such a list by its first
 * number, except in `fsdp launch`, which passes the whole list on to its ranks. */
static void choose_omp_threads(bool launches)
{
    const char *given = getenv("OMP_NUM_THREADS");
    char first[16];
    const size_t n = given ? strcspn(given, ",") : 0;
    if (getenv(FSDP_LAUNCH_OMP_ENV)) {
        unsetenv("OMP_NUM_THREADS");
        unsetenv(FSDP_LAUNCH_OMP_ENV);
    } else if (!launches && given && given[n] && n < sizeof first) {
        snprintf(first, sizeof first, "%.*s", (int)n, given);
        setenv("OMP_NUM_THREADS", first, 1);
    }
}

static int run_command(int argc, char **argv)
{
    signal(SIGXFSZ, SIG_IGN); /* write() beyond the limit of a file's size then returns an error */
    /* Keep freed memory instead of returning it to the system after each step. Otherwise the next
     * step would get it back one page fault at a time. */
    mallopt(M_MMAP_THRESHOLD, 16 << 20);
    mallopt(M_TRIM_THRESHOLD, 64 << 20);
    if (argc < 2) {
        fsdp_print_commands(stderr);
        return FSDP_EXIT_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        fsdp_print_commands(stdout);
        return FSDP_EXIT_OK;
    }
    if (strcmp(name, "version") == 0 || strcmp(name, "--version") == 0) {
        fsdp_print_version(stdout);
        return FSDP_EXIT_OK;
    }
    if (strcmp(name, FSDP_LAUNCH_AGENT_COMMAND) == 0 || strcmp(name, FSDP_LAUNCH_RANK_COMMAND) == 0)
        return fsdp_hidden_launch_command(argc - 1, argv + 1);
    /* Disable oneDNN's own cache of primitives. This program caches the primitives of its matrix
     * products itself (kernels/cpu/product_onednn.c), so oneDNN would store each of them a second
     * time. `fsdp launch` does not set this environment variable, because the programs that it
     * starts would inherit the setting. */
    if (strcmp(name, "launch") != 0)
        setenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "0", 0);
    choose_omp_threads(strcmp(name, "launch") == 0);
    if (!fsdp_command_exists(name))
        return fsdp_command_unknown(name);
    return fsdp_command_run(argc - 1, argv + 1);
}

/* Flush standard output and return the exit code. A successful command becomes a failure if its
 * output could not be written, for example because the disk is full. The reason is known only if
 * this flush fails. If an earlier write failed, stdio records that it failed, but not why. */
static int close_output(int exit_code)
{
    const bool failed = ferror(stdout) != 0;
    errno = 0;
    if ((fflush(stdout) == 0 && !failed) || exit_code != FSDP_EXIT_OK)
        return exit_code;
    (void)fsdp_error(FSDP_ERR_IO, "standard output: %s",
                     errno ? strerror(errno) : "not all of it could be written");
    return fsdp_cli_failed("fsdp");
}

/* If the descriptor of standard input, output or error is closed, open /dev/null in its place.
 * Otherwise the next file that is opened would get this descriptor. /dev/null is opened in the
 * wrong mode on purpose, so that reads from standard input fail, and so do writes to standard
 * output and error. */
static void fill_closed(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) == -1 && open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) != fd)
            _exit(FSDP_EXIT_FAILURE);
}

int main(int argc, char **argv)
{
    fill_closed();
    fsdp_commands_set(commands, FSDP_LENGTH(commands));
    fsdp_command_groups_set(groups, FSDP_LENGTH(groups));
    return close_output(run_command(argc, argv));
}
