/* `fsdp launch`: starts the ranks of a command on one host or on several. This file finds the
 * program to run. If the job runs on one host, it also starts the ranks again after a failure.
 * src/launch starts and watches the ranks of one attempt, and has the options, which are those of
 * torchrun and of `accelerate launch`. src/hosts runs a job over several hosts. */
#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/program.h"
#include "src/cli/common/cli.h"
#include "src/comm/task.h"
#include "src/hosts/hostfile.h"
#include "src/hosts/job.h"
#include "src/hosts/rank_stage.h"
#include "src/launch/accelerate.h"
#include "src/launch/launch.h"

/* Read one entry of --redirects or --tee, and move *at past the entry and the comma after it. If
 * `by_rank` is true, the entry has the form RANK:STREAMS, and *rank is set to RANK. Otherwise the
 * entry is just STREAMS, and *rank is not set. Set *bits to STREAMS, as a sum of FSDP_STREAM_*.
 * Returns false if there is no valid entry at *at. */
static bool next_streams(const char **at, bool by_rank, long *rank, int *bits)
{
    char *end;
    if (by_rank) {
        *rank = strtol(*at, &end, 10);
        if (end == *at || *end != ':' || *rank < 0)
            return false;
        *at = end + 1;
    }
    long value = strtol(*at, &end, 10);
    if (end == *at || value < 0 || value > 3 || (*end && *end != ',') || (!by_rank && *end))
        return false;
    *bits = (int)value;
    *at = end + (*end == ',');
    return true;
}

/* Read the value of --redirects or --tee. `flag` is the name of the option. Set streams[r] to the
 * streams of rank r, for n ranks. The value is one number for all ranks, or a list of the form
 * RANK:STREAMS,RANK:STREAMS. */
static fsdp_status read_streams(const char *flag, const char *text, int n, int *streams)
{
    const char *at = text;
    bool by_rank = strchr(text, ':') != NULL;
    do {
        long rank = 0;
        int bits;
        if (!next_streams(&at, by_rank, &rank, &bits))
            return fsdp_error(FSDP_ERR_INVALID,
                              "--%s: '%s' is not allowed; it takes 0 (nothing), 1 (stdout), 2 "
                              "(stderr), 3 (both), or such numbers by rank: 0:3,1:1",
                              flag, text);
        if (by_rank && rank >= n)
            return fsdp_error(FSDP_ERR_INVALID, "--%s: '%s' names rank %ld, there are %d", flag,
                              text, rank, n);
        for (int r = 0; r < n; r++)
            if (!by_rank || r == rank)
                streams[r] = bits;
    } while (*at);
    return FSDP_OK;
}

static fsdp_status read_filter(const fsdp_option_list *filter, int n, bool *on_console)
{
    for (int r = 0; r < n; r++)
        on_console[r] = filter->count == 0;
    for (size_t i = 0; i < filter->count; i++) {
        char *end;
        long rank = strtol(filter->items[i], &end, 10);
        if (end == filter->items[i] || *end || rank < 0 || rank >= n)
            return fsdp_error(FSDP_ERR_INVALID,
                              "--local-ranks-filter: '%s' is not a rank from 0 to %d",
                              filter->items[i], n - 1);
        on_console[rank] = true;
    }
    return FSDP_OK;
}

/* Search for the program `name` as execvp() does, and return its path, which the caller owns.
 * Returns NULL if there is no such program, or when out of memory. */
static char *find_program(const char *name)
{
    if (strchr(name, '/')) {
        if (fsdp_is_program(name))
            return fsdp_strdup(name);
        (void)fsdp_error(FSDP_ERR_NOT_FOUND, "%s: %s", name,
                         access(name, F_OK) ? strerror(errno) : "not an executable file");
        return NULL;
    }
    char *path = fsdp_program_find(name);
    if (path)
        return path;
    const char *near = fsdp_command_nearest(name);
    (void)fsdp_error(FSDP_ERR_NOT_FOUND,
                     "'%s' is neither an fsdp command nor a program in $PATH%s%s%s", name,
                     near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    return NULL;
}

static fsdp_status find_command(fsdp_launch *launch, bool no_python)
{
    const char *name = launch->command[0];
    launch->is_subcommand = fsdp_command_exists(name);
    if (launch->is_subcommand && strcmp(name, "launch") == 0)
        return fsdp_error(FSDP_ERR_INVALID, "launch cannot start launch");
    if (launch->is_subcommand)
        return FSDP_OK;
    FSDP_TRY(fsdp_launch_check_script(name, no_python));
    launch->program = find_program(name);
    return launch->program ? FSDP_OK : FSDP_ERR_NOT_FOUND;
}

/* Bind a socket to *port, where 0 means any free port, and set *port to the port that it got. Close
 * the socket again, so that rank 0 of a program can listen there. Return false, and set errno, if
 * the port cannot be used. */
static bool try_port(int *port)
{
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons((uint16_t)*port)};
    socklen_t size = sizeof any;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    /* SO_REUSEADDR: a port whose earlier connections have ended can be used again at once. */
    const bool found = fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
                       bind(fd, (struct sockaddr *)&any, size) == 0 &&
                       getsockname(fd, (struct sockaddr *)&any, &size) == 0;
    const int error = errno;
    if (fd >= 0)
        close(fd);
    if (found)
        *port = ntohs(any.sin_port);
    errno = error;
    return found;
}

