/* The work of one rank in `fsdp bench collectives`; see bench_collectives.h. */
#include "src/bench/bench_collectives.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/clock.h"
#include "src/comm/agree.h"
#include "src/comm/comm.h"
#include "src/comm/host_memory.h"
#include "src/tensor/device.h"

enum {
    ALIGN = 64, /* each rank's part begins at a multiple of this many bytes */
    ROUNDS = 3,
    MAX_CALLS = 100000, /* maximum number of calls in one round */
    MAX_RANKS = 64
};

typedef struct bench {
    const fsdp_bench_collectives_config *config;
    fsdp_group *group;
    fsdp_device *device;
    fsdp_shared_buffer *shared; /* [ranks][max_bytes]: one lane for each rank */
    /* [max_bytes] each. give: the input of a collective; give[i] is value_of(weight_of(rank), i).
     * get: its result */
    float *give, *get;
    int rank, ranks;
    size_t bytes; /* the size that is being measured; a multiple of ALIGN x ranks */
    /* Number of the current call. Each rank counts its calls, and passes this number when it begins
     * a phase of the shared buffer (fsdp_phase_info). If two ranks are in different calls, they get
     * an error. */
    uint32_t call;
    double memcpy_seconds[FSDP_BENCH_MAX_SIZES]; /* duration of one memcpy of each size */
    /* number of wrong elements so far, on all ranks together */
    int64_t wrong;
} bench;

/* Return the factor by which all elements that a rank contributes are multiplied (value_of()). It
 * is at most 16, so that sums over FSDP_COMM_MAX_RANKS ranks are exact in float32. */
static int weight_of(int rank)
{
    return rank % 16 + 1;
}

static int sum_of_weights(int ranks)
{
    const int last = ranks % 16;
    return ranks / 16 * 136 + last * (last + 1) / 2;
}

/* Return element i of what a rank with the factor `weight` contributes. The value depends on i, so
 * that rows in a wrong place are detected. The values are small whole numbers, so that sums are
 * exact. */
static float value_of(int weight, size_t i)
{
    return (float)(weight * (int)(i % 31 + 1));
}

/* --- the collectives that are measured --- */

static fsdp_status begin(bench *b, fsdp_phase phase, fsdp_comm_kind kind)
{
    const fsdp_phase_info info = {
        .unit = b->call, .kind = (uint16_t)kind, .dtype = FSDP_DTYPE_F32, .bytes = b->bytes};
    return fsdp_phase_begin(b->shared, phase, &info);
}

static char *lane(const bench *b, int rank)
{
    return (char *)fsdp_shared_buffer_data(b->shared) + (size_t)rank * b->bytes;
}

static void copy(const bench *b, void *to, const void *from, size_t bytes)
{
    b->device->kernels->copy(b->device->context, to, from, bytes);
}

/* Set `get` to the sums of the lanes of all ranks, element by element. Only bytes [first, first +
 * bytes) of each lane are read. */
static void sum_lanes(const bench *b, size_t first, size_t bytes)
{
    const void *lanes[MAX_RANKS];
    for (int r = 0; r < b->ranks; r++)
        lanes[r] = lane(b, r) + first;
    b->device->kernels->tree_sum(b->device->context, b->get, lanes, b->ranks, FSDP_DTYPE_F32,
                                 (int64_t)(bytes / sizeof(float)), 1.0f);
}

static fsdp_status run_memcpy(bench *b)
{
    memcpy(b->get, b->give, b->bytes);
    return FSDP_OK;
}

static fsdp_status all_gather_shared(bench *b)
{
    const size_t part = b->bytes / (size_t)b->ranks;
    FSDP_TRY(begin(b, FSDP_PHASE_WRITE, FSDP_KIND_WRITE_SHARD));
    copy(b, (char *)fsdp_shared_buffer_data(b->shared) + (size_t)b->rank * part, b->give, part);
    fsdp_phase_end(b->shared);
    FSDP_TRY(begin(b, FSDP_PHASE_READ, FSDP_KIND_ALL_GATHER));
    fsdp_phase_end(b->shared);
    return FSDP_OK;
}

static fsdp_status all_gather_copied(bench *b)
{
    return fsdp_all_gather(b->group, b->give, b->bytes / (size_t)b->ranks, b->get);
}

