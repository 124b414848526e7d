/* The option table of `fsdp launch`, and the checks of its values. */
#include "src/launch/launch_options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include <fsdp/fsdp.h>

#include "src/base/assert.h"
#include "src/base/cpus.h"
#include "src/comm/control.h"
#include "src/launch/accelerate.h"
#include "src/options/yaml_value.h"
#include "src/tensor/cards.h"
#include "src/train_config/config_accelerate.h"
#include "src/train_config/config_sections.h"

static const char *const binds[] = {"core", "numa", "none", NULL};
/* In the order of fsdp_mpi_kind in src/hosts/mpi.h. */
static const char *const mpis[] = {"auto", "openmpi", "mpich", NULL};
static const char *const versions[] = {"1", "2", NULL};
static const char *const wrap_policies[] = {"TRANSFORMER_BASED_WRAP|1", "SIZE_BASED_WRAP|2",
                                            "NO_WRAP|3", NULL};
static const char *const state_dict_types[] = {"FULL_STATE_DICT|1", "LOCAL_STATE_DICT|2",
                                               "SHARDED_STATE_DICT|3", NULL};
enum {
    MOST_NODES = 4096
};
#define PLACE(field) .offset = offsetof(fsdp_launch_config, field)
#define NOWHERE .offset = FSDP_OPTION_NOWHERE
#define NO_TPU "there is no device for TPUs"
#define COMPILED "nothing is left to compile"
#define ZERO                                                                                       \
    "there is no DeepSpeed; --use_fsdp with --fsdp_sharding_strategy FULL_SHARD is its ZeRO-3, "   \
    "SHARD_GRAD_OP its ZeRO-2"
/* A row for an option that has only one supported value, `only`. `reason` explains to the user why
 * other values are not supported. */
#define REFUSED(flag, kind, only, reason)                                                          \
    {                                                                                              \
        .name = flag, .type = FSDP_OPTION_##kind, NOWHERE, .value = only, .instead = reason,       \
        .no_effect = "this is always so here", .hidden = true                                      \
    }