/* Choose the TCP port on which rank 0 listens if the ranks run another program than fsdp. If the
 * user gave no port and the default port is in use, take a free port, as `accelerate launch`
 * does. */
static fsdp_status choose_port(const fsdp_launch_config *c, int *port)
{
    const int wanted = *port;
    if (wanted && (!c->may_change_port || try_port(port)))
        return FSDP_OK;
    *port = 0;
    if (!try_port(port))
        return fsdp_error(FSDP_ERR_IO, "--master-port 0: %s", strerror(errno));
    if (wanted)
        fprintf(stderr, "fsdp launch: port %d is in use; MASTER_PORT is %d\n", wanted, *port);
    return FSDP_OK;
}

/* Set the variables that all ranks inherit from this process. Options of the command that the ranks
 * run take precedence over these variables. */
static fsdp_status set_environment(const fsdp_launch_config *c, const fsdp_options *options)
{
    char threads[16];
    snprintf(threads, sizeof threads, "%d", c->omp_num_threads);
    if (c->cpu)
        setenv("FSDP_DEVICE", "cpu", 1);
    if (c->omp_num_threads > 0)
        setenv("FSDP_THREADS_PER_RANK", threads, 0);
    return fsdp_accelerate_set_environment(c, options);
}

static fsdp_status prepare(fsdp_launch *launch, fsdp_launch_config *c, fsdp_host_list *hosts)
{
    if (c->hosts || c->hostfile) {
        FSDP_TRY(fsdp_host_list_read(c, hosts));
        c->n_ranks = fsdp_host_list_most_ranks(hosts);
    }
    size_t n = (size_t)c->n_ranks;
    launch->n_ranks = c->n_ranks;
    launch->role = c->role;
    launch->line_prefix = c->log_line_prefix_template;
    launch->run_id = c->rdzv_id;
    launch->master_addr = c->master_addr;
    launch->master_port = c->master_port;
    launch->max_restarts = c->max_restarts;
    launch->omp_num_threads = c->omp_num_threads;
    launch->shutdown_timeout_s = c->shutdown_timeout_s;
    launch->redirects = fsdp_calloc(n, sizeof *launch->redirects);
    launch->tees = fsdp_calloc(n, sizeof *launch->tees);
    launch->on_console = fsdp_calloc(n, sizeof *launch->on_console);
    if (!launch->redirects || !launch->tees || !launch->on_console)
        return fsdp_error_nomem();
    FSDP_TRY(find_command(launch, c->no_python));
    FSDP_TRY(read_streams("redirects", c->redirects, c->n_ranks, launch->redirects));
    FSDP_TRY(read_streams("tee", c->tee, c->n_ranks, launch->tees));
    return read_filter(&c->local_ranks_filter, c->n_ranks, launch->on_console);
}

static fsdp_status make_log_dir(fsdp_launch *launch, const char *log_dir)
{
    bool wanted = log_dir != NULL;
    for (int r = 0; r < launch->n_ranks; r++)
        wanted |= launch->redirects[r] || launch->tees[r];
    if (!wanted)
        return FSDP_OK;
    FSDP_TRY(fsdp_launch_make_log_dir(launch, log_dir));
    if (!log_dir)
        fprintf(stderr, "fsdp launch: logs in %s\n", launch->log_dir);
    return FSDP_OK;
}

static void launch_fini(fsdp_launch *launch)
{
    fsdp_free(launch->program);
    fsdp_free(launch->log_dir);
    fsdp_free(launch->redirects);
    fsdp_free(launch->tees);
    fsdp_free(launch->on_console);
    fsdp_free(launch->cpus);
}

/* Run all ranks, and run them again after a failure as often as --max-restarts allows. Returns the
 * exit code of the last attempt. */
static int run_attempts(const fsdp_launch *launch)
{
    fsdp_attempt attempt = {0};
    /* Ignore SIGPIPE, because the process that reads the launcher's output may end before the
     * ranks. For example, Ctrl-C also ends `tee` in `| tee log`, while the ranks may still be
     * saving. */
    signal(SIGPIPE, SIG_IGN);
    for (int restarts = 0;; restarts++) {
        if (fsdp_launch_attempt(launch, restarts, &attempt) != FSDP_OK)
            return fsdp_cli_failed("fsdp launch");
        if (*attempt.message)
            fprintf(stderr, "fsdp launch: %s\n", attempt.message);
        if (attempt.exit_code == FSDP_EXIT_OK || attempt.interrupted)
            return attempt.exit_code;
        if (restarts == launch->max_restarts || attempt.pointless)
            return attempt.exit_code;
        fprintf(stderr, "fsdp launch: starting all %d ranks again (restart %d of %d)\n",
                launch->n_ranks, restarts + 1, launch->max_restarts);
    }
}

