/* Stores frozen parameters in 4 bits: Note [Quantized parameters] in src/nn/quantized.h.
 *
 * Note [Quantized storage]. Unshard reads the parts of all ranks and writes the values to private
 * memory in param_dtype, as the storage "extension" does (storage_extension.c). Reshard returns
 * this memory to its pool.
 *
 * Where all ranks share memory, the parts of all ranks are in one shared buffer, and a rank's
 * `local` is a view of its part. The buffer is written when the model is loaded. From the first
 * unshard on, the buffer is in a READ phase, and no data move. The statistics count one all-gather
 * of the buffer's bytes for each step, because the peers' parts stay readable from forward to
 * backward.
 *
 * If the ranks do not share memory (on several hosts, for example), a rank keeps only its own part.
 * In forward, a gather copies this part to a buffer from a pool, and all ranks read this buffer.
 * Backward gathers again in the same way. */
#include "src/fsdp/param_storage.h"
#include "src/nn/quantized.h"

enum {
    PART_ALIGN = 64
};

typedef struct quantized_memory {
    fsdp_param_memory base;
    /* The parts of all ranks if the ranks share memory. Otherwise this rank's parts. */
    fsdp_buffer *buffer;
    fsdp_storage *storage; /* Its data is `buffer`; the local tensors are views of it. */
    int writers;           /* Number of open writes of this rank's parts. */
    bool is_reading;       /* `buffer` is in a READ phase. */
    uint32_t counted_step; /* The step in which the last all-gather was counted. */
    bool is_counted;       /* The last unshard counted an all-gather. */
    /* The parts of all ranks, if the ranks do not share memory. NULL: no gather is in progress. */
    fsdp_buffer *gathered;
    fsdp_buffer *unpacked; /* The whole parameters in param_dtype. NULL: the group is sharded. */
} quantized_memory;

static quantized_memory *quantized_of(fsdp_param_memory *m)
{
    return (quantized_memory *)(void *)m;
}

static bool is_shared(const quantized_memory *m)
{
    return fsdp_ranks_share_memory(m->base.context, m->base.context->shard_group);
}

/* --- layout --- */

/* The place of one rank's part of one parameter. The place is in a buffer that has all parts of all
 * parameters. The places are sorted by parameter, and for each parameter by rank. */
typedef struct place {
    size_t param;
    int rank;
    size_t offset;
    fsdp_quantized_part part;
} place;

static size_t aligned(size_t bytes)
{
    return (bytes + PART_ALIGN - 1) / PART_ALIGN * PART_ALIGN;
}

/* Move *at to the next place. To begin, set *at to {.rank = -1}. Return false after the last
 * place. */
static bool next_place(const quantized_memory *m, place *at)
{
    const int world = fsdp_group_world_size(m->base.context->shard_group);
    at->offset += aligned(at->part.bytes);
    if (++at->rank == world) {
        at->param++;
        at->rank = 0;
    }
    if (at->param == m->base.n_params)
        return false;
    at->part =
        fsdp_quantized_part_of(m->base.params[at->param]->parameter->quantized, world, at->rank);
    return true;
}

static fsdp_quantized_part own_part(const fsdp_param *p)
{
    const fsdp_group *group = p->context->shard_group;
    return fsdp_quantized_part_of(p->parameter->quantized, fsdp_group_world_size(group),
                                  fsdp_group_rank(group));
}

/* Return the size in bytes of a buffer with the parts of all ranks. Set *logical to its size
 * without padding. */
static size_t total_bytes(const quantized_memory *m, uint64_t *logical)
{
    place at = {.rank = -1};
    *logical = 0;
    while (next_place(m, &at))
        *logical += at.part.bytes;
    return at.offset;
}

/* Return the size in bytes of m->buffer. */
static size_t buffer_bytes(const quantized_memory *m)
{
    uint64_t logical;
    size_t bytes = PART_ALIGN; /* never 0, even if this rank has no part */
    if (is_shared(m))
        return total_bytes(m, &logical);
    for (size_t i = 0; i < m->base.n_params; i++)
        bytes += aligned(own_part(m->base.params[i]).bytes);
    return bytes;
}

/* Return the offset of this rank's part of p in m->buffer. */
static size_t own_offset(const quantized_memory *m, const fsdp_param *p)
{
    const int rank = fsdp_group_rank(m->base.context->shard_group);
    size_t own = 0;
    place at = {.rank = -1};
    while (next_place(m, &at)) {
        if (at.rank != rank)
            continue;
        if (m->base.params[at.param] == p)
            return is_shared(m) ? at.offset : own;
        own += aligned(at.part.bytes);
    }
    return own;
}