/* clang-format off */
static const fsdp_option table[] = {
    {.name = "nproc-per-node", .aliases = "n,np,nproc", .type = FSDP_OPTION_STRING,
     PLACE(nproc), .value = "1", .metavar = "N", .group = "ranks",
     .help = "ranks to start on this host; gpu: one for each card; cpu: one for each processor; "
             "auto: gpu if there are cards that can be used, else cpu"},
    {.name = "num-processes", .type = FSDP_OPTION_STRING, PLACE(num_processes), .metavar = "N",
     .shown_default = "--nproc-per-node on each host",
     .help = "Accelerate's: ranks of all hosts together"},
    {.name = "nnodes", .aliases = "num-machines", .type = FSDP_OPTION_STRING, PLACE(nnodes),
     .value = "1", .metavar = "N", .help = "hosts, or MIN:MAX; the same command runs on each"},
    {.name = "bind", .type = FSDP_OPTION_CHOICE, PLACE(bind), .value = "core", .choices = binds,
     .metavar = "KIND", .help = "what to bind ranks to: equal blocks of cores, NUMA nodes, or "
                                "nothing"},
    {.name = "omp-num-threads", .aliases = "num-cpu-threads-per-process",
     .type = FSDP_OPTION_INT, PLACE(omp_num_threads), .value = "0",
     .bounds = FSDP_BETWEEN(0, 4096), .env = "PET_OMP_NUM_THREADS",
     .shown_default = "OMP_NUM_THREADS, or 1", .help = "OMP_NUM_THREADS of the ranks"},
    {.name = "cpu", .aliases = "use-cpu", .type = FSDP_OPTION_BOOL, PLACE(cpu), .false_is_silence = true,
     .help = "compute on the CPU: sets FSDP_DEVICE=cpu for the ranks"},
    {.name = "gpu-ids", .type = FSDP_OPTION_LIST, PLACE(accelerate.gpu_ids), .metavar = "ID,...",
     .shown_default = "all", .help = "cards of the ranks: sets CUDA_VISIBLE_DEVICES"},
    {.name = "role", .type = FSDP_OPTION_STRING, PLACE(role), .value = "default",
     .help = "ROLE_NAME of the ranks, also the prefix of --tee"},
    {.name = "module", .aliases = "m", .type = FSDP_OPTION_BOOL, PLACE(module),
     .help = "torchrun's, for Python modules: refused, since ranks are programs"},
    {.name = "no-python", .type = FSDP_OPTION_BOOL, PLACE(no_python),
     .help = "start a file whose name ends with .py, too, if it is executable"},

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
    {.name = "log-line-prefix-template", .type = FSDP_OPTION_STRING,
     PLACE(log_line_prefix_template), .value = "[${role_name}${local_rank}]:", .metavar = "TEXT",
     .help = "what begins each line of --tee on the console; ${role_name}, ${local_rank}, ${rank} "
             "and ${hostname} are replaced"},
    {.name = "rdzv-id", .type = FSDP_OPTION_STRING, PLACE(rdzv_id), .value = "none",
     .metavar = "NAME", .shown_default = "random; none with --master-port or Accelerate's options",
     .help = "run id: in TORCHELASTIC_RUN_ID and in the log folder's name"},

    {.name = "master-addr", .aliases = "main-process-ip", .type = FSDP_OPTION_STRING,
     PLACE(master_addr), .value = "127.0.0.1", .metavar = "HOST", .group = "for other programs",
     .shown_default = "localhost; 127.0.0.1 with --master-port or Accelerate's options",
     .help = "MASTER_ADDR of the ranks; fsdp's own commands do not need it"},
    {.name = "master-port", .aliases = "main-process-port", .type = FSDP_OPTION_INT,
     PLACE(master_port), .value = "29500", .bounds = FSDP_BETWEEN(0, 65535), .metavar = "PORT",
     .shown_default = "0; 29500 with Accelerate's options, or a free one if that is in use",
     .help = "MASTER_PORT of the ranks; 0: a free one"},
    {.name = "standalone", .type = FSDP_OPTION_BOOL, PLACE(standalone),
     .help = "a MASTER_PORT that other jobs of this host do not use"},

    {.name = "node-rank", .aliases = "machine-rank", .type = FSDP_OPTION_INT, PLACE(node_rank),
     .value = "0", .bounds = FSDP_AT_LEAST(0), .group = "several hosts", .metavar = "R",
     .help = "number of this host, from 0; host 0 is at --master-addr"},
    {.name = "rdzv-endpoint", .type = FSDP_OPTION_STRING, PLACE(rdzv_endpoint),
     .metavar = "HOST[:PORT]",
     .help = "where the hosts meet, instead of --node-rank and --master-addr: the same on all"},
    {.name = "rdzv-backend", .type = FSDP_OPTION_STRING, PLACE(rdzv_backend), .value = "static",
     .help = "static or c10d: both are the same here"},
    {.name = "rdzv-conf", .type = FSDP_OPTION_STRING, PLACE(rdzv_conf), .metavar = "KEY=SECONDS,...",
     .shown_default = "join_timeout=600,last_call_timeout=30",
     .help = "how long to wait for MIN hosts, and then for more, up to MAX"},
    {.name = "job-secret-file", .type = FSDP_OPTION_STRING, PLACE(job_secret_file),
     .metavar = "FILE", .shown_default = "$FSDP_JOB_SECRET, ~/.config/fsdp/job-secret, or made by host 0",
     .help = "file with the secret by which the hosts of a job recognize each other"},
    {.name = "mpi", .type = FSDP_OPTION_CHOICE, PLACE(mpi), .value = "auto", .choices = mpis,
     .metavar = "NAME", .shown_default = "the program's own, else openmpi, else mpich",
     .help = "MPI library that starts ranks on several hosts"},
    {.name = "local-addr", .type = FSDP_OPTION_STRING, PLACE(local_addr), .metavar = "ADDRESS",
     .help = "address of this host from which it connects to the first one"},
    {.name = "hosts", .aliases = "H,host", .type = FSDP_OPTION_STRING, PLACE(hosts),
     .metavar = "HOST[:N],...", .help = "run on these hosts by ssh, with N ranks on each"},
    {.name = "hostfile", .type = FSDP_OPTION_STRING, PLACE(hostfile), .metavar = "FILE",
     .help = "the same, with a line 'HOST slots=N' or 'HOST:N' for each host"},

    {.name = "same-network", .type = FSDP_OPTION_BOOL, NOWHERE, .value = "true",
     .no_effect = "one host needs no network, and several meet at one address",
     .group = "accepted"},
    {.name = "monitor-interval", .type = FSDP_OPTION_DOUBLE, NOWHERE,
     .bounds = FSDP_AT_LEAST(0), .no_effect = "a rank's end is noticed at once"},
    {.name = "start-method", .type = FSDP_OPTION_STRING, NOWHERE,
     .no_effect = "ranks are forked and run a program"},
    {.name = "event-log-handler", .type = FSDP_OPTION_STRING, NOWHERE,
     .no_effect = "there are no events"},
    {.name = "signals-to-handle", .type = FSDP_OPTION_STRING, NOWHERE,
     .no_effect = "SIGINT, SIGTERM, SIGHUP and SIGQUIT are passed on"},
    {.name = "numa-binding", .type = FSDP_OPTION_STRING, NOWHERE, .no_effect = "--bind says it"},
#include "src/launch/accelerate_options.inc"
};
/* clang-format on */

