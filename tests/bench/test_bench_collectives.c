/* `fsdp bench collectives` measures every collective at every size. The measurement itself checks
 * the results. */
#include "src/bench/bench_collectives.h"
#include "tests/test.h"

enum {
    SIZES = 4
};

typedef struct heard {
    fsdp_test *t;
    int64_t bytes[64];
    int n;
    int sizes; /* number of sizes of each collective */
} heard;

/* Counts and bus bandwidths are those that nccl-tests prints for the same size and time. */
static bool is_as_nccl_tests_counts(const fsdp_test *t, const fsdp_bench_collective *m)
{
    const int n = t->world_size;
    const bool gathers = strcmp(m->collective, "all_gather") == 0,
               scatters = strcmp(m->collective, "reduce_scatter") == 0,
               reduces = strcmp(m->collective, "all_reduce") == 0,
               broadcasts = strcmp(m->collective, "broadcast") == 0;
    const double algbw = (double)m->bytes / m->seconds;
    const double busbw = gathers || scatters ? algbw * (n - 1) / n
                         : reduces           ? 2 * algbw * (n - 1) / n
                                             : algbw;
    return m->count == m->bytes / 4 / (gathers || scatters ? n : 1) &&
           strcmp(m->redop, scatters || reduces ? "sum" : "none") == 0 &&
           m->root == (broadcasts ? 0 : -1) && fabs(m->algbw / algbw - 1) < 1e-12 &&
           fabs(m->busbw / busbw - 1) < 1e-12;
}

static fsdp_status hear(void *arg, const fsdp_bench_collective *m)
{
    heard *h = arg;
    const int i = h->n / h->sizes;
    if (h->n == 64 || strcmp(m->collective, fsdp_bench_collective_name(i)) != 0 ||
        strcmp(m->how, fsdp_bench_collective_method(i)) != 0 || !(m->seconds > 0.0) ||
        !(m->memcpy_seconds > 0.0) || m->wrong || !is_as_nccl_tests_counts(h->t, m))
        return fsdp_error(FSDP_ERR_STATE, "measurement %d is %s, %s, of %g s", h->n, m->collective,
                          m->how, m->seconds);
    h->bytes[h->n++] = m->bytes;
    return FSDP_OK;
}

/* From 512 bytes by a factor of 3 up to 20000: 512, 1536, 4608, 13824, rounded to 64 bytes a
 * rank. */
static void measure_four_sizes(fsdp_test *t, const int64_t bytes[4])
{
    const fsdp_bench_collectives_config c = {
        .min_bytes = 512, .max_bytes = 20000, .factor = 3, .seconds = 1e-6};
    heard h = {.t = t, .sizes = SIZES};
    ASSERT_OK(fsdp_bench_collectives(&c, t->group, hear, &h));
    ASSERT_INT(h.n, t->rank == 0 ? SIZES * FSDP_BENCH_COLLECTIVES : 0);
    for (int i = 0; i < h.n; i++)
        ASSERT_INT(h.bytes[i], bytes[i % SIZES]);
}

TEST_RANKS(two_ranks_measure_every_collective_at_every_size, 2)
{
    measure_four_sizes(t, (const int64_t[]){512, 1536, 4608, 13824});
}
TEST_RANKS(sizes_are_whole_lines_for_each_of_five_ranks, 5)
{
    measure_four_sizes(t, (const int64_t[]){320, 1280, 4480, 13760});
}

/* 8, 16, 32, 64, 128 and 256 bytes are 128 bytes for two ranks, and 256. */
TEST_RANKS(sizes_that_are_rounded_to_one_are_measured_once, 2)
{
    const fsdp_bench_collectives_config c = {
        .min_bytes = 8, .max_bytes = 256, .factor = 2, .seconds = 1e-6};
    heard h = {.t = t, .sizes = 2};
    ASSERT_OK(fsdp_bench_collectives(&c, t->group, hear, &h));
    ASSERT_INT(h.n, t->rank == 0 ? 2 * FSDP_BENCH_COLLECTIVES : 0);
    for (int i = 0; i < h.n; i++)
        ASSERT_INT(h.bytes[i], i % 2 ? 256 : 128);
}

static fsdp_status try_sizes(fsdp_test *t, int64_t min_bytes, int64_t max_bytes, int factor)
{
    const fsdp_bench_collectives_config c = {
        .min_bytes = min_bytes, .max_bytes = max_bytes, .factor = factor, .seconds = 1e-6};
    heard h = {.t = t, .sizes = SIZES};
    return fsdp_bench_collectives(&c, t->group, hear, &h);
}

TEST_RANKS(sizes_that_do_not_ascend_or_fit_are_refused, 2)
{
    ASSERT_ERROR(try_sizes(t, 128, 127, 2), FSDP_ERR_INVALID, "from 128 to 127 bytes");
    ASSERT_ERROR(try_sizes(t, 128, 256, 1), FSDP_ERR_INVALID, "by a factor of 1");
    ASSERT_ERROR(try_sizes(t, 128, (int64_t)1 << 48, 2), FSDP_ERR_NOMEM,
                 "MiB for buffers of 281474976710656 bytes");
}
TEST_RANKS(one_rank_has_no_collectives, 1)
{
    ASSERT_ERROR(try_sizes(t, 128, 256, 2), FSDP_ERR_INVALID, "1 ranks");
}

static fsdp_status refuse(void *arg, const fsdp_bench_collective *m)
{
    (void)arg;
    (void)m;
    return fsdp_error(FSDP_ERR_IO, "cannot write to stdout");
}

/* A rank that cannot print ends the job; its abort is an error for the others. */
TEST_RANKS(a_rank_that_cannot_print_returns_an_error, 2)
{
    const fsdp_bench_collectives_config c = {
        .min_bytes = 128, .max_bytes = 128, .factor = 2, .seconds = 1e-6};
    fsdp_status status = fsdp_bench_collectives(&c, t->group, refuse, NULL);
    if (t->rank == 0) {
        ASSERT_ERROR(status, FSDP_ERR_IO, "cannot write");
        fsdp_group_abort(t->group, status);
    } else {
        ASSERT_ERROR(status, FSDP_ERR_COMM, "cannot write");
    }
}
