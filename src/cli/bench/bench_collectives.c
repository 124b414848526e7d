/* `fsdp bench collectives`: measures the rate of collectives between ranks, in the columns of
 * nccl-tests, and compares it with the rate of memcpy. Rank 0 prints each result before the next
 * measurement. */
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/json.h"
#include "src/bench/bench_collectives.h"
#include "src/cli/bench/bench.h"
#include "src/cli/common/cli.h"
#include "src/options/isa_option.h"
#include "src/report/human.h"

static const char PROGRAM[] = "fsdp bench collectives";

typedef struct bench_options {
    int64_t min_size, max_size;
    double seconds;
    const char *isa;
    int ranks, factor, transport;
    bool json;
} bench_options;

/* How ranks are started. */
enum {
    TRANSPORT_SHM,     /* this command starts processes */
    TRANSPORT_THREADS, /* this command starts threads */
    TRANSPORT_JOB      /* another program has started the ranks, and this process is one of them */
};
static const char *const transports[] = {"shm", "threads", "job", NULL};

/* clang-format off */
#define PLACE(field) .offset = offsetof(bench_options, field)
static const fsdp_option table[] = {
    {.name = "ranks", .aliases = "n,nproc-per-node", .type = FSDP_OPTION_INT, PLACE(ranks),
     .value = "2", .bounds = FSDP_BETWEEN(2, 64), .help = "ranks, of one thread each"},
    {.name = "transport", .type = FSDP_OPTION_CHOICE, PLACE(transport), .value = "shm",
     .choices = transports, .metavar = "KIND",
     .help = "shm: processes of this host; threads: threads of one process; job: the ranks of the "
             "job that has started this command, as 'fsdp launch' does"},
    {.name = "min-size", .aliases = "minbytes,b", .type = FSDP_OPTION_SIZE, PLACE(min_size), .value = "1KiB",
     .bounds = FSDP_AT_LEAST(1), .metavar = "SIZE", .help = "of the smallest buffers"},
    {.name = "max-size", .aliases = "maxbytes,e", .type = FSDP_OPTION_SIZE, PLACE(max_size), .value = "256MiB",
     .bounds = FSDP_BETWEEN(1, 0x1p40), .metavar = "SIZE",
     .help = "of the largest ones; each rank needs three times as much memory"},
    {.name = "factor", .aliases = "stepfactor,f", .type = FSDP_OPTION_INT, PLACE(factor), .value = "4",
     .bounds = FSDP_BETWEEN(2, 1048576), .help = "from one size to the next"},
    {.name = "seconds", .type = FSDP_OPTION_DOUBLE, PLACE(seconds), .value = "0.06",
     .bounds = FSDP_ABOVE_UP_TO(0, 3600),
     .help = "least time for each collective and size; the median of three rounds counts"},
    {.name = "isa", .type = FSDP_OPTION_STRING, PLACE(isa), .metavar = "ISA",
     .shown_default = "the best that 'fsdp --version' lists",
     .help = FSDP_ISA_HELP},
    {.name = "json", .type = FSDP_OPTION_BOOL, PLACE(json), .value = "false",
     .help = "print one JSON line for each collective and size"},
};
/* clang-format on */

static const fsdp_options_spec spec = {
    .program = PROGRAM,
    .usage = "[options]",
    .summary = "Measure all_gather, reduce_scatter, all_reduce and broadcast between ranks, and "
               "check their results. The columns are those of nccl-tests: size, count, type, "
               "redop, root, time, algorithm and bus bandwidth, and wrong elements. 'shared' is "
               "how sharded units communicate: the result is in memory that all ranks see. "
               "'copied' are the collectives of the library's API, whose result is in each rank's "
               "own memory. For comparison, all ranks run memcpy at the same time.",
    .epilogue = "examples:\n  fsdp bench collectives --ranks 4 -b 8 -e 16M -f 2\n"
                "  fsdp bench collectives --transport threads --max-size 16MiB --json\n",
    .table = table,
    .count = FSDP_LENGTH(table),
};

/* --- in each rank --- */

typedef struct printer {
    int ranks;
    const char *transport;
    /* Names in the row that was printed last; NULL: no row was printed yet. */
    const char *collective, *how;
    double busbw; /* sum over the printed rows of collectives, without rows of memcpy */
    int64_t wrong;
    int rows; /* number of printed rows of collectives, without rows of memcpy */
    bool json;
} printer;

static fsdp_status print_json(const printer *p, const fsdp_bench_collective *m)
{
    fsdp_json *doc;
    char *text = NULL;
    FSDP_TRY(fsdp_json_create("collective", &doc));
    fsdp_json_node line = fsdp_json_root(doc);
    fsdp_json_set_str(line, "collective", m->collective);
    fsdp_json_set_str(line, "how", m->how);
    fsdp_json_set_str(line, "transport", p->transport);
    fsdp_json_set_i64(line, "ranks", p->ranks);
    fsdp_json_set_i64(line, "bytes", m->bytes);
    fsdp_json_set_i64(line, "count", m->count);
    fsdp_json_set_str(line, "type", "float");
    fsdp_json_set_str(line, "redop", m->redop);
    fsdp_json_set_i64(line, "root", m->root);
    fsdp_json_set_f64(line, "seconds", m->seconds);
    fsdp_json_set_f64(line, "bytes_per_s", m->algbw);
    fsdp_json_set_f64(line, "bus_bytes_per_s", m->busbw);
    fsdp_json_set_i64(line, "wrong", m->wrong);
    fsdp_json_set_f64(line, "memcpy_bytes_per_s", (double)m->bytes / m->memcpy_seconds);
    fsdp_json_set_f64(line, "of_memcpy", m->memcpy_seconds / m->seconds);
    fsdp_status status = fsdp_json_print(doc, FSDP_JSON_LINE, &text, NULL);
    if (status == FSDP_OK && (printf("%s\n", text) < 0 || fflush(stdout) != 0))
        status = fsdp_error(FSDP_ERR_IO, "cannot write to stdout");
    fsdp_free(text);
    fsdp_json_destroy(doc);
    return status;
}