/* Return the reason why an option of torchrun or of `accelerate launch` is not supported. Return
 * NULL for any other name. */
static const char *refused_name(const char *name)
{
    static const struct {
        const char *prefix, *reason;
    } rows[] = {
        {"deepspeed-", ZERO},
        {"zero-stage", ZERO},
        {"zero3-", ZERO},
        {"offload-optimizer-", "--fsdp_offload_params true also offloads the optimizer's state"},
        {"offload-param-", "--fsdp_offload_params true offloads parameters"},
        {"gradient-accumulation-steps",
         "it is an option of the command: fsdp launch ... train --gradient-accumulation-steps N"},
        {"gradient-clipping", "it is an option of the command: fsdp launch ... train "
                              "--max-grad-norm X"},
        {"megatron-lm-", "there is no Megatron-LM; --use_fsdp shards"},
        {"fp8-", "it is for Transformer Engine or MS-AMP; fp8 is computed as by --fp8_backend AO"},
        {"aws-", "ranks run on this machine"},
        {"mpirun-hostfile", "--hostfile FILE names the hosts"},
        {"mpirun-ccl", "there is no oneCCL; MPI connects the hosts"},
        {"logs-specs", "--log-dir, --redirects and --tee say where output goes"},
        {"duplicate-std", "--tee copies output to files, and grep finds lines in them"},
        {"print-completion", "fsdp launch --help all lists the options"},
    };
    for (size_t i = 0; i < FSDP_LENGTH(rows); i++) {
        const char *prefix = rows[i].prefix, *at = name;
        while (*prefix && (*at == *prefix || (*at == '_' && *prefix == '-')))
            at++, prefix++;
        if (!*prefix)
            return rows[i].reason;
    }
    return NULL;
}

/* Read --nnodes, which is N or MIN:MAX. Set least_nodes and most_nodes to 0 if it is not valid. */
static void read_nnodes(fsdp_launch_config *c)
{
    char *end;
    const long least = strtol(c->nnodes, &end, 10);
    long most = least;
    const bool has_least = end != c->nnodes;
    c->least_nodes = c->most_nodes = 0;
    if (has_least && *end == ':') {
        const char *text = end + 1;
        most = strtol(text, &end, 10);
        if (end == text)
            return;
    }
    if (!has_least || *end || least < 1 || most < least || most > MOST_NODES)
        return;
    c->least_nodes = (int)least;
    c->most_nodes = (int)most;
}