/* --- writes of this rank's parts --- */

static fsdp_phase_info phase_info(const quantized_memory *m, fsdp_phase_kind kind)
{
    uint64_t logical;
    total_bytes(m, &logical);
    return fsdp_param_context_phase(m->base.context, kind, FSDP_DTYPE_U8, logical);
}

static fsdp_status begin_write(void *self)
{
    quantized_memory *m = self;
    const fsdp_phase_info info = phase_info(m, FSDP_KIND_WRITE_SHARD);
    if (m->is_reading)
        fsdp_buffer_end(m->buffer);
    m->is_reading = false;
    return fsdp_param_memory_begin_write(m->buffer, &info, &m->writers);
}

static void end_write(void *self)
{
    quantized_memory *m = self;
    fsdp_param_memory_end_write(m->buffer, &m->writers);
}

/* --- gathering --- */

static void drop(fsdp_param_memory *base)
{
    quantized_memory *m = quantized_of(base);
    if (m->gathered)
        fsdp_pool_release(fsdp_param_context_pool(base->context), m->gathered);
    m->gathered = NULL;
}

/* Copy this rank's parts to m->gathered, which is in a WRITE phase. */
static void copy_own_parts(const quantized_memory *m)
{
    const int rank = fsdp_group_rank(m->base.context->shard_group);
    const fsdp_device *device = m->base.context->device;
    const char *from = fsdp_buffer_data(m->buffer);
    char *to = fsdp_buffer_data(m->gathered);
    place at = {.rank = -1};
    while (next_place(m, &at)) {
        if (at.rank != rank)
            continue;
        if (to && from) {
            device->kernels->copy(device->context, to + at.offset, from, at.part.bytes);
            from += aligned(at.part.bytes);
        }
        fsdp_buffer_wrote(m->gathered, FSDP_ALL_READERS, at.offset, at.part.bytes);
    }
}

static fsdp_status gather(fsdp_param_memory *base)
{
    quantized_memory *m = quantized_of(base);
    const fsdp_param_context *c = base->context;
    uint64_t logical;
    const size_t bytes = total_bytes(m, &logical);
    if (is_shared(m) || m->gathered)
        return FSDP_OK;
    FSDP_TRY(fsdp_pool_acquire(fsdp_param_context_pool(c), bytes, &m->gathered));
    const fsdp_phase_info info = phase_info(m, FSDP_KIND_WRITE_SHARD);
    const fsdp_status status = fsdp_buffer_begin(m->gathered, FSDP_PHASE_WRITE, &info);
    if (status != FSDP_OK) {
        drop(base);
        return status;
    }
    copy_own_parts(m);
    fsdp_buffer_end(m->gathered);
    fsdp_param_context_report(c, FSDP_UNIT_GATHER, c->shard_group, logical);
    return FSDP_OK;
}

/* Begin a READ phase of the shared buffer, unless the buffer is in a READ phase already. Also count
 * an all-gather, once for each step. */
static fsdp_status read_shared(quantized_memory *m)
{
    const fsdp_param_context *c = m->base.context;
    const fsdp_phase_info info = phase_info(m, FSDP_KIND_ALL_GATHER);
    m->is_counted = !m->is_reading || c->step != m->counted_step;
    if (!m->is_reading)
        FSDP_TRY(fsdp_buffer_begin(m->buffer, FSDP_PHASE_READ, &info));
    else if (c->shard_group && m->is_counted)
        fsdp_group_count(c->shard_group, FSDP_KIND_ALL_GATHER, info.bytes);
    m->is_reading = true;
    m->counted_step = c->step;
    return FSDP_OK;
}

/* Write the values of all parameters to m->unpacked. The buffer `parts` has the parts of all ranks.
 */
static void unpack_all(const quantized_memory *m, const fsdp_buffer *parts)
{
    const fsdp_param_context *c = m->base.context;
    const fsdp_dtype dtype = c->options.mp_policy.param_dtype;
    const char *from = fsdp_buffer_data(parts);
    char *to = fsdp_buffer_data(m->unpacked);
    place at = {.rank = -1};
    while (c->device->kernels && from && to && next_place(m, &at)) {
        const fsdp_param *p = m->base.params[at.param];
        fsdp_quantized_read(p->parameter->quantized, &at.part, c->device, from + at.offset,
                            to + (p->offset + (size_t)at.part.first) * fsdp_dtype_size(dtype),
                            dtype);
    }
}

