/* `fsdp launch`: starts the ranks of a command on one host. Its options are those of torchrun. This
 * file reads the options, finds the program to run, and starts the ranks again after a failure.
 * src/launch starts and watches the ranks of one attempt. */
#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/cpus.h"
#include "src/cli/cli.h"
#include "src/comm/control.h"
#include "src/comm/task.h"
#include "src/launch/launch.h"
#include "src/tensor/cards.h"

/* The values of the options. */
typedef struct launch_config {
    const char *nproc, *nnodes, *rdzv_id, *role, *master_addr, *log_dir, *redirects, *tee;
    int node_rank, master_port, max_restarts, bind, omp_num_threads;
    double shutdown_timeout_s;
    bool standalone, module, cpu;
    fsdp_option_list local_ranks_filter;
    int n_ranks; /* number of ranks, computed from nproc */
} launch_config;

static const char *const binds[] = {"core", "numa", "none", NULL};

#define PLACE(field) .offset = offsetof(launch_config, field)
#define NOWHERE .offset = FSDP_OPTION_NOWHERE
#define ONE_HOST "ranks of one host find each other without it"

/* clang-format off */
static const fsdp_option table[] = {
    {.name = "nproc-per-node", .aliases = "n,np,nproc,num-processes", .type = FSDP_OPTION_STRING,
     PLACE(nproc), .value = "1", .metavar = "N", .group = "ranks",
     .help = "ranks to start; gpu: one for each card; cpu: one for each processor; auto: gpu if "
             "there are cards that can be used, else cpu"},
    {.name = "nnodes", .aliases = "num-machines", .type = FSDP_OPTION_STRING, PLACE(nnodes),
     .value = "1", .metavar = "N", .help = "hosts; this version runs on one"},
    {.name = "bind", .type = FSDP_OPTION_CHOICE, PLACE(bind), .value = "core", .choices = binds,
     .metavar = "KIND", .help = "what to bind ranks to: equal blocks of cores, NUMA nodes, or "
                                "nothing"},
    {.name = "omp-num-threads", .aliases = "num-cpu-threads-per-process",
     .type = FSDP_OPTION_INT, PLACE(omp_num_threads), .value = "0",
     .bounds = FSDP_BETWEEN(0, 4096), .env = "PET_OMP_NUM_THREADS",
     .shown_default = "OMP_NUM_THREADS, or 1", .help = "OMP_NUM_THREADS of the ranks"},
    {.name = "cpu", .aliases = "use-cpu", .type = FSDP_OPTION_BOOL, PLACE(cpu), .false_is_silence = true,
     .help = "compute on the CPU: sets FSDP_DEVICE=cpu for the ranks"},
    {.name = "role", .type = FSDP_OPTION_STRING, PLACE(role), .value = "default",
     .help = "ROLE_NAME of the ranks, also the prefix of --tee"},
    {.name = "module", .aliases = "m", .type = FSDP_OPTION_BOOL, PLACE(module),
     .help = "torchrun's, for Python modules: refused, since ranks are programs"},

    {.name = "max-restarts", .type = FSDP_OPTION_INT, PLACE(max_restarts), .value = "0",
     .bounds = FSDP_AT_LEAST(0), .group = "failure",
     .help = "how many times to start all ranks again after one fails"},
    {.name = "shutdown-timeout", .type = FSDP_OPTION_DOUBLE, PLACE(shutdown_timeout_s),
     .bounds = FSDP_BETWEEN(0, 86400), .metavar = "SECONDS",
     .shown_default = "30 after a signal, 2 after a failure",
     .help = "how long ranks may take to end, for example to save a checkpoint: from the signal "
             "that is passed on to SIGTERM, and from SIGTERM to SIGKILL"},

    {.name = "log-dir", .type = FSDP_OPTION_STRING, PLACE(log_dir), .metavar = "DIR",
     .group = "output", .shown_default = "a new folder in $TMPDIR, if --redirects or --tee",
     .help = "folder for DIR/<run id>_<random>/attempt_<n>/<rank>/stdout.log, stderr.log, "
             "error.json"},
    {.name = "redirects", .aliases = "r", .type = FSDP_OPTION_STRING, PLACE(redirects),
     .value = "0", .metavar = "STREAMS",
     .help = "streams that go to files instead of the console: 0 nothing, 1 stdout, 2 stderr, "
             "3 both; 0:3,1:1 by local rank"},
    {.name = "tee", .aliases = "t", .type = FSDP_OPTION_STRING, PLACE(tee), .value = "0",
     .metavar = "STREAMS", .help = "streams that go to files and to the console"},
    {.name = "local-ranks-filter", .type = FSDP_OPTION_LIST, PLACE(local_ranks_filter),
     .metavar = "R,R,...", .shown_default = "all", .help = "ranks whose output reaches the console"},
    {.name = "rdzv-id", .type = FSDP_OPTION_STRING, PLACE(rdzv_id), .value = "none",
     .metavar = "NAME", .help = "run id: in TORCHELASTIC_RUN_ID and in the log folder's name"},

    {.name = "master-addr", .aliases = "main-process-ip", .type = FSDP_OPTION_STRING,
     PLACE(master_addr), .value = "127.0.0.1", .metavar = "HOST", .group = "for other programs",
     .help = "MASTER_ADDR of the ranks; fsdp's own commands do not need it"},
    {.name = "master-port", .aliases = "main-process-port", .type = FSDP_OPTION_INT,
     PLACE(master_port), .value = "29500", .bounds = FSDP_BETWEEN(0, 65535), .metavar = "PORT",
     .shown_default = "29500; 0 with --standalone or --rdzv-endpoint",
     .help = "MASTER_PORT of the ranks; 0: a free one"},
    {.name = "standalone", .type = FSDP_OPTION_BOOL, PLACE(standalone),
     .help = "a MASTER_PORT that other jobs of this host do not use"},

    {.name = "node-rank", .aliases = "machine-rank", .type = FSDP_OPTION_INT, PLACE(node_rank),
     .value = "0", .bounds = FSDP_AT_LEAST(0), .no_effect = "one host is node 0",
     .group = "accepted"},
    {.name = "rdzv-backend", .type = FSDP_OPTION_STRING, NOWHERE, .no_effect = ONE_HOST},
    {.name = "rdzv-endpoint", .type = FSDP_OPTION_STRING, NOWHERE, .no_effect = ONE_HOST},
    {.name = "rdzv-conf", .type = FSDP_OPTION_STRING, NOWHERE, .no_effect = ONE_HOST},
    {.name = "local-addr", .type = FSDP_OPTION_STRING, NOWHERE, .no_effect = ONE_HOST},
    {.name = "same-network", .type = FSDP_OPTION_BOOL, NOWHERE, .no_effect = ONE_HOST},
    {.name = "monitor-interval", .type = FSDP_OPTION_DOUBLE, NOWHERE,
     .bounds = FSDP_AT_LEAST(0), .no_effect = "a rank's end is noticed at once"},
    {.name = "start-method", .type = FSDP_OPTION_STRING, NOWHERE,
     .no_effect = "ranks are forked and run a program"},
    {.name = "event-log-handler", .type = FSDP_OPTION_STRING, NOWHERE,
     .no_effect = "there are no events"},
    {.name = "signals-to-handle", .type = FSDP_OPTION_STRING, NOWHERE,
     .no_effect = "SIGINT, SIGTERM, SIGHUP and SIGQUIT are passed on"},
    {.name = "numa-binding", .type = FSDP_OPTION_STRING, NOWHERE, .no_effect = "--bind says it"},
    {.name = "no-python", .type = FSDP_OPTION_BOOL, NOWHERE,
     .no_effect = "the command is a program in any case"},
    {.name = "use-fsdp", .type = FSDP_OPTION_BOOL, NOWHERE,
     .no_effect = "the command decides how it trains"},
};
/* clang-format on */