static fsdp_status check_nnodes(const fsdp_launch_config *c, const fsdp_options *options)
{
    if (!c->most_nodes)
        return fsdp_accelerate_refuse(options, "nnodes", FSDP_ERR_INVALID,
                                      "'%s' is not a number of hosts from 1 to %d, or a range "
                                      "MIN:MAX",
                                      c->nnodes, MOST_NODES);
    if (c->most_nodes == 1)
        return FSDP_OK;
    if (c->standalone)
        return fsdp_accelerate_refuse(options, "nnodes", FSDP_ERR_INVALID,
                                      "contradicts --standalone, which is for one host");
    if (c->hosts || c->hostfile)
        return fsdp_accelerate_refuse(options, "nnodes", FSDP_ERR_INVALID,
                                      "contradicts --hosts or --hostfile, which name the hosts");
    if (!c->rdzv_endpoint && !fsdp_options_given(options, "master-addr"))
        return fsdp_accelerate_refuse(
            options, "nnodes", FSDP_ERR_INVALID,
            "%s: say where the hosts meet: --master-addr HOST and --node-rank R (host 0 is HOST), "
            "or --rdzv-endpoint HOST:PORT, on each host",
            c->nnodes);
    if (c->rdzv_endpoint && fsdp_options_given(options, "master-addr"))
        return fsdp_accelerate_refuse(options, "rdzv-endpoint", FSDP_ERR_INVALID,
                                      "contradicts --master-addr: one of the two says where the "
                                      "hosts meet");
    if (strcmp(c->rdzv_backend, "static") != 0 && strcmp(c->rdzv_backend, "c10d") != 0)
        return fsdp_accelerate_refuse(options, "rdzv-backend", FSDP_ERR_UNSUPPORTED,
                                      "'%s': the hosts meet at the first one, without a server; "
                                      "use static or c10d",
                                      c->rdzv_backend);
    if (c->node_rank >= c->most_nodes)
        return fsdp_accelerate_refuse(options, "node-rank", FSDP_ERR_INVALID,
                                      "%d: with %d hosts it is from 0 to %d", c->node_rank,
                                      c->most_nodes, c->most_nodes - 1);
    return FSDP_OK;
}

/* Read --rdzv-conf, KEY=VALUE,... with torchrun's keys. */
static fsdp_status read_rdzv_conf(fsdp_launch_config *c, const fsdp_options *options)
{
    /* torchrun has two names for join_timeout_s: "timeout" in its static rendezvous, and
     * "join_timeout" in its dynamic rendezvous. */
    const struct {
        const char *key;
        double *seconds;
    } keys[] = {{"join_timeout", &c->join_timeout_s},
                {"timeout", &c->join_timeout_s},
                {"last_call_timeout", &c->last_call_s}};
    c->join_timeout_s = 600;
    c->last_call_s = 30;
    const char *conf = c->rdzv_conf && c->most_nodes > 1 ? c->rdzv_conf : "";
    for (const char *at = conf; *at; at += *at == ',') {
        const int length = (int)strcspn(at, "=,");
        const char *value = at + length + (at[length] == '=');
        char *end;
        const double seconds = strtod(value, &end);
        size_t i = 0;
        while (i < FSDP_LENGTH(keys) &&
               (strncmp(keys[i].key, at, (size_t)length) != 0 || keys[i].key[length]))
            i++;
        if (i == FSDP_LENGTH(keys))
            return fsdp_accelerate_refuse(options, "rdzv-conf", FSDP_ERR_UNSUPPORTED,
                                          "'%.*s' is not supported: join_timeout, timeout and "
                                          "last_call_timeout are",
                                          length, at);
        if (end == value || (*end && *end != ',') || !(seconds >= 0 && seconds <= 1e7))
            return fsdp_accelerate_refuse(options, "rdzv-conf", FSDP_ERR_INVALID,
                                          "'%.*s' is not a number of seconds",
                                          (int)strcspn(value, ","), value);
        *keys[i].seconds = seconds;
        at = end;
    }
    return FSDP_OK;
}