static fsdp_status reduce_scatter_shared(bench *b)
{
    const size_t part = b->bytes / (size_t)b->ranks;
    FSDP_TRY(begin(b, FSDP_PHASE_WRITE, FSDP_KIND_GRADIENT));
    fsdp_phase_end(b->shared);
    FSDP_TRY(begin(b, FSDP_PHASE_READ, FSDP_KIND_REDUCE_SCATTER));
    sum_lanes(b, (size_t)b->rank * part, part);
    fsdp_phase_end(b->shared);
    return FSDP_OK;
}

static fsdp_status reduce_scatter_copied(bench *b)
{
    return fsdp_reduce_scatter(b->group, b->give, b->get,
                               b->bytes / (size_t)b->ranks / sizeof(float), FSDP_REDUCE_SUM);
}

static fsdp_status all_reduce_shared(bench *b)
{
    FSDP_TRY(begin(b, FSDP_PHASE_WRITE, FSDP_KIND_GRADIENT));
    copy(b, lane(b, b->rank), b->give, b->bytes);
    fsdp_phase_end(b->shared);
    FSDP_TRY(begin(b, FSDP_PHASE_READ, FSDP_KIND_ALL_REDUCE));
    sum_lanes(b, 0, b->bytes);
    fsdp_phase_end(b->shared);
    return FSDP_OK;
}

/* Reduce `get` in place: fsdp_all_reduce() replaces its input by the sum. So the input of each call
 * is the result of the previous call, and the values grow with each call. */
static fsdp_status all_reduce_copied(bench *b)
{
    return fsdp_all_reduce(b->group, b->get, b->bytes / sizeof(float), FSDP_DTYPE_F32,
                           FSDP_REDUCE_SUM);
}

static fsdp_status broadcast_copied(bench *b)
{
    return fsdp_broadcast(b->group, b->rank == 0 ? b->give : b->get, b->bytes, 0);
}

/* What this rank's result of the first call must be. */
typedef enum expected {
    OWN,        /* what this rank contributes */
    EACH_RANKS, /* what each rank contributes, one after the other */
    SUM,        /* the sum of what all ranks contribute */
    FIRST_RANKS /* what rank 0 contributes */
} expected;

typedef struct measurement {
    const char *name, *how;
    fsdp_status (*run)(bench *b);
    expected expected;
    bool result_is_part, result_is_shared;
    /* On n ranks, the bus bandwidth is the algorithm bandwidth x `bus` x (n - 1) / n. If `bus` is
     * 0, the bus bandwidth is equal to the algorithm bandwidth. */
    double bus;
} measurement;

static const measurement measurements[FSDP_BENCH_COLLECTIVES] = {
    {"memcpy", "copied", run_memcpy, OWN, false, false, 0.0},
    {"all_gather", "shared", all_gather_shared, EACH_RANKS, false, true, 1.0},
    {"all_gather", "copied", all_gather_copied, EACH_RANKS, false, false, 1.0},
    {"reduce_scatter", "shared", reduce_scatter_shared, SUM, true, false, 1.0},
    {"reduce_scatter", "copied", reduce_scatter_copied, SUM, true, false, 1.0},
    {"all_reduce", "shared", all_reduce_shared, SUM, false, false, 2.0},
    {"all_reduce", "copied", all_reduce_copied, SUM, false, false, 2.0},
    {"broadcast", "copied", broadcast_copied, FIRST_RANKS, false, false, 0.0},
};

const char *fsdp_bench_collective_name(int i)
{
    return measurements[i].name;
}

const char *fsdp_bench_collective_method(int i)
{
    return measurements[i].how;
}

/* --- measuring --- */

static void fill_buffer(const bench *b, float *values, size_t bytes)
{
    for (size_t i = 0; i < bytes / sizeof *values; i++)
        values[i] = value_of(weight_of(b->rank), i);
}

/* Return element i of the expected result on this rank. */
static float expected_value(const bench *b, const measurement *m, size_t i, size_t part)
{
    switch (m->expected) {
    case EACH_RANKS:
        return value_of(weight_of((int)(i / part)), i % part);
    case SUM: {
        const size_t at = m->result_is_part ? (size_t)b->rank * part + i : i;
        return value_of(sum_of_weights(b->ranks), at);
    }
    case FIRST_RANKS:
        return value_of(weight_of(0), i);
    case OWN:
        break;
    }
    return value_of(weight_of(b->rank), i);
}

