/* All ranks draw the same program: a buffer and WRITE or READ for each phase. A WRITE stamps the
 * rank's whole part with the buffer's version; a READ expects every word of all parts to carry
 * exactly that version, so both a stale value and one written too early are found. Parts have
 * different sizes, so ranks take different times. */
#include "tests/comm/stress.h"

#include "src/base/alloc.h"
#include "src/base/philox.h"
#include "src/comm/comm.h"

enum {
    BUFFERS = 4,
    PART_WORDS = 512 /* of the largest part */
};

typedef struct stress {
    const stress_options *options;
    fsdp_group *group;
    int rank, world_size;
    fsdp_shared_buffer *buffers[BUFFERS];
    uint64_t version[BUFFERS];
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
    for (size_t i = part_begin(s->rank), end = part_begin(s->rank + 1); i < end; i++)
        data[i] = stamp(s->version[b], b, i);
}

static void read_all(stress *s, int b)
{
    const uint64_t *data = fsdp_shared_buffer_data(s->buffers[b]);
    for (size_t i = 0, end = part_begin(s->world_size); i < end; i++)
        s->violations += data[i] != stamp(s->version[b], b, i);
}

static fsdp_status run_phases(stress *s)
{
    for (int n = 0; n < s->options->phases; n++) {
        uint64_t draw = fsdp_mix64(s->options->seed * 1000003 + (uint64_t)n);
        int b = (int)(draw % BUFFERS);
        fsdp_phase phase = draw >> 8 & 1 ? FSDP_PHASE_WRITE : FSDP_PHASE_READ;
        fsdp_phase_info info = {.unit = (uint32_t)b,
                                .step = (uint32_t)n,
                                .kind = phase == FSDP_PHASE_WRITE ? FSDP_KIND_WRITE_SHARD
                                                                  : FSDP_KIND_ALL_GATHER};
        bool ready = phase == FSDP_PHASE_READ && fsdp_phase_read_ready(s->buffers[b]);
        int64_t waited = fsdp_group_counters(s->group)->wait_ns;
        FSDP_TRY(fsdp_phase_begin(s->buffers[b], phase, &info));
        if (ready && fsdp_group_counters(s->group)->wait_ns != waited)
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