/* Set *n to the number of GPUs, which is the number of ranks for --nproc-per-node gpu. */
static fsdp_status count_cards(int *n)
{
    const fsdp_status status = fsdp_cards_count(n);
    if (status != FSDP_OK)
        fsdp_error_context(status, "--nproc-per-node gpu (a number, cpu or auto needs no card)");
    return status;
}

/* Divide `total` ranks equally among the hosts, as `accelerate launch` does. Set *n to the number
 * of ranks of one host. */
static fsdp_status share_ranks(const fsdp_launch_config *c, const fsdp_options *options, long total,
                               int *n)
{
    if (c->least_nodes != c->most_nodes || total % c->most_nodes ||
        total / c->most_nodes > FSDP_COMM_MAX_RANKS)
        return fsdp_accelerate_refuse(
            options, "num-processes", FSDP_ERR_INVALID,
            "%ld processes cannot be shared equally by %s hosts: num_processes counts the ranks of "
            "all hosts; --nproc-per-node N those of one",
            total, c->nnodes);
    *n = (int)(total / c->most_nodes);
    return FSDP_OK;
}

/* Read `text`, the value of the option `name`, as torchrun reads --nproc-per-node: a number, auto,
 * cpu or gpu. Set *n to the number of ranks of one host. If the option is num-processes, the number
 * in `text` is that of all hosts together. */
static fsdp_status read_ranks(const fsdp_launch_config *c, const fsdp_options *options,
                              const char *name, const char *text, int *n)
{
    char *end;
    const bool is_auto = strcmp(text, "auto") == 0, is_total = strcmp(name, "num-processes") == 0;
    const bool is_in_file = fsdp_options_origin(options, name) == FSDP_ORIGIN_FILE;
    const fsdp_option_list *cards = &c->accelerate.gpu_ids;
    if ((is_auto || strcmp(text, "gpu") == 0) && !c->cpu && cards->count &&
        strcmp(cards->items[0], "all") != 0) {
        *n = (int)cards->count;
        return FSDP_OK;
    }
    if (is_auto && !c->cpu && (*n = fsdp_cards_usable()) > 0)
        return FSDP_OK;
    if (is_auto || strcmp(text, "cpu") == 0) {
        *n = fsdp_available_cpus();
        return FSDP_OK;
    }
    if (strcmp(text, "gpu") == 0)
        return count_cards(n);
    if (strcmp(text, "xpu") == 0)
        return fsdp_accelerate_refuse(
            options, name, FSDP_ERR_UNSUPPORTED,
            "%s: there is no device for Intel's GPUs; use a number, auto, "
            "cpu or gpu",
            text);
    if (strcmp(text, "-1") == 0 && is_in_file)
        return fsdp_accelerate_refuse(
            options, name, FSDP_ERR_INVALID,
            "-1: this file leaves the number of ranks to --num_processes N");
    errno = 0;
    int64_t value = strtol(text, &end, 10);
    bool good = *text && !*end && !errno;
    if (!good && is_in_file)
        good = fsdp_yaml_integer(text, &value); /* PyYAML reads 0x2, too */
    if (good && is_total && c->most_nodes > 1 && value > 0)
        return share_ranks(c, options, value, n);
    if (!good || value < 1 || value > FSDP_COMM_MAX_RANKS)
        return fsdp_accelerate_refuse(
            options, name, FSDP_ERR_INVALID,
            "'%s' is not allowed; it takes an integer from 1 to %d, auto, "
            "cpu or gpu",
            text, FSDP_COMM_MAX_RANKS);
    *n = (int)value;
    return FSDP_OK;
}

