/* All ranks draw the same program: a buffer and WRITE or READ for each phase. A WRITE stamps the
 * rank's whole part with the buffer's version. A READ expects every word of all parts to have
 * exactly that version, so both a stale value and one written too early are detected. Parts have
 * different sizes, so ranks take different times. Sometimes a buffer is discarded; what is written
 * after that must not be lost. */
#include "tests/comm/stress.h"

#include "src/base/alloc.h"
#include "src/base/philox.h"
#include "src/comm/comm.h"
#include "src/comm/control.h"
#include "src/comm/group_testing.h"

enum {
    BUFFERS = 4,
    PART_WORDS = 512 /* size of the largest part */
};

typedef struct stress {
    const stress_options *options;
    fsdp_group *group;
    int rank, world_size;
    fsdp_shared_buffer *buffers[BUFFERS];
    uint64_t version[BUFFERS];
    bool discarded[BUFFERS]; /* its content is undefined */
    int64_t violations;
} stress;

static size_t part_begin(int rank)
{
    size_t begin = 0;
    for (int r = 0; r < rank; r++)
        begin += 1 + (size_t)(fsdp_mix64((uint64_t)r) % PART_WORDS);
    return begin;
}

static uint64_t stamp(uint64_t version, int buffer, size_t word)
{
    return version == 0 ? 0 : version << 32 | (uint64_t)buffer << 24 | (word & 0xffffff);
}

static void write_part(stress *s, int b)
{
    uint64_t *data = fsdp_shared_buffer_data(s->buffers[b]);
    s->version[b]++;
    s->discarded[b] = false;
    for (size_t i = part_begin(s->rank), end = part_begin(s->rank + 1); i < end; i++)
        data[i] = stamp(s->version[b], b, i);
    fsdp_phase_wrote(s->buffers[b], FSDP_ALL_READERS, part_begin(s->rank) * sizeof *data,
                     (part_begin(s->rank + 1) - part_begin(s->rank)) * sizeof *data);
}

static void read_all(stress *s, int b)
{
    const uint64_t *data = fsdp_shared_buffer_data(s->buffers[b]);
    for (size_t i = 0, end = part_begin(s->world_size); i < end && !s->discarded[b]; i++)
        s->violations += data[i] != stamp(s->version[b], b, i);
}

static fsdp_status run_phases(stress *s)
{
    for (int n = 0; n < s->options->phases; n++) {
        uint64_t draw = fsdp_mix64(s->options->seed * 1000003 + (uint64_t)n);
        int b = (int)(draw % BUFFERS);
        if ((draw >> 16) % 8 == 0) {
            FSDP_TRY(fsdp_shared_buffer_discard(s->buffers[b], (draw >> 20 & 1) * FSDP_COMM_PAGE));
            s->discarded[b] = true;
            continue;
        }
        fsdp_phase phase = draw >> 8 & 1 ? FSDP_PHASE_WRITE : FSDP_PHASE_READ;
        fsdp_phase_info info = {.unit = (uint32_t)b,
                                .step = (uint32_t)n,
                                .kind = phase == FSDP_PHASE_WRITE ? FSDP_KIND_WRITE_SHARD
                                                                  : FSDP_KIND_ALL_GATHER};
        bool ready = phase == FSDP_PHASE_READ && fsdp_phase_read_ready(s->buffers[b]);
        int64_t waited = fsdp_comm_counters_wait_ns(fsdp_group_counters(s->group));
        FSDP_TRY(fsdp_phase_begin(s->buffers[b], phase, &info));
        if (ready && fsdp_comm_counters_wait_ns(fsdp_group_counters(s->group)) != waited)
            return fsdp_error(FSDP_ERR_STATE, "phase %d was ready and yet it waited", n);
        if (phase == FSDP_PHASE_WRITE)
            write_part(s, b);
        else
            read_all(s, b);
        fsdp_phase_end(s->buffers[b]);
    }
    return FSDP_OK;
}

fsdp_status comm_stress(fsdp_group *group, void *arg)
{
    stress s = {.options = arg,
                .group = group,
                .rank = fsdp_group_rank(group),
                .world_size = fsdp_group_world_size(group)};
    fsdp_status status = FSDP_OK;
    for (int b = 0; status == FSDP_OK && b < BUFFERS; b++)
        status = fsdp_shared_buffer_create(group, part_begin(s.world_size) * sizeof(uint64_t),
                                           &s.buffers[b]);
    fsdp_group_set_delay(group, s.options->seed, s.options->max_delay_us);
    fsdp_group_test_skip_writer_wait(group, s.options->skip_writer_wait);
    if (status == FSDP_OK)
        status = run_phases(&s);
    if (status == FSDP_OK)
        status = fsdp_all_reduce(group, &s.violations, 1, FSDP_DTYPE_I64, FSDP_REDUCE_SUM);
    for (int b = 0; b < BUFFERS; b++)
        fsdp_shared_buffer_destroy(s.buffers[b]);
    if (status == FSDP_OK && s.violations)
        return fsdp_error(FSDP_ERR_STATE, "%lld violations", (long long)s.violations);
    return status;
}

/* ---- collectives ---- */

enum {
    MAX_COUNT = 80000 /* int32_t elements: more than fits in a slot of the scratch buffer */
};