/* Check --nnodes. Only one host is supported, so the value must be "1", or "1:1" in torchrun's form
 * MIN:MAX. */
static fsdp_status check_nnodes(const char *text)
{
    if (strcmp(text, "1") == 0 || strcmp(text, "1:1") == 0)
        return FSDP_OK;
    char *end;
    long nodes = strtol(text, &end, 10);
    if (end == text || nodes < 1 || (*end && *end != ':'))
        return fsdp_error(FSDP_ERR_INVALID, "--nnodes: '%s' is not a number of hosts", text);
    return fsdp_error(FSDP_ERR_UNSUPPORTED,
                      "--nnodes %s: several hosts need MPI, which comes with a later version; "
                      "this one runs on one host",
                      text);
}

/* Count the cards, one rank for each. */
static fsdp_status count_cards(int *n)
{
    const fsdp_status status = fsdp_cards_count(n);
    if (status != FSDP_OK)
        fsdp_error_context(status, "--nproc-per-node gpu (a number, cpu or auto needs no card)");
    return status;
}

/* Read --nproc-per-node as torchrun does. */
static fsdp_status read_nproc(const char *text, bool on_cpu, int *n)
{
    char *end;
    const bool is_auto = strcmp(text, "auto") == 0;
    if (is_auto && !on_cpu && (*n = fsdp_cards_usable()) > 0)
        return FSDP_OK;
    if (is_auto || strcmp(text, "cpu") == 0) {
        *n = fsdp_available_cpus();
        return FSDP_OK;
    }
    if (strcmp(text, "gpu") == 0)
        return count_cards(n);
    if (strcmp(text, "xpu") == 0)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "--nproc-per-node %s: there is no device for Intel's GPUs; use a number, "
                          "auto, cpu or gpu",
                          text);
    errno = 0;
    long value = strtol(text, &end, 10);
    if (!*text || *end || errno || value < 1 || value > FSDP_COMM_MAX_RANKS)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--nproc-per-node: '%s' is not allowed; it takes an integer from 1 to "
                          "%d, auto, cpu or gpu",
                          text, FSDP_COMM_MAX_RANKS);
    *n = (int)value;
    return FSDP_OK;
}

