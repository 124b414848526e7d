/* `fsdp bench collectives`: measures the rate of collectives between ranks of this host, and
 * compares it with the rate of memcpy. Rank 0 prints the results for one size of buffers before the
 * next size is measured. */
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/json.h"
#include "src/bench/bench_collectives.h"
#include "src/cli/bench.h"
#include "src/cli/cli.h"
#include "src/options/isa_option.h"
#include "src/report/human.h"

static const char PROGRAM[] = "fsdp bench collectives";

typedef struct bench_options {
    int64_t min_size, max_size;
    double seconds;
    const char *isa;
    int ranks, factor;
    bool json;
} bench_options;

/* clang-format off */
#define PLACE(field) .offset = offsetof(bench_options, field)
static const fsdp_option table[] = {
    {.name = "ranks", .aliases = "n,nproc-per-node", .type = FSDP_OPTION_INT, PLACE(ranks),
     .value = "2", .bounds = FSDP_BETWEEN(2, 64), .help = "processes, of one thread each"},
    {.name = "min-size", .type = FSDP_OPTION_SIZE, PLACE(min_size), .value = "1KiB",
     .bounds = FSDP_AT_LEAST(64), .metavar = "SIZE", .help = "of the smallest buffers"},
    {.name = "max-size", .type = FSDP_OPTION_SIZE, PLACE(max_size), .value = "256MiB",
     .bounds = FSDP_BETWEEN(64, 0x1p40), .metavar = "SIZE",
     .help = "of the largest ones; each rank needs three times as much memory"},
    {.name = "factor", .type = FSDP_OPTION_INT, PLACE(factor), .value = "4",
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
    .summary = "Measure all_gather, reduce_scatter, all_reduce and broadcast between processes of "
               "this host, in bytes per second and as a part of memcpy's rate, which all ranks "
               "reach at the same time. 'shared' is how sharded units communicate: the result is "
               "in memory that all ranks see. 'copied' are the collectives of the library's API, "
               "whose result is in each rank's own memory.",
    .epilogue = "example:\n  fsdp bench collectives --ranks 4 --max-size 16MiB --json\n",
    .table = table,
    .count = FSDP_LENGTH(table),
};

/* --- in each rank --- */

static double bytes_per_s(const fsdp_bench_collective *m)
{
    return (double)m->bytes / m->seconds;
}

static fsdp_status print_json(int ranks, const fsdp_bench_collective *m)
{
    fsdp_json *doc;
    char *text = NULL;
    FSDP_TRY(fsdp_json_create("collective", &doc));
    fsdp_json_node line = fsdp_json_root(doc);
    fsdp_json_set_str(line, "collective", m->collective);
    fsdp_json_set_str(line, "how", m->how);
    fsdp_json_set_i64(line, "ranks", ranks);
    fsdp_json_set_i64(line, "bytes", m->bytes);
    fsdp_json_set_f64(line, "seconds", m->seconds);
    fsdp_json_set_f64(line, "bytes_per_s", bytes_per_s(m));
    fsdp_json_set_f64(line, "memcpy_bytes_per_s", (double)m->bytes / m->memcpy_seconds);
    fsdp_json_set_f64(line, "of_memcpy", m->memcpy_seconds / m->seconds);
    fsdp_status status = fsdp_json_print(doc, FSDP_JSON_LINE, &text, NULL);
    if (status == FSDP_OK && (printf("%s\n", text) < 0 || fflush(stdout) != 0))
        status = fsdp_error(FSDP_ERR_IO, "cannot write to stdout");
    fsdp_free(text);
    fsdp_json_destroy(doc);
    return status;
}

static void print_heading(int ranks)
{
    printf("%d ranks: GB/s (as a part of memcpy's, which all ranks do at the same time)\n%10s",
           ranks, "");
    for (int i = 0; i < FSDP_BENCH_COLLECTIVES; i++)
        printf(" %14s", fsdp_bench_collective_name(i));
    printf("\n%10s", "bytes");
    for (int i = 0; i < FSDP_BENCH_COLLECTIVES; i++)
        printf(" %14s", i ? fsdp_bench_collective_method(i) : "");
    puts("");
}

typedef struct printer {
    int ranks, column;
    bool json;
} printer;

static fsdp_status print(void *arg, const fsdp_bench_collective *m)
{
    printer *p = arg;
    char cell[64];
    if (p->json)
        return print_json(p->ranks, m);
    if (p->column == 0)
        printf("%10lld", (long long)m->bytes);
    snprintf(cell, sizeof cell, "%.3g (%.2f)", bytes_per_s(m) * 1e-9,
             m->memcpy_seconds / m->seconds);
    if (p->column == 0)
        snprintf(cell, sizeof cell, "%.3g", bytes_per_s(m) * 1e-9);
    printf(" %14s", cell);
    p->column = (p->column + 1) % FSDP_BENCH_COLLECTIVES;
    if (p->column == 0 && (printf("\n") < 0 || fflush(stdout) != 0))
        return fsdp_error(FSDP_ERR_IO, "cannot write to stdout");
    return FSDP_OK;
}

static fsdp_status run_rank(fsdp_group *group, void *arg)
{
    const bench_options *o = arg;
    const fsdp_bench_collectives_config config = {.min_bytes = o->min_size,
                                                  .max_bytes = o->max_size,
                                                  .factor = o->factor,
                                                  .seconds = o->seconds,
                                                  .isa = o->isa};
    printer p = {.ranks = o->ranks, .json = o->json};
    if (fsdp_group_rank(group) == 0 && !o->json)
        print_heading(o->ranks);
    return fsdp_bench_collectives(&config, group, print, &p);
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

static fsdp_status check_options(const bench_options *o)
{
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
    if (check_options(&o) != FSDP_OK || fsdp_bench_job_report(&report) != FSDP_OK)
        code = fsdp_cli_misused(PROGRAM);
    else
        code = report ? fsdp_cli_run_rank(PROGRAM, run_rank, &o) : run_ranks(&o, argv);
    fsdp_options_destroy(options);
    return code;
}
