/* `fsdp bench train`: measures the speed and the memory of sharded training on this machine.
 *
 * The command starts its ranks by running itself again under the launcher. Rank 0 writes lines to a
 * pipe: one for each stage that it reaches, and finally one with the result. In the launching
 * process, a thread reads the lines. The thread also samples the memory of the job, but not during
 * timed steps. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/clock.h"
#include "src/base/cpus.h"
#include "src/base/error.h"
#include "src/base/str.h"
#include "src/bench/bench.h"
#include "src/cli/bench/bench.h"
#include "src/cli/common/cli.h"
#include "src/fsdp/named_sharding.h"
#include "src/options/device_option.h"
#include "src/options/isa_option.h"
#include "src/report/hostmem.h"
#include "src/report/human.h"
#include "src/train_config/config_float8.h"
#include "src/train_config/precision.h"

static const char PROGRAM[] = "fsdp bench train";
static const double SAMPLES_PER_S = 5.0;

typedef struct bench_options {
    const char *shape, *device, *isa, *profile, *profile_steps, *save_model;
    fsdp_dtype dtype;
    int ranks, threads_per_rank, batch, seq, target, steps;
    int64_t seed;
    double dropout;
    int backward_prefetch, checkpointing_kind, float8_recipe;
    bool reshard_after_forward, activation_checkpointing, breakdown, json;
    bool asks_for_target; /* true: the user gave --target; set by derive() */
} bench_options;

static const char *const checkpointings[] = {"full", "op|selective", NULL};

/* clang-format off */
#define PLACE(field) .offset = offsetof(bench_options, field)
static const fsdp_option table[] = {
    {.name = "shape", .aliases = "model", .type = FSDP_OPTION_STRING, PLACE(shape),
     .value = "t5-small", .metavar = "NAME", .group = "work",
     .help = "a published size, such as t5-small, llama-58m, gpt2, bert-base-uncased, or a folder "
             "with a config.json; weights and tokens are random"},
    {.name = "dtype", .aliases = "param-dtype", .type = FSDP_OPTION_DTYPE, PLACE(dtype),
     .value = "bfloat16", .help = "of parameters and activations; master weights are float32"},
    {.name = "float8-recipe", .type = FSDP_OPTION_CHOICE, PLACE(float8_recipe), .value = "none",
     .choices = fsdp_train_float8_recipes, .metavar = "NAME",
     .help = "compute linear layers in float8, as by fsdp train"},
    {.name = "batch", .aliases = "batch-size", .type = FSDP_OPTION_INT, PLACE(batch),
     .value = "4", .bounds = FSDP_BETWEEN(1, 65536), .help = "rows per rank"},
    {.name = "seq", .type = FSDP_OPTION_INT, PLACE(seq), .value = "512",
     .bounds = FSDP_BETWEEN(1, 65536), .help = "tokens per row; for T5, of the source"},
    {.name = "target", .aliases = "tgt", .type = FSDP_OPTION_INT, PLACE(target), .value = "128",
     .bounds = FSDP_BETWEEN(1, 65536), .help = "target tokens per row of T5; others have none"},
    {.name = "steps", .type = FSDP_OPTION_INT, PLACE(steps), .value = "6",
     .bounds = FSDP_BETWEEN(2, 1000000), .help = "timed steps; the median excludes the first"},
    {.name = "seed", .type = FSDP_OPTION_INT64, PLACE(seed), .value = "1",
     .bounds = FSDP_AT_LEAST(0), .help = "of weights and tokens"},
    {.name = "dropout", .type = FSDP_OPTION_DOUBLE, PLACE(dropout), .value = "0",
     .bounds = FSDP_FROM_TO_BELOW(0, 1), .help = "probability with which activations are dropped"},

    {.name = "ranks", .aliases = "n,nproc-per-node", .type = FSDP_OPTION_INT, PLACE(ranks),
     .value = "2", .bounds = FSDP_BETWEEN(1, 64), .group = "machine",
     .help = "processes that the model is sharded over"},
    {.name = "threads-per-rank", .aliases = "threads", .type = FSDP_OPTION_INT,
     PLACE(threads_per_rank), .value = "0", .bounds = FSDP_BETWEEN(0, 1024),
     .env = FSDP_THREADS_ENV, .shown_default = FSDP_THREADS_DEFAULT, .help = "threads that compute"},
    {.name = "reshard-after-forward", .type = FSDP_OPTION_BOOL, PLACE(reshard_after_forward),
     .value = "true", .help = "free a block's whole parameters between forward and backward"},
    {.name = "backward-prefetch", .type = FSDP_OPTION_CHOICE, PLACE(backward_prefetch),
     .value = "BACKWARD_PRE", .choices = fsdp_backward_prefetch_choices, .metavar = "WHEN",
     .help = "when backward gathers the block that it needs next"},
    {.name = "activation-checkpointing", .aliases = "gradient-checkpointing",
     .type = FSDP_OPTION_BOOL, PLACE(activation_checkpointing), .value = "false",
     .help = "keep only the inputs of each block and compute the rest again in backward"},
    {.name = "activation-checkpointing-kind", .type = FSDP_OPTION_CHOICE,
     PLACE(checkpointing_kind), .value = "full", .choices = checkpointings, .metavar = "KIND",
     .help = "op keeps the results of attention and of every second linear layer"},
    FSDP_DEVICE_OPTION(offsetof(bench_options, device)),
    {.name = "isa", .type = FSDP_OPTION_STRING, PLACE(isa), .metavar = "ISA",
     .shown_default = "the best that 'fsdp --version' lists",
     .help = FSDP_ISA_HELP},
    {.name = "profile", .type = FSDP_OPTION_STRING, PLACE(profile), .metavar = "FILE.json",
     .help = "trace of a few steps of all ranks for chrome://tracing and ui.perfetto.dev; prints "
             "time by category"},
    {.name = "profile-steps", .type = FSDP_OPTION_STRING, PLACE(profile_steps), .metavar = "A:B",
     .shown_default = "4:6, or the last three of a shorter run",
     .help = "first and last step that --profile and --breakdown cover"},
    {.name = "breakdown", .type = FSDP_OPTION_BOOL, PLACE(breakdown), .value = "false",
     .help = "time by category without a trace; with --json in where_ms"},
    {.name = "save-model", .type = FSDP_OPTION_STRING, PLACE(save_model), .metavar = "DIR",
     .help = "write the initial weights as a folder that transformers loads"},
    {.name = "json", .type = FSDP_OPTION_BOOL, PLACE(json), .value = "false",
     .help = "print one JSON line"},
};
/* clang-format on */