/* Print the lines that nccl-tests prints above its rows. */
static void print_heading(const printer *p, const fsdp_bench_collective *m)
{
    printf("%s# %s, %s: %d ranks, transport %s\n", p->collective ? "\n" : "", m->collective, m->how,
           p->ranks, p->transport);
    printf("# %10s  %12s  %8s  %6s  %6s  %7s  %6s  %6s %6s\n", "size", "count", "type", "redop",
           "root", "time", "algbw", "busbw", "#wrong");
    printf("# %10s  %12s  %8s  %6s  %6s  %7s  %6s  %6s\n", "(B)", "(elements)", "", "", "", "(us)",
           "(GB/s)", "(GB/s)");
}

static fsdp_status print(void *arg, const fsdp_bench_collective *m)
{
    printer *p = arg;
    const bool is_new =
        !p->collective || strcmp(p->collective, m->collective) != 0 || strcmp(p->how, m->how) != 0;
    if (p->json)
        return print_json(p, m);
    if (is_new)
        print_heading(p, m);
    p->collective = m->collective;
    p->how = m->how;
    p->wrong += m->wrong;
    if (strcmp(m->collective, "memcpy") != 0) {
        p->busbw += m->busbw;
        p->rows++;
    }
    printf("%12lld  %12lld  %8s  %6s  %6d  %7.*f  %6.2f  %6.2f %6lld\n", (long long)m->bytes,
           (long long)m->count, "float", m->redop, m->root, m->seconds < 1e-3 ? 2 : 1,
           m->seconds * 1e6, m->algbw * 1e-9, m->busbw * 1e-9, (long long)m->wrong);
    return fflush(stdout) == 0 ? FSDP_OK : fsdp_error(FSDP_ERR_IO, "cannot write to stdout");
}

static fsdp_status print_end(const printer *p)
{
    if (p->json || !p->rows)
        return FSDP_OK;
    printf("\n# Out of bounds values : %lld %s\n# Avg bus bandwidth    : %.5g\n",
           (long long)p->wrong, p->wrong ? "FAILED" : "OK", p->busbw / p->rows * 1e-9);
    return fflush(stdout) == 0 ? FSDP_OK : fsdp_error(FSDP_ERR_IO, "cannot write to stdout");
}

static fsdp_status run_rank(fsdp_group *group, void *arg)
{
    const bench_options *o = arg;
    const fsdp_bench_collectives_config config = {.min_bytes = o->min_size,
                                                  .max_bytes = o->max_size,
                                                  .factor = o->factor,
                                                  .seconds = o->seconds,
                                                  .isa = o->isa};
    printer p = {.ranks = fsdp_group_world_size(group),
                 .transport = fsdp_group_backend(group),
                 .json = o->json};
    fsdp_status status = fsdp_bench_collectives(&config, group, print, &p);
    if (fsdp_group_rank(group) != 0 || (status != FSDP_OK && !p.wrong))
        return status;
    const fsdp_status printed = print_end(&p);
    return status == FSDP_OK ? printed : status;
}

/* --- in the launching process --- */

static int run_ranks(const bench_options *o, char **argv)
{
    fsdp_attempt attempt = {0};
    if (fsdp_bench_job_run(o->ranks, argv, "collectives", &attempt) != FSDP_OK)
        return fsdp_cli_failed(PROGRAM);
    if (attempt.exit_code != FSDP_EXIT_OK && !attempt.interrupted)
        fprintf(stderr, "%s: %s\n", PROGRAM, attempt.message);
    return attempt.exit_code;
}

/* Run the ranks as threads of this process. */
static int run_threads(bench_options *o)
{
    return fsdp_run_ranks(o->ranks, run_rank, o, NULL) == FSDP_OK ? FSDP_EXIT_OK
                                                                  : fsdp_cli_failed(PROGRAM);
}

static fsdp_status check_options(const bench_options *o, const fsdp_options *options)
{
    if (o->transport == TRANSPORT_JOB && fsdp_options_given(options, "ranks"))
        return fsdp_error(FSDP_ERR_INVALID,
                          "--ranks %d: with --transport job the ranks are those of the job",
                          o->ranks);
    if (o->min_size <= o->max_size)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID, "--min-size is %s, above --max-size of %s",
                      fsdp_human_bytes(o->min_size).text, fsdp_human_bytes(o->max_size).text);
}

int fsdp_bench_collectives_main(int argc, char **argv)
{
    bench_options o = {0};
    fsdp_options *options;
    const char *report;
    int code = fsdp_cli_options(&spec, argc - 1, argv + 1, &o, &options);
    if (code != FSDP_CLI_RUN)
        return code;
    if (check_options(&o, options) != FSDP_OK)
        code = fsdp_cli_misused(PROGRAM);
    else if (o.transport == TRANSPORT_JOB)
        code = fsdp_cli_run_rank(PROGRAM, run_rank, &o);
    else if (fsdp_bench_job_report(&report) != FSDP_OK)
        code = fsdp_cli_misused(PROGRAM);
    else if (o.transport == TRANSPORT_THREADS)
        code = run_threads(&o);
    else
        code = report ? fsdp_cli_run_rank(PROGRAM, run_rank, &o) : run_ranks(&o, argv);
    fsdp_options_destroy(options);
    return code;
}
