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
    float *give, *get;          /* [max_bytes] each; all elements of `give` are rank + 1 */
    int rank, ranks;
    size_t bytes; /* the size that is being measured; a multiple of ALIGN x ranks */
    /* Number of the current call, the same on all ranks. It is in the fsdp_phase_info of each
     * phase, so ranks that are in different calls get an error. */
    uint32_t call;
} bench;

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

/* Add up the lanes of all ranks, element by element, and write the sums to `get`. Only bytes
 * [first, first + bytes) of each lane are read. */
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

/* fsdp_all_reduce() replaces `get` by the sum. So the input of each call is the result of the
 * previous call, and the values grow with every call. */
static fsdp_status all_reduce_copied(bench *b)
{
    return fsdp_all_reduce(b->group, b->get, b->bytes / sizeof(float), FSDP_DTYPE_F32,
                           FSDP_REDUCE_SUM);
}

static fsdp_status broadcast_copied(bench *b)
{
    return fsdp_broadcast(b->group, b->rank == 0 ? b->give : b->get, b->bytes, 0);
}

/* The values that the first and the last element of the result must have. They are checked after
 * the first call. */
typedef enum expected {
    OWN,        /* both are rank + 1, as in `give` */
    EACH_RANKS, /* the first is 1, the last is `ranks` */
    SUM,        /* both are the sum over all ranks */
    FIRST_RANKS
} expected;

typedef struct measurement {
    const char *name, *how;
    fsdp_status (*run)(bench *b);
    expected expected;
    bool result_is_part, result_is_shared;
} measurement;

static const measurement measurements[FSDP_BENCH_COLLECTIVES] = {
    {"memcpy", "copied", run_memcpy, OWN, false, false},
    {"all_gather", "shared", all_gather_shared, EACH_RANKS, false, true},
    {"all_gather", "copied", all_gather_copied, EACH_RANKS, false, false},
    {"reduce_scatter", "shared", reduce_scatter_shared, SUM, true, false},
    {"reduce_scatter", "copied", reduce_scatter_copied, SUM, true, false},
    {"all_reduce", "shared", all_reduce_shared, SUM, false, false},
    {"all_reduce", "copied", all_reduce_copied, SUM, false, false},
    {"broadcast", "copied", broadcast_copied, FIRST_RANKS, false, false},
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

static void fill_buffer(float *values, size_t bytes, float value)
{
    for (size_t i = 0; i < bytes / sizeof *values; i++)
        values[i] = value;
}

static fsdp_status check_result(const bench *b, const measurement *m)
{
    const float *result = m->result_is_shared ? fsdp_shared_buffer_data(b->shared)
                          : m->expected == FIRST_RANKS && b->rank == 0 ? b->give
                                                                       : b->get;
    const size_t n = b->bytes / sizeof *result / (m->result_is_part ? (size_t)b->ranks : 1);
    float first = 1.0f, last = 1.0f;
    if (m->expected == OWN)
        first = last = (float)(b->rank + 1);
    else if (m->expected == EACH_RANKS)
        last = (float)b->ranks;
    else if (m->expected == SUM)
        first = last = 0.5f * (float)(b->ranks * (b->ranks + 1));
    if (result[0] == first && result[n - 1] == last)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_STATE, "%s, %s, of %zu bytes gave %g ... %g instead of %g ... %g",
                      m->name, m->how, b->bytes, (double)result[0], (double)result[n - 1],
                      (double)first, (double)last);
}

/* Run n calls. *seconds is set to the duration of one call on the slowest rank. */
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

/* Measure one collective. The first call shows whether its result is right. The duration of the
 * second call determines how many calls fill a round. *seconds is set to the median over the
 * rounds. */
static fsdp_status measure(bench *b, const measurement *m, double *seconds)
{
    double rounds[ROUNDS], once;
    const size_t held = m->result_is_part ? b->bytes / (size_t)b->ranks : b->bytes;
    /* Fill `get`, because all_reduce_copied() reads its input from `get` and writes its result
     * there. The other collectives only write `get`. */
    fill_buffer(b->get, held, (float)(b->rank + 1));
    if (m->run == reduce_scatter_shared)
        memcpy(lane(b, b->rank), b->give, b->bytes);
    FSDP_TRY(time_calls(b, m, 1, &once));
    FSDP_TRY(fsdp_agree(b->group, check_result(b, m)));
    FSDP_TRY(time_calls(b, m, 1, &once));
    const double n = ceil(b->config->seconds / ROUNDS / fmax(once, 1e-9));
    for (int i = 0; i < ROUNDS; i++)
        FSDP_TRY(time_calls(b, m, (int)fmin(fmax(n, 1.0), MAX_CALLS), &rounds[i]));
    qsort(rounds, ROUNDS, sizeof *rounds, by_value);
    *seconds = rounds[ROUNDS / 2];
    return FSDP_OK;
}

static fsdp_status measure_size(bench *b, fsdp_bench_collective_fn *each, void *arg)
{
    fsdp_bench_collective result = {.bytes = (int64_t)b->bytes};
    for (int i = 0; i < FSDP_BENCH_COLLECTIVES; i++) {
        const measurement *m = &measurements[i];
        FSDP_TRY(measure(b, m, &result.seconds));
        if (i == 0)
            result.memcpy_seconds = result.seconds;
        result.collective = m->name;
        result.how = m->how;
        if (b->rank == 0)
            FSDP_TRY(each(arg, &result));
    }
    return FSDP_OK;
}

/* --- buffers --- */

static size_t rounded(const bench *b, int64_t bytes)
{
    const size_t unit = ALIGN * (size_t)b->ranks, n = (size_t)bytes / unit;
    return (n ? n : 1) * unit;
}

/* Fail if the buffers of all ranks do not fit into the memory of the host. The copied collectives
 * also use some scratch memory, which is small and not counted. */
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
    fill_buffer(b->give, bytes, (float)(b->rank + 1));
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
    for (int64_t bytes = config->min_bytes; status == FSDP_OK && bytes <= config->max_bytes;
         bytes *= config->factor) {
        b.bytes = rounded(&b, bytes);
        status = measure_size(&b, each, arg);
        if (bytes > config->max_bytes / config->factor)
            break;
    }
    close_buffers(&b);
    return status;
}