/* A kind of activation checkpointing other than "full" implies --activation-checkpointing, as in
 * `fsdp train`. */
static void derive(void *target, const fsdp_options *options)
{
    bench_options *o = target;
    if (o->checkpointing_kind != FSDP_CHECKPOINT_FULL &&
        !fsdp_options_given(options, "activation-checkpointing"))
        o->activation_checkpointing = true;
    o->asks_for_target = fsdp_options_asked_for(options, "target");
}

static fsdp_status check_options(void *target, const fsdp_options *options)
{
    const bench_options *o = target;
    FSDP_TRY(fsdp_check_device_option(options, o->device, false));
    if (!o->activation_checkpointing &&
        fsdp_options_asked_for(options, "activation-checkpointing-kind"))
        return fsdp_error(FSDP_ERR_INVALID,
                          "--activation-checkpointing-kind needs --activation-checkpointing");
    if (o->profile_steps && !o->profile && !o->breakdown)
        return fsdp_error(FSDP_ERR_INVALID, "--profile-steps needs --profile FILE or --breakdown");
    return FSDP_OK;
}

static const fsdp_options_spec spec = {
    .program = PROGRAM,
    .usage = "[options]",
    .summary =
        "Train a model of a given shape with random weights on random tokens, sharded over ranks "
        "of this host, and print time per step, tokens per second, time from the start of the "
        "process to the end of the first step, memory, and the fraction of the speed of single "
        "matrix products that the steps reach (mfu).",
    .epilogue = "example:\n  fsdp bench train --shape t5-small --ranks 2 --threads-per-rank 1 "
                "--json\n",
    .table = table,
    .count = FSDP_LENGTH(table),
    .derive = derive,
    .check = check_options,
};