/* Set *n to the number of ranks of this host. The same source has given both --nproc-per-node and
 * --num_processes, so the two must agree. */
static fsdp_status read_both(const fsdp_launch_config *c, const fsdp_options *options, int *n)
{
    int per_node, shared;
    const char *key = fsdp_options_key(options, "nproc-per-node");
    FSDP_TRY(read_ranks(c, options, "nproc-per-node", c->nproc, &per_node));
    const long together = (long)per_node * c->most_nodes;
    char *end;
    long total = strtol(c->num_processes, &end, 10);
    if (*end || total < 1 || c->least_nodes != c->most_nodes) {
        FSDP_TRY(read_ranks(c, options, "num-processes", c->num_processes, &shared));
        total = (long)shared * c->most_nodes;
    }
    *n = per_node;
    if (total == together)
        return FSDP_OK;
    return fsdp_accelerate_refuse(
        options, "num-processes", FSDP_ERR_INVALID,
        "%s contradicts %s %s: num_processes counts the ranks of all hosts, nproc_per_node those "
        "of one: %d on each of %d host%s are %ld; leave one of the two out",
        c->num_processes, key ? key : fsdp_options_source(options, "nproc-per-node"), c->nproc,
        per_node, c->most_nodes, c->most_nodes == 1 ? "" : "s", together);
}

/* Set *n to the number of ranks of this host. */
static fsdp_status choose_ranks(const fsdp_launch_config *c, const fsdp_options *options, int *n)
{
    const char *name = fsdp_accelerate_ranks_option(options);
    const bool is_total = strcmp(name, "num-processes") == 0;
    if (is_total && fsdp_options_origin(options, "nproc-per-node") ==
                        fsdp_options_origin(options, "num-processes"))
        return read_both(c, options, n);
    return read_ranks(c, options, name, is_total ? c->num_processes : c->nproc, n);
}

/* Make a random run id in the form of uuid.uuid4(). */
static void make_run_id(char id[40])
{
    unsigned char b[16];
    if (getrandom(b, sizeof b, 0) != (ssize_t)sizeof b)
        return;
    b[6] = (unsigned char)((b[6] & 0x0f) | 0x40);
    b[8] = (unsigned char)((b[8] & 0x3f) | 0x80);
    snprintf(id, 40, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0],
             b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13],
             b[14], b[15]);
}

/* Set master_addr, master_port and the run id as torchrun does, for programs whose ranks meet at
 * MASTER_PORT.
 *
 * Without --master-port, the port depends on the options. `accelerate launch` always gives torchrun
 * a port, 29500 by default. So the port is 29500 if options of Accelerate are given, but neither
 * --rdzv-endpoint nor --standalone. Otherwise it is a free port, because jobs that run at the same
 * time need different ports.
 *
 * Without --rdzv-id, the run id is random in two cases: with --standalone, or if none of
 * --master-port, --rdzv-endpoint and Accelerate's options is given. */
static void derive_meeting(fsdp_launch_config *c, const fsdp_options *options)
{
    const bool has_port = fsdp_options_given(options, "master-port") || c->is_accelerate;
    const bool has_endpoint = fsdp_options_given(options, "rdzv-endpoint");
    /* With several hosts, the launchers meet at this port, and the first launcher then chooses
     * MASTER_PORT. */
    if (c->most_nodes > 1)
        return;
    c->may_change_port = c->is_accelerate && !fsdp_options_given(options, "master-port");
    if (has_port && !c->standalone && !has_endpoint)
        return;
    if (!fsdp_options_given(options, "master-port"))
        c->master_port = 0;
    if (!fsdp_options_given(options, "master-addr"))
        c->master_addr = "localhost";
    if (fsdp_options_given(options, "rdzv-id") || (has_endpoint && !c->standalone))
        return;
    make_run_id(c->run_id);
    if (*c->run_id)
        c->rdzv_id = c->run_id;
}