/* Return true if the command only prints a text: it is an fsdp command with --help or
 * --print-config, or it needs a subcommand and has none, so that it lists its subcommands. The
 * launcher then prints the text itself, because otherwise every rank would print it. */
static bool asks_for_text(const fsdp_launch *launch)
{
    const fsdp_command_group *group = fsdp_command_group_of(launch->command[0]);
    if (launch->is_subcommand && !launch->command[1] && group && group->summary)
        return true;
    for (char **word = launch->command + 1; launch->is_subcommand && *word; word++)
        if (strcmp(*word, "--help") == 0 || strcmp(*word, "-h") == 0 ||
            strcmp(*word, "--print-config") == 0 || strcmp(*word, "--print_config") == 0)
            return true;
    return false;
}

/* Run the job over several hosts. A launcher has been started on each of them, and the launchers
 * find each other. */
static int run_on_hosts(fsdp_launch *launch, const fsdp_launch_config *c,
                        const fsdp_options *options)
{
    fsdp_hosts_job job = {.launch = launch, .config = c};
    int code = FSDP_EXIT_FAILURE;
    signal(SIGPIPE, SIG_IGN);
    fsdp_status status = fsdp_hosts_job_init(&job, options);
    /* The ranks must not get the job's secret. Remove the variable even if the launcher has read
     * the secret from a file instead. */
    unsetenv(FSDP_JOB_SECRET_ENV);
    if (status == FSDP_OK)
        status = fsdp_hosts_run(&job, &code);
    if (status != FSDP_OK)
        code = fsdp_cli_failed("fsdp launch");
    fsdp_hosts_job_fini(&job);
    return code;
}

/* Run the job on the hosts that the user has named. This launcher is the only launcher of the job.
 * It runs mpirun, which reaches the hosts by ssh. */
static int run_by_ssh(fsdp_launch *launch, const fsdp_launch_config *c, const fsdp_host_list *hosts,
                      const fsdp_options *options)
{
    int code;
    unsetenv(FSDP_JOB_SECRET_ENV); /* ranks must not get the secret */
    if (!fsdp_options_given(options, "master-addr"))
        launch->master_addr = hosts->names[0];
    signal(SIGPIPE, SIG_IGN);
    if (fsdp_hosts_run_by_ssh(launch, c, hosts, &code) != FSDP_OK)
        return fsdp_cli_failed("fsdp launch");
    return code;
}

/* Run a job that has only this host. */
static int run_here(fsdp_launch *launch, const fsdp_launch_config *c)
{
    unsetenv(FSDP_JOB_SECRET_ENV);
    if (fsdp_check_single_task() != FSDP_OK)
        return fsdp_cli_not_joined("fsdp launch");
    if (choose_port(c, &launch->master_port) != FSDP_OK)
        return fsdp_cli_failed("fsdp launch");
    return run_attempts(launch);
}

int fsdp_hidden_launch_command(int argc, char **argv)
{
    int code = FSDP_EXIT_FAILURE;
    const bool is_agent = strcmp(argv[0], FSDP_LAUNCH_AGENT_COMMAND) == 0;
    const fsdp_status status =
        is_agent ? fsdp_launch_agent(argc, argv, &code) : fsdp_rank_stage(argc, argv, &code);
    if (status == FSDP_OK)
        return code;
    fprintf(stderr, "fsdp launch: %s\n", fsdp_last_error());
    return code ? code : FSDP_EXIT_FAILURE;
}

int fsdp_cmd_launch(int argc, char **argv)
{
    fsdp_launch_config config;
    fsdp_options *options;
    fsdp_launch launch = {0};
    fsdp_host_list hosts = {0};
    int n_words;
    int code = fsdp_cli_options(fsdp_launch_options(), argc, argv, &config, &options);
    if (code != FSDP_CLI_RUN)
        return code;
    launch.command = fsdp_options_positional(options, &n_words);
    if (set_environment(&config, options) != FSDP_OK ||
        prepare(&launch, &config, &hosts) != FSDP_OK)
        code = fsdp_cli_misused("fsdp launch");
    else if (asks_for_text(&launch))
        code = fsdp_command_run(n_words, launch.command);
    else if ((!hosts.count && fsdp_launch_bind(&launch, (fsdp_bind)config.bind) != FSDP_OK) ||
             make_log_dir(&launch, config.log_dir) != FSDP_OK)
        code = fsdp_cli_failed("fsdp launch");
    else if (config.most_nodes > 1)
        code = run_on_hosts(&launch, &config, options);
    else if (hosts.count)
        code = run_by_ssh(&launch, &config, &hosts, options);
    else
        code = run_here(&launch, &config);
    fsdp_host_list_fini(&hosts);
    launch_fini(&launch);
    fsdp_options_destroy(options);
    return code;
}