static fsdp_status config_of(const bench_options *o, fsdp_bench_config *config)
{
    int cores = fsdp_available_cpus() / o->ranks;
    *config = (fsdp_bench_config){
        .shape_name = o->shape,
        .dtype = o->dtype,
        .float8_recipe = o->float8_recipe,
        .reshard_after_forward =
            o->reshard_after_forward ? FSDP_RESHARD_DEFAULT : FSDP_RESHARD_FALSE,
        .backward_prefetch = (fsdp_backward_prefetch)o->backward_prefetch,
        .activation_checkpointing = o->activation_checkpointing,
        .checkpointing_kind = (fsdp_activation_checkpointing_kind)o->checkpointing_kind,
        .threads = o->threads_per_rank ? o->threads_per_rank
                   : cores > 0         ? cores
                                       : 1,
        .batch = o->batch,
        .source = o->seq,
        .steps = o->steps,
        .seed = (uint64_t)o->seed,
        .device = o->device,
        .isa = o->isa,
        .profile = o->profile,
        .profile_steps = o->profile_steps,
        .breakdown = o->breakdown,
        .profile_out = (o->profile || o->breakdown) && !o->json ? stdout : NULL,
        .save_model = o->save_model,
    };
    FSDP_TRY(fsdp_check_compute_dtype("--dtype", o->dtype));
    if (access(o->shape, F_OK) == 0)
        FSDP_TRY(fsdp_model_config_read(o->shape, &config->shape));
    else
        FSDP_TRY(fsdp_model_config_preset(o->shape, &config->shape));
    fsdp_model_config_set_dropout(&config->shape, o->dropout);
    if (fsdp_model_config_info(&config->shape).format.task == FSDP_TASK_SEQ2SEQ)
        config->target = o->target;
    else if (o->asks_for_target)
        return fsdp_error(FSDP_ERR_INVALID, "--target is for T5; %s has no targets", o->shape);
    return FSDP_OK;
}

/* --- in each rank --- */

/* For this benchmark, FSDP_BENCH_REPORT_ENV is "FD THREADS START". FD is the descriptor of the
 * pipe. THREADS is the number of threads of a rank; it is passed because a rank that is bound to
 * its cores cannot count the cores of the job. START is the time when the job started, in seconds
 * of CLOCK_MONOTONIC. */

static void send_line(int fd, const char *line)
{
    size_t n = strlen(line);
    while (n) {
        ssize_t written = write(fd, line, n);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0) /* the launching process has ended; this rank will be killed too */
            return;
        line += written;
        n -= (size_t)written;
    }
}

static void send_stage(void *arg, fsdp_bench_stage stage)
{
    static const char *const lines[] = {"built\n", "memory begin\n", "memory end\n"};
    send_line(*(const int *)arg, lines[stage]);
}

static fsdp_status send_result(int fd, const fsdp_bench_config *config, int ranks,
                               const fsdp_bench_result *result)
{
    fsdp_json *doc;
    char *text = NULL;
    FSDP_TRY(fsdp_json_create("result", &doc));
    fsdp_bench_report(config, ranks, result, fsdp_json_root(doc));
    fsdp_status status = fsdp_json_print(doc, FSDP_JSON_LINE, &text, NULL);
    if (status == FSDP_OK) {
        send_line(fd, text);
        send_line(fd, "\n");
    }
    fsdp_free(text);
    fsdp_json_destroy(doc);
    return status;
}

typedef struct rank_run {
    fsdp_bench_config *config;
    /* The write end of the pipe to the launching process, for stages and the result. */
    int fd;
} rank_run;

static fsdp_status measure(fsdp_group *group, void *arg)
{
    rank_run *run = arg;
    fsdp_bench_result result;
    FSDP_TRY(fsdp_bench_train(run->config, group, send_stage, &run->fd, &result));
    if (fsdp_group_rank(group) > 0)
        return FSDP_OK;
    return send_result(run->fd, run->config, fsdp_group_world_size(group), &result);
}

static int run_rank(fsdp_bench_config *config, const char *report)
{
    rank_run run = {.config = config};
    if (sscanf(report, "%d %d %lf", &run.fd, &config->threads, &config->start_s) != 3) {
        (void)fsdp_error(FSDP_ERR_INVALID, FSDP_BENCH_REPORT_ENV " is '%s'", report);
        return fsdp_cli_misused(PROGRAM);
    }
    return fsdp_cli_run_rank(PROGRAM, measure, &run);
}

/* --- in the launching process --- */