static void reshard(fsdp_param_memory *base)
{
    quantized_memory *m = quantized_of(base);
    fsdp_storage_set_data(base->view, NULL);
    if (m->unpacked)
        fsdp_pool_release(&base->context->comm->whole, m->unpacked);
    m->unpacked = NULL;
    drop(base);
}

static fsdp_status unpack_gathered(quantized_memory *m)
{
    const fsdp_phase_info info = phase_info(m, FSDP_KIND_ALL_GATHER);
    FSDP_TRY(fsdp_buffer_begin(m->gathered, FSDP_PHASE_READ, &info));
    unpack_all(m, m->gathered);
    fsdp_buffer_end(m->gathered);
    m->is_counted = true;
    return FSDP_OK;
}

static fsdp_status unshard(fsdp_param_memory *base)
{
    quantized_memory *m = quantized_of(base);
    FSDP_TRY(fsdp_pool_acquire(&base->context->comm->whole, fsdp_param_memory_bytes(base),
                               &m->unpacked));
    fsdp_status status = is_shared(m) ? read_shared(m) : unpack_gathered(m);
    if (status == FSDP_OK && is_shared(m))
        unpack_all(m, m->buffer);
    drop(base);
    if (status == FSDP_OK)
        fsdp_storage_set_data(base->view, fsdp_buffer_data(m->unpacked));
    else
        reshard(base);
    return status;
}

/* --- the memory and the storage --- */

static fsdp_status allocate(fsdp_param_memory *base)
{
    quantized_memory *m = quantized_of(base);
    const fsdp_param_context *c = base->context;
    const size_t bytes = buffer_bytes(m);
    base->own_guard.begin_write = begin_write;
    base->own_guard.end_write = end_write;
    FSDP_TRY(fsdp_buffer_create(c->device, is_shared(m) ? c->shard_group : NULL, bytes,
                                FSDP_TAG_PARAM, &m->buffer));
    FSDP_TRY(fsdp_storage_from_memory(c->device, fsdp_buffer_data(m->buffer), bytes, &m->storage));
    m->storage->guards = &base->write_guard;
    return fsdp_param_memory_create_view(base);
}

static void release(fsdp_param_memory *base)
{
    quantized_memory *m = quantized_of(base);
    if (m->is_reading)
        fsdp_buffer_end(m->buffer);
    if (m->storage) {
        fsdp_storage_drop_guards(m->storage);
        fsdp_storage_set_data(m->storage, NULL);
    }
    fsdp_storage_release(m->storage);
    fsdp_param_memory_release_view(base);
    fsdp_buffer_destroy(m->buffer);
}

/* `show` is NULL because this memory cannot be hidden. */
const fsdp_param_memory_ops fsdp_memory_quantized = {.bytes = sizeof(quantized_memory),
                                                     .allocate = allocate,
                                                     .gather = gather,
                                                     .prefetch = gather,
                                                     .unshard = unshard,
                                                     .reshard = reshard,
                                                     .drop = drop,
                                                     .release = release};

static bool fits(const fsdp_param *p, fsdp_dtype dtype)
{
    (void)dtype;
    return p->parameter->quantized != NULL;
}

/* Create a local tensor of bytes (uint8) over this rank's part. */
static fsdp_status create_local(const fsdp_param_memories *memories, const fsdp_param *p,
                                const int64_t *shape, fsdp_tensor **local)
{
    quantized_memory *m = quantized_of(memories->items[FSDP_MEMORY_QUANTIZED]);
    const int64_t bytes = (int64_t)own_part(p).bytes;
    (void)shape;
    return fsdp_tensor_over(m->storage, FSDP_DTYPE_U8, 1, &bytes, (int64_t)own_offset(m, p), local);
}

/* Return the number of bytes of all parts of p. Return 0 if the last unshard did not count an
 * all-gather, because an earlier unshard of the step had made the parts readable. */
static uint64_t gathered_bytes(const fsdp_param *p)
{
    const int world = fsdp_group_world_size(p->context->shard_group);
    uint64_t bytes = 0;
    for (int r = 0; r < world && quantized_of(p->memory)->is_counted; r++)
        bytes += fsdp_quantized_part_of(p->parameter->quantized, world, r).bytes;
    return bytes;
}

const fsdp_param_storage fsdp_storage_quantized = {.name = "quantized",
                                                   .fits = fits,
                                                   .unsharded = FSDP_MEMORY_QUANTIZED,
                                                   .sharded = FSDP_MEMORY_QUANTIZED,
                                                   .create_local = create_local,
                                                   .gathered_bytes = gathered_bytes};