/* What rank r contributes at element i to call n: small, so that sums are exact. */
static int32_t contribution(uint64_t n, int r, size_t i)
{
    return (int32_t)(fsdp_mix64(n << 32 ^ (uint64_t)r << 24 ^ i) % 1000);
}

static fsdp_status wrong(const char *call, uint64_t n, size_t i)
{
    return fsdp_error(FSDP_ERR_STATE, "call %llu, %s: element %zu is wrong", (unsigned long long)n,
                      call, i);
}

static void fill(int32_t *values, uint64_t n, int rank, size_t count)
{
    for (size_t i = 0; i < count; i++)
        values[i] = contribution(n, rank, i);
}

static fsdp_status random_all_reduce(fsdp_group *g, uint64_t n, size_t count, int32_t *buf)
{
    const fsdp_reduce_op op = n % 2 ? FSDP_REDUCE_SUM : FSDP_REDUCE_MAX;
    fill(buf, n, fsdp_group_rank(g), count);
    FSDP_TRY(fsdp_all_reduce(g, buf, count, FSDP_DTYPE_I32, op));
    for (size_t i = 0; i < count; i++) {
        int32_t expected = 0;
        for (int r = 0; r < fsdp_group_world_size(g); r++) {
            int32_t x = contribution(n, r, i);
            expected = op == FSDP_REDUCE_SUM ? expected + x : x > expected ? x : expected;
        }
        if (buf[i] != expected)
            return wrong("all_reduce", n, i);
    }
    return FSDP_OK;
}

static fsdp_status random_all_gather(fsdp_group *g, uint64_t n, size_t count, int32_t *buf)
{
    const size_t part = count / (size_t)fsdp_group_world_size(g);
    int32_t *own = fsdp_calloc(part, sizeof *own);
    if (!own)
        return FSDP_ERR_NOMEM;
    fill(own, n, fsdp_group_rank(g), part);
    fsdp_status status = fsdp_all_gather(g, own, part * sizeof *own, buf);
    fsdp_free(own);
    for (int r = 0; status == FSDP_OK && r < fsdp_group_world_size(g); r++)
        for (size_t i = 0; status == FSDP_OK && i < part; i++)
            if (buf[(size_t)r * part + i] != contribution(n, r, i))
                status = wrong("all_gather", n, i);
    return status;
}

static fsdp_status random_broadcast(fsdp_group *g, uint64_t n, size_t count, int32_t *buf)
{
    const int root = (int)(fsdp_mix64(n) % (uint64_t)fsdp_group_world_size(g));
    fill(buf, n, fsdp_group_rank(g), count);
    FSDP_TRY(fsdp_broadcast(g, buf, count * sizeof *buf, root));
    for (size_t i = 0; i < count; i++)
        if (buf[i] != contribution(n, root, i))
            return wrong("broadcast", n, i);
    return FSDP_OK;
}

static fsdp_status random_reduce_scatter(fsdp_group *g, uint64_t n, size_t count, int32_t *buf)
{
    const int world_size = fsdp_group_world_size(g), rank = fsdp_group_rank(g);
    const size_t part = count / (size_t)world_size;
    float *values = (float *)(void *)buf, *own = fsdp_calloc(part, sizeof *own);
    if (!own)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < part * (size_t)world_size; i++)
        values[i] = (float)contribution(n, rank, i);
    fsdp_status status = fsdp_reduce_scatter(g, values, own, part, FSDP_REDUCE_SUM);
    for (size_t i = 0; status == FSDP_OK && i < part; i++) {
        int32_t expected = 0;
        for (int r = 0; r < world_size; r++)
            expected += contribution(n, r, (size_t)rank * part + i);
        if ((int32_t)own[i] != expected)
            status = wrong("reduce_scatter", n, i);
    }
    fsdp_free(own);
    return status;
}

static fsdp_status random_collective(fsdp_group *g, uint64_t n, uint64_t draw, int32_t *buf)
{
    static const size_t limits[] = {3, 100, 3000, MAX_COUNT};
    const size_t count = (size_t)(draw >> 16) % limits[draw >> 8 & 3];
    switch (draw % 5) {
    case 0:
        return random_all_reduce(g, n, count, buf);
    case 1:
        return random_all_gather(g, n, count, buf);
    case 2:
        return random_broadcast(g, n, count, buf);
    case 3:
        return random_reduce_scatter(g, n, count, buf);
    default:
        return fsdp_barrier(g);
    }
}

fsdp_status comm_random_collectives(fsdp_group *group, void *arg)
{
    const stress_options *o = arg;
    fsdp_group *half = NULL;
    fsdp_group_set_delay(group, o->seed, o->max_delay_us);
    FSDP_TRY(fsdp_group_split(group, fsdp_group_rank(group) % 2, 0, &half));
    int32_t *buf = fsdp_calloc(MAX_COUNT, sizeof *buf);
    fsdp_status status = buf ? FSDP_OK : FSDP_ERR_NOMEM;
    for (int n = 0; n < o->phases && status == FSDP_OK; n++) {
        uint64_t draw = fsdp_mix64(o->seed * 1000003 + (uint64_t)n);
        status = random_collective(draw >> 40 & 1 ? half : group, (uint64_t)n, draw, buf);
    }
    fsdp_free(buf);
    fsdp_destroy_process_group(half);
    return status;
}