typedef struct listener {
    int fds[2]; /* the pipe: the thread reads from [0], and rank 0 writes to [1] */
    pthread_t thread;
    fsdp_hostmem *memory;
    char *result;           /* the JSON line from rank 0; NULL until it is received */
    fsdp_saved_error error; /* first error that occurred while memory was sampled */
} listener;

static void handle_line(listener *l, const char *line)
{
    fsdp_status status = FSDP_OK;
    if (strcmp(line, "built") == 0)
        status = fsdp_hostmem_sample(l->memory, NULL);
    else if (strcmp(line, "memory begin") == 0)
        status = fsdp_hostmem_start(l->memory, SAMPLES_PER_S);
    else if (strcmp(line, "memory end") == 0)
        fsdp_hostmem_stop(l->memory);
    else if (!l->result)
        l->result = fsdp_strdup(line);
    if (status != FSDP_OK && l->error.status == FSDP_OK)
        fsdp_error_save(status, &l->error);
}

/* The body of the thread: read lines from the pipe and handle them, until the pipe is closed. It
 * uses read() instead of stdio, because the launcher flushes all streams before it forks. The flush
 * would wait for a stream from which this thread is reading. */
static void *listen_to_ranks(void *arg)
{
    listener *l = arg;
    fsdp_str text = {0}; /* what was read, from the beginning of a line */
    char piece[4096];
    for (;;) {
        ssize_t n = read(l->fds[0], piece, sizeof piece);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        fsdp_str_append(&text, piece, (size_t)n);
        for (char *end; text.data && (end = memchr(text.data, '\n', text.len));) {
            *end = '\0';
            handle_line(l, text.data);
            text.len -= (size_t)(end + 1 - text.data);
            memmove(text.data, end + 1, text.len + 1);
        }
    }
    if (text.failed && l->error.status == FSDP_OK)
        fsdp_error_save(fsdp_error_nomem(), &l->error);
    fsdp_str_fini(&text);
    close(l->fds[0]);
    fsdp_hostmem_stop(l->memory);
    return NULL;
}

/* Start the thread that reads the lines. All signals are blocked in this thread, because the
 * launcher handles them in the main thread. */
static fsdp_status start_listening(listener *l)
{
    sigset_t all, before;
    FSDP_TRY(fsdp_hostmem_create(NULL, 0, &l->memory));
    if (pipe(l->fds) != 0)
        return fsdp_error(FSDP_ERR_IO, "pipe: %s", strerror(errno));
    fcntl(l->fds[0], F_SETFD, FD_CLOEXEC);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&l->thread, NULL, listen_to_ranks, l);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!error)
        return FSDP_OK;
    close(l->fds[0]);
    return fsdp_error(FSDP_ERR_NOMEM, "cannot start a thread: %s", strerror(error));
}

/* Return how many seconds ago this process was started. The resolution is that of the kernel, 10
 * ms. Returns 0 if there is no /proc. */
static double process_age_s(void)
{
    unsigned long long started = 0;
    struct timespec now;
    char text[1024] = "";
    FILE *f = fopen("/proc/self/stat", "r");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f)
        fclose(f);
    text[n] = '\0';
    /* Field 2 is the name of the command in parentheses. The name may contain any character, so the
     * fields are counted from the last closing parenthesis. */
    const char *p = strrchr(text, ')');
    for (int field = 2; p && field < 22; field++)
        p = strchr(p + 1, ' ');
    if (!p || sscanf(p, "%llu", &started) != 1)
        return 0.0;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9 -
           (double)started / (double)sysconf(_SC_CLK_TCK);
}

static double number(fsdp_json_node object, const char *key)
{
    double value = 0.0;
    return fsdp_json_opt_f64(object, key, 0.0, &value) == FSDP_OK ? value : 0.0;
}