/* With --standalone or --rdzv-endpoint, the default of --master-port is a free port, as in
 * torchrun: jobs that run at the same time need different ports. */
static void derive(void *target, const fsdp_options *options)
{
    launch_config *c = target;
    if ((c->standalone || fsdp_options_given(options, "rdzv-endpoint")) &&
        !fsdp_options_given(options, "master-port"))
        c->master_port = 0;
}

static fsdp_status check_options(void *target, const fsdp_options *options)
{
    launch_config *c = target;
    (void)options;
    FSDP_TRY(check_nnodes(c->nnodes));
    if (c->module)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--module: ranks are programs, not Python modules; name the program, or "
                          "an fsdp command such as train");
    if (c->node_rank != 0)
        return fsdp_error(FSDP_ERR_INVALID, "--node-rank %d: with one host it is 0", c->node_rank);
    if (strchr(c->rdzv_id, '/') || !*c->rdzv_id)
        return fsdp_error(FSDP_ERR_INVALID, "--rdzv-id: '%s' cannot be part of a file name",
                          c->rdzv_id);
    return read_nproc(c->nproc, c->cpu, &c->n_ranks);
}

static const fsdp_options_spec spec = {
    .program = "fsdp launch",
    .usage = "-n N [options] COMMAND [arguments]",
    .summary = "Start N ranks of COMMAND on this host: an fsdp command (train ...) or any program "
               "that reads torchrun's environment (RANK, WORLD_SIZE, LOCAL_RANK, ...). Each rank "
               "is bound to its own cores; signals are passed on; when one rank fails, all end, "
               "and one message says which and why.",
    .epilogue = "examples:\n"
                "  fsdp launch -n 2 train --model t5-small --data d.csv --output out\n"
                "  fsdp launch --nnodes 1 --nproc_per_node 4 ./my_trainer --lr 0.1\n",
    .table = table,
    .count = FSDP_LENGTH(table),
    .env_prefix = "PET_",
    .positional = "COMMAND: an fsdp command or a program, and its arguments",
    .min_positional = 1,
    .stop_at_positional = true,
    .derive = derive,
    .check = check_options,
};

/* Read one entry of --redirects or --tee, and move *at past the entry and the comma after it. If
 * `by_rank` is true, the entry has the form RANK:STREAMS, and *rank is set to RANK. Otherwise the
 * entry is just STREAMS, and *rank is not set. *bits is set to STREAMS, as a sum of FSDP_STREAM_*.
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

/* Read the value of --redirects or --tee. `flag` is the name of the option. streams[r] is set to
 * the streams of rank r, for n ranks. The value is one number for all ranks, or a list of the form
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

static bool is_program(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

/* Search for the program `name` as execvp() does, and return its path, which the caller owns.
 * Returns NULL if there is no such program, or when out of memory. */