/* Count the elements of this rank's result that are wrong. */
static int64_t count_wrong(const bench *b, const measurement *m)
{
    const float *result = m->result_is_shared ? fsdp_shared_buffer_data(b->shared)
                          : m->expected == FIRST_RANKS && b->rank == 0 ? b->give
                                                                       : b->get;
    const size_t all = b->bytes / sizeof *result, part = all / (size_t)b->ranks;
    const size_t n = m->result_is_part ? part : all;
    int64_t wrong = 0;
    for (size_t i = 0; i < n; i++)
        wrong += result[i] != expected_value(b, m, i, part);
    return wrong;
}

/* Run n calls. Set *seconds to the duration of one call on the slowest rank. */
static fsdp_status time_calls(bench *b, const measurement *m, int n, double *seconds)
{
    FSDP_TRY(fsdp_barrier(b->group));
    const double start = fsdp_clock_s();
    for (int i = 0; i < n; i++) {
        b->call++;
        FSDP_TRY(m->run(b));
    }
    *seconds = (fsdp_clock_s() - start) / n;
    return fsdp_all_reduce(b->group, seconds, 1, FSDP_DTYPE_F64, FSDP_REDUCE_MAX);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Measure one collective. The result of the first call is checked. The duration of the second call
 * decides how many calls make a round. Each of ROUNDS rounds gives a duration per call. Set
 * *seconds to the median of these durations, and *wrong to the number of wrong elements on all
 * ranks. */
static fsdp_status measure(bench *b, const measurement *m, double *seconds, int64_t *wrong)
{
    double rounds[ROUNDS], once;
    const size_t held = m->result_is_part ? b->bytes / (size_t)b->ranks : b->bytes;
    /* Fill `get`. all_reduce_copied() reads its input from `get` and writes its result there. The
     * other collectives only write to `get`; it is filled with -1, which no correct result
     * contains. */
    if (m->run == all_reduce_copied)
        fill_buffer(b, b->get, held);
    else
        for (size_t i = 0; i < held / sizeof(float); i++)
            b->get[i] = -1.0f;
    if (m->run == reduce_scatter_shared)
        memcpy(lane(b, b->rank), b->give, b->bytes);
    FSDP_TRY(time_calls(b, m, 1, &once));
    *wrong = count_wrong(b, m);
    FSDP_TRY(fsdp_all_reduce(b->group, wrong, 1, FSDP_DTYPE_I64, FSDP_REDUCE_SUM));
    b->wrong += *wrong;
    FSDP_TRY(time_calls(b, m, 1, &once));
    const double n = ceil(b->config->seconds / ROUNDS / fmax(once, 1e-9));
    for (int i = 0; i < ROUNDS; i++)
        FSDP_TRY(time_calls(b, m, (int)fmin(fmax(n, 1.0), MAX_CALLS), &rounds[i]));
    qsort(rounds, ROUNDS, sizeof *rounds, by_value);
    *seconds = rounds[ROUNDS / 2];
    return FSDP_OK;
}

/* Measure collective i with size k, an index into the list of sizes. */
static fsdp_status measure_size(bench *b, int i, int k, fsdp_bench_collective_fn *each, void *arg)
{
    const measurement *m = &measurements[i];
    fsdp_bench_collective result = {.collective = m->name,
                                    .how = m->how,
                                    .redop = m->expected == SUM ? "sum" : "none",
                                    .root = m->expected == FIRST_RANKS ? 0 : -1,
                                    .bytes = (int64_t)b->bytes};
    const bool is_part = m->result_is_part || m->expected == EACH_RANKS;
    FSDP_TRY(measure(b, m, &result.seconds, &result.wrong));
    if (i == 0)
        b->memcpy_seconds[k] = result.seconds;
    result.count = result.bytes / (int64_t)sizeof(float) / (is_part ? b->ranks : 1);
    result.memcpy_seconds = b->memcpy_seconds[k];
    result.algbw = (double)b->bytes / result.seconds;
    result.busbw = result.algbw * (m->bus > 0.0 ? m->bus * (b->ranks - 1) / b->ranks : 1.0);
    return b->rank == 0 ? each(arg, &result) : FSDP_OK;
}

/* --- buffers --- */

static size_t rounded(const bench *b, int64_t bytes)
{
    const size_t unit = ALIGN * (size_t)b->ranks, n = (size_t)bytes / unit;
    return (n ? n : 1) * unit;
}

/* Return an error if the buffers of all ranks do not fit into the memory of the host. The scratch
 * memory of the copied collectives is small and is not counted. */
static fsdp_status check_memory(const bench *b, size_t bytes)
{
    const double wanted = 3.0 * (double)bytes * b->ranks,
                 available = (double)fsdp_host_memory_available();
    if (wanted <= 0.9 * available)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_NOMEM,
                      "%d ranks need %.0f MiB for buffers of %zu bytes, of %.0f MiB that are "
                      "available: take smaller ones (--max-size)",
                      b->ranks, wanted / 0x1p20, bytes, available / 0x1p20);
}