static void print_text(fsdp_json_node r)
{
    fsdp_json_node split = fsdp_json_find(r, "seconds"), tags = fsdp_json_find(r, "peak_mib");
    const char *device = "";
    if (fsdp_json_get_str(r, "device", &device) == FSDP_OK)
        printf("device               %s\n", device);
    printf("time per step        %s (median)\n", fsdp_human_duration(number(r, "step_s")).text);
    printf("  forward            %s\n", fsdp_human_duration(number(split, "forward")).text);
    printf("  backward           %s\n", fsdp_human_duration(number(split, "backward")).text);
    printf("  clip               %s\n", fsdp_human_duration(number(split, "clip")).text);
    printf("  optimizer          %s\n", fsdp_human_duration(number(split, "optimizer")).text);
    printf("  of it waiting      %s\n", fsdp_human_duration(number(split, "of_it_waiting")).text);
    printf("  processor time     %s\n", fsdp_human_duration(number(split, "processor")).text);
    printf("tokens per second    %s\n", fsdp_human_count(number(r, "tok_per_s")).text);
    printf("first step done      %s after the start, begun after %s\n",
           fsdp_human_duration(number(r, "first_step_after_s")).text,
           fsdp_human_duration(number(r, "ready_after_s")).text);
    if (fsdp_json_has(r, "gemm_gflops")) {
        printf("one matrix product   %s GFLOP/s on one thread\n",
               fsdp_human_count(number(r, "gemm_gflops")).text);
        printf("mfu                  %.1f %%\n", 100.0 * number(r, "mfu"));
    }
    printf("host memory          %.0f MiB (peak, all ranks)\n", number(r, "peak_host_mib"));
    for (fsdp_json_node tag = fsdp_json_first(tags); tag.value; tag = fsdp_json_next(tag))
        printf("  %-18s %.1f MiB\n", tag.key, number(tags, tag.key));
}

static fsdp_status print_result(const listener *l, bool json)
{
    fsdp_json *doc;
    char *text = NULL;
    int64_t samples;
    fsdp_hostmem_usage peak = fsdp_hostmem_peak(l->memory, &samples);
    FSDP_TRY(fsdp_error_restore(&l->error));
    if (!l->result)
        return fsdp_error(FSDP_ERR_STATE, "the ranks ended without a result");
    FSDP_TRY(fsdp_json_parse("result", 1, l->result, strlen(l->result), &doc));
    fsdp_json_node root = fsdp_json_root(doc);
    fsdp_json_set_f64(root, "peak_host_mib", (double)(peak.total_bytes / 1024) / 1024.0);
    fsdp_json_set_i64(root, "memory_samples", samples);
    fsdp_status status = fsdp_json_print(doc, FSDP_JSON_LINE, &text, NULL);
    if (status == FSDP_OK && json)
        printf("%s\n", text);
    else if (status == FSDP_OK)
        print_text(root);
    fsdp_free(text);
    fsdp_json_destroy(doc);
    return status;
}

static int run_ranks(const bench_options *o, int threads, char **argv, double start_s)
{
    fsdp_attempt attempt = {0};
    listener l = {.fds = {-1, -1}};
    char report[64];
    fsdp_status status = start_listening(&l);
    bool listening = status == FSDP_OK;
    if (listening) {
        snprintf(report, sizeof report, "%d %d %.6f", l.fds[1], threads, start_s);
        status = fsdp_bench_job_run(o->ranks, argv, report, &attempt);
    }
    if (l.fds[1] >= 0)
        close(l.fds[1]);
    if (listening)
        pthread_join(l.thread, NULL); /* the thread ends when the last writer closes the pipe */
    int code = attempt.exit_code;
    if (status == FSDP_OK && code == FSDP_EXIT_OK)
        status = print_result(&l, o->json);
    else if (status == FSDP_OK && !attempt.interrupted)
        fprintf(stderr, "%s: %s\n", PROGRAM, attempt.message);
    if (status != FSDP_OK)
        code = fsdp_cli_failed(PROGRAM);
    fsdp_free(l.result);
    fsdp_hostmem_destroy(l.memory);
    return code;
}

int fsdp_bench_train_main(int argc, char **argv)
{
    double start_s = fsdp_clock_s() - process_age_s();
    bench_options o = {0};
    fsdp_options *options;
    fsdp_bench_config config;
    const char *report;
    int code = fsdp_cli_options(&spec, argc - 1, argv + 1, &o, &options);
    if (code != FSDP_CLI_RUN)
        return code;
    if (config_of(&o, &config) != FSDP_OK || fsdp_bench_job_report(&report) != FSDP_OK)
        code = fsdp_cli_misused(PROGRAM);
    else
        code = report ? run_rank(&config, report) : run_ranks(&o, config.threads, argv, start_s);
    fsdp_options_destroy(options);
    return code;
}