static void derive(void *target, const fsdp_options *options)
{
    fsdp_launch_config *c = target;
    c->run_id[0] = 0;
    c->has_node_rank = fsdp_options_given(options, "node-rank");
    read_nnodes(c);
    fsdp_accelerate_derive(c, options);
    derive_meeting(c, options);
}

static fsdp_status check_options(void *target, const fsdp_options *options)
{
    fsdp_launch_config *c = target;
    FSDP_TRY(check_nnodes(c, options));
    if (c->module && c->no_python)
        return fsdp_error(FSDP_ERR_INVALID, "--module contradicts --no-python");
    if (c->module)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--module: ranks are programs, not Python modules; name the program, or "
                          "an fsdp command such as train");
    if (c->node_rank != 0 && c->most_nodes == 1)
        return fsdp_accelerate_refuse(options, "node-rank", FSDP_ERR_INVALID,
                                      "%d: with one host it is 0", c->node_rank);
    if (strchr(c->rdzv_id, '/') || !*c->rdzv_id)
        return fsdp_error(FSDP_ERR_INVALID, "--rdzv-id: '%s' cannot be part of a file name",
                          c->rdzv_id);
    FSDP_TRY(choose_ranks(c, options, &c->n_ranks));
    FSDP_TRY(read_rdzv_conf(c, options));
    return fsdp_accelerate_check(c, options);
}

/* What plain --help shows (without a topic): the options that most runs use. */
static const char *const first_page[] = {
    "ranks: nproc-per-node num-processes cpu gpu-ids bind omp-num-threads",
    "several hosts: nnodes node-rank master-addr master-port hosts hostfile",
    "failure and output: max-restarts log-dir redirects tee",
    "Accelerate: mixed-precision use-fsdp fsdp-version fsdp-sharding-strategy "
    "fsdp-reshard-after-forward fsdp-activation-checkpointing",
    NULL};

const fsdp_options_spec *fsdp_launch_options(void)
{
    static const fsdp_options_spec spec = {
        .program = "fsdp launch",
        .usage = "-n N [options] COMMAND [arguments]",
        .summary =
            "Start N ranks of COMMAND on this host, or on each of several: an fsdp command (train "
            "...) or any program that reads torchrun's environment (RANK, WORLD_SIZE, LOCAL_RANK, "
            "...). Each rank "
            "is bound to its own cores; signals are passed on; when one rank fails, all end, "
            "and one message says which and why. --config_file names a file of `accelerate "
            "config`; without it, Accelerate's default_config.yaml is read if there is one "
            "(--config_file none: no file).",
        .epilogue =
            "examples:\n"
            "  fsdp launch -n 2 train --model t5-small --data d.csv --output out\n"
            "  fsdp launch --nnodes 1 --nproc_per_node 4 ./my_trainer --lr 0.1\n"
            "  fsdp launch --nnodes 2 --node-rank 0 --master-addr host0 -n 4 ./mpi_program\n"
            "  fsdp launch --config_file fsdp.yaml train --model bert --data d.csv "
            "--output out\n",
        .first_page = first_page,
        .table = table,
        .count = FSDP_LENGTH(table),
        .env_prefix = "PET_",
        .positional = "COMMAND: an fsdp command or a program, and its arguments",
        .min_positional = 1,
        .stop_at_positional = true,
        .config_alias = "config-file",
        .sections = fsdp_accelerate_sections,
        .n_sections = FSDP_ACCELERATE_SECTIONS,
        .default_config = fsdp_accelerate_default_config,
        .refused_name = refused_name,
        .derive = derive,
        .check = check_options,
        .without_effect = fsdp_accelerate_without_effect,
    };
    return &spec;
}