static fsdp_status open_buffers(bench *b)
{
    const fsdp_device_options options = {.name = "cpu", .isa = b->config->isa};
    const size_t bytes = rounded(b, b->config->max_bytes);
    fsdp_status status = check_memory(b, bytes);
    if (status == FSDP_OK)
        status = fsdp_device_create(&options, &b->device);
    if (status == FSDP_OK) {
        b->give = fsdp_calloc(bytes, 1);
        b->get = fsdp_calloc(bytes, 1);
        if (!b->give || !b->get)
            status = fsdp_error_nomem();
    }
    FSDP_TRY(fsdp_agree(b->group, status));
    fill_buffer(b, b->give, bytes);
    return fsdp_shared_buffer_create(b->group, bytes * (size_t)b->ranks, &b->shared);
}

static void close_buffers(bench *b)
{
    fsdp_shared_buffer_destroy(b->shared);
    fsdp_free(b->give);
    fsdp_free(b->get);
    fsdp_device_destroy(b->device);
}

static fsdp_status check_config(const bench *b)
{
    const fsdp_bench_collectives_config *c = b->config;
    if (b->ranks < 2 || b->ranks > MAX_RANKS)
        return fsdp_error(FSDP_ERR_INVALID, "%d ranks: collectives are measured between 2 and %d",
                          b->ranks, MAX_RANKS);
    if (c->min_bytes < 1 || c->max_bytes < c->min_bytes || c->factor < 2 || !(c->seconds > 0.0))
        return fsdp_error(FSDP_ERR_INVALID,
                          "sizes from %lld to %lld bytes by a factor of %d, %g s each: there are "
                          "none",
                          (long long)c->min_bytes, (long long)c->max_bytes, c->factor, c->seconds);
    return FSDP_OK;
}

/* Set b->bytes to size k, an index into the list of sizes. Return false if there is no size k. */
static bool choose_size(bench *b, int k)
{
    const fsdp_bench_collectives_config *c = b->config;
    int64_t bytes = c->min_bytes;
    for (; k > 0 && bytes <= c->max_bytes / c->factor; k--)
        bytes *= c->factor;
    b->bytes = rounded(b, bytes);
    return k == 0;
}

/* Measure collective i with all sizes. Two small sizes may become equal when they are rounded. In
 * that case, the second one is skipped. */
static fsdp_status measure_sizes(bench *b, int i, fsdp_bench_collective_fn *each, void *arg)
{
    size_t before = 0;
    for (int k = 0; k < FSDP_BENCH_MAX_SIZES && choose_size(b, k); k++) {
        if (b->bytes != before)
            FSDP_TRY(measure_size(b, i, k, each, arg));
        before = b->bytes;
    }
    return FSDP_OK;
}

static fsdp_status measure_all(bench *b, fsdp_bench_collective_fn *each, void *arg)
{
    for (int i = 0; i < FSDP_BENCH_COLLECTIVES; i++)
        FSDP_TRY(measure_sizes(b, i, each, arg));
    if (b->wrong)
        return fsdp_error(FSDP_ERR_STATE, "%lld elements of the results are wrong",
                          (long long)b->wrong);
    return FSDP_OK;
}

fsdp_status fsdp_bench_collectives(const fsdp_bench_collectives_config *config, fsdp_group *group,
                                   fsdp_bench_collective_fn *each, void *arg)
{
    bench b = {.config = config,
               .group = group,
               .rank = fsdp_group_rank(group),
               .ranks = fsdp_group_world_size(group)};
    FSDP_TRY(check_config(&b));
    fsdp_group_set_threads(group, 1);
    fsdp_status status = open_buffers(&b);
    if (status == FSDP_OK)
        status = measure_all(&b, each, arg);
    close_buffers(&b);
    return status;
}