static char *find_program(const char *name)
{
    if (strchr(name, '/')) {
        if (is_program(name))
            return fsdp_strdup(name);
        (void)fsdp_error(FSDP_ERR_NOT_FOUND, "%s: %s", name,
                         access(name, F_OK) ? strerror(errno) : "not an executable file");
        return NULL;
    }
    const char *path = getenv("PATH");
    for (path = path ? path : "/usr/bin:/bin"; *path; path += *path == ':') {
        size_t length = strcspn(path, ":");
        char *candidate =
            fsdp_strdup_printf("%.*s%s%s", (int)length, path, length ? "/" : "./", name);
        if (!candidate || is_program(candidate))
            return candidate;
        fsdp_free(candidate);
        path += length;
    }
    const char *near = fsdp_command_nearest(name);
    (void)fsdp_error(FSDP_ERR_NOT_FOUND,
                     "'%s' is neither an fsdp command nor a program in $PATH%s%s%s", name,
                     near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    return NULL;
}

static fsdp_status find_command(fsdp_launch *launch)
{
    const char *name = launch->command[0];
    launch->is_subcommand = fsdp_command_exists(name);
    if (launch->is_subcommand && strcmp(name, "launch") == 0)
        return fsdp_error(FSDP_ERR_INVALID, "launch cannot start launch");
    if (launch->is_subcommand)
        return FSDP_OK;
    launch->program = find_program(name);
    return launch->program ? FSDP_OK : FSDP_ERR_NOT_FOUND;
}

/* Set *port to a free TCP port. Programs other than fsdp may need it: their rank 0 listens on
 * MASTER_PORT. */
static fsdp_status find_free_port(int *port)
{
    struct sockaddr_in any = {.sin_family = AF_INET};
    socklen_t size = sizeof any;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool found = fd >= 0 && bind(fd, (struct sockaddr *)&any, size) == 0 &&
                 getsockname(fd, (struct sockaddr *)&any, &size) == 0;
    fsdp_status status =
        found ? FSDP_OK : fsdp_error(FSDP_ERR_IO, "--master-port 0: %s", strerror(errno));
    if (fd >= 0)
        close(fd);
    if (found)
        *port = ntohs(any.sin_port);
    return status;
}

static fsdp_status prepare(fsdp_launch *launch, const launch_config *c)
{
    size_t n = (size_t)c->n_ranks;
    launch->n_ranks = c->n_ranks;
    launch->role = c->role;
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
    FSDP_TRY(find_command(launch));
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
        if (attempt.exit_code == FSDP_EXIT_OK || attempt.interrupted)
            return attempt.exit_code;
        fprintf(stderr, "fsdp launch: %s\n", attempt.message);
        if (restarts == launch->max_restarts || attempt.pointless)
            return attempt.exit_code;
        fprintf(stderr, "fsdp launch: starting all %d ranks again (restart %d of %d)\n",
                launch->n_ranks, restarts + 1, launch->max_restarts);
    }
}

/* Return true if the command is an fsdp command with --help or --print-config. The launcher then
 * prints the text itself, because otherwise every rank would print it. */
static bool asks_for_text(const fsdp_launch *launch)
{
    for (char **word = launch->command + 1; launch->is_subcommand && *word; word++)
        if (strcmp(*word, "--help") == 0 || strcmp(*word, "-h") == 0 ||
            strcmp(*word, "--print-config") == 0 || strcmp(*word, "--print_config") == 0)
            return true;
    return false;
}

int fsdp_cmd_launch(int argc, char **argv)
{
    launch_config config;
    fsdp_options *options;
    fsdp_launch launch = {0};
    int n_words;
    int code = fsdp_cli_options(&spec, argc, argv, &config, &options);
    if (code != FSDP_CLI_RUN)
        return code;
    launch.command = fsdp_options_positional(options, &n_words);
    if (config.cpu)
        setenv("FSDP_DEVICE", "cpu", 1); /* the ranks inherit it; their --device overrules it */
    if (prepare(&launch, &config) != FSDP_OK)
        code = fsdp_cli_misused("fsdp launch");
    else if (asks_for_text(&launch))
        code = fsdp_command_run(n_words, launch.command);
    else if (fsdp_check_single_task() != FSDP_OK)
        code = fsdp_cli_not_joined("fsdp launch");
    else if ((!launch.master_port && find_free_port(&launch.master_port) != FSDP_OK) ||
             fsdp_launch_bind(&launch, (fsdp_bind)config.bind) != FSDP_OK ||
             make_log_dir(&launch, config.log_dir) != FSDP_OK)
        code = fsdp_cli_failed("fsdp launch");
    else
        code = run_attempts(&launch);
    launch_fini(&launch);
    fsdp_options_destroy(options);
    return code;
}
