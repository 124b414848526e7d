/* Stores parameters that a gather casts: Note [Cast copies] and Note [Kept copies] in
 * param_storage.h, and Note [Secondary shards] in storage_copy.h. */
#include "src/fsdp/storage_copy.h"

#include "src/comm/cards/cards.h"
#include "src/trace/trace.h"

static fsdp_copy_memory *copy_of(fsdp_param_memory *m)
{
    return (fsdp_copy_memory *)(void *)m;
}

/* --- writes of this rank's rows --- */

/* Begin the WRITE phase of the kept copy. No rank reads the copy before the next gather. No effect
 * if no copy is kept, or if its WRITE phase has begun already. */
static fsdp_status open_copy(fsdp_copy_memory *m)
{
    if (!m->buffer || m->is_open)
        return FSDP_OK;
    const fsdp_phase_info info = fsdp_param_memory_phase(&m->base, FSDP_KIND_WRITE_SHARD);
    FSDP_TRY(fsdp_buffer_begin(m->buffer, FSDP_PHASE_WRITE, &info));
    m->is_open = true;
    return FSDP_OK;
}

static fsdp_status begin_write(void *self)
{
    fsdp_copy_memory *m = self;
    FSDP_TRY(open_copy(m));
    m->unwritten++;
    return FSDP_OK;
}

void *fsdp_own_rows_in_copy(const fsdp_param *p, fsdp_dtype *dtype)
{
    fsdp_copy_memory *m = copy_of(p->memory);
    if (!m->is_open || p->slice.runs != 1)
        return NULL;
    char *base = fsdp_buffer_data(m->buffer);
    m->unwritten--;
    *dtype = m->base.context->options.mp_policy.param_dtype;
    return base ? base + (p->offset + (size_t)p->slice.first) * fsdp_dtype_size(*dtype) : NULL;
}

/* --- gathering --- */

static void drop_buffer(fsdp_copy_memory *m)
{
    m->is_gathered = false;
    if (!m->buffer)
        return;
    fsdp_buffer_end(m->buffer);
    fsdp_pool_release(fsdp_param_context_pool(m->base.context), m->buffer);
    m->buffer = NULL;
    m->is_open = false;
}

static void drop_part(fsdp_copy_memory *m)
{
    if (m->part)
        fsdp_pool_release(&m->base.context->comm->whole, m->part);
    m->part = NULL;
}

static void drop(fsdp_param_memory *base)
{
    drop_buffer(copy_of(base));
    drop_part(copy_of(base));
}

static void write_own_rows(const fsdp_copy_memory *m)
{
    const fsdp_param_context *c = m->base.context;
    const fsdp_dtype dtype = c->options.mp_policy.param_dtype;
    char *base = fsdp_buffer_data(m->buffer);
    fsdp_trace_begin(FSDP_TRACE_SHARDING, "cast own rows", c->name);
    for (size_t i = 0; c->device->kernels && i < m->base.n_params; i++) {
        const fsdp_param *p = m->base.params[i];
        fsdp_slice_write(c->device, &p->slice, fsdp_tensor_ptr(p->local), p->local->dtype,
                         base + p->offset * fsdp_dtype_size(dtype), dtype);
    }
    fsdp_trace_end();
}

/* Declare which rows this rank has written (fsdp_buffer_wrote()), so that the peers on other hosts
 * or cards get them. */
static void report_own_rows(const fsdp_copy_memory *m)
{
    const size_t size = fsdp_dtype_size(m->base.context->options.mp_policy.param_dtype);
    for (size_t i = 0; i < m->base.n_params; i++) {
        const fsdp_param *p = m->base.params[i];
        for (int64_t run = 0; run < p->slice.runs; run++) {
            const int64_t first = (int64_t)p->offset + p->slice.first + run * p->slice.stride;
            fsdp_buffer_wrote(m->buffer, FSDP_ALL_READERS, (size_t)first * size,
                              (size_t)p->slice.length * size);
        }
    }
}

static void report_gather(const fsdp_copy_memory *m)
{
    fsdp_param_context_report(m->base.context, FSDP_UNIT_GATHER, m->base.context->shard_group,
                              fsdp_param_memory_phase(&m->base, FSDP_KIND_WRITE_SHARD).bytes);
}

/* Write this rank's rows to the copy, unless a kept copy already has them. */
static fsdp_status write_copy(fsdp_copy_memory *m)
{
    const fsdp_param_context *c = m->base.context;
    const bool is_kept = m->buffer;
    if (!is_kept)
        FSDP_TRY(fsdp_pool_acquire(fsdp_param_context_pool(c), fsdp_param_memory_bytes(&m->base),
                                   &m->buffer));
    if (!is_kept || m->unwritten) {
        FSDP_TRY(open_copy(m));
        write_own_rows(m);
    }
    if (m->is_open) {
        report_own_rows(m);
        fsdp_buffer_end(m->buffer);
    }
    m->is_open = false;
    m->unwritten = 0;
    m->is_gathered = true;
    report_gather(m);
    return FSDP_OK;
}

/* --- secondary shards --- */

/* The elements of the copy that a rank keeps between forward and backward. */
typedef struct part {
    size_t first, n;
} part;

static part part_of(const fsdp_copy_memory *m, int rank)
{
    const size_t blocks = (size_t)m->base.numel / FSDP_ALIGN_ELEMENTS;
    const size_t ranks = (size_t)m->part_ranks, i = (size_t)rank % ranks;
    const size_t first = blocks * i / ranks, end = blocks * (i + 1) / ranks;
    return (part){first * FSDP_ALIGN_ELEMENTS, (end - first) * FSDP_ALIGN_ELEMENTS};
}

/* Return the size in bytes of the memory for a part. It is the same on all ranks. */
static size_t part_bytes(const fsdp_copy_memory *m)
{
    const size_t ranks = (size_t)m->part_ranks;
    const size_t blocks = ((size_t)m->base.numel / FSDP_ALIGN_ELEMENTS + ranks - 1) / ranks;
    return blocks * FSDP_ALIGN_ELEMENTS *
           fsdp_dtype_size(m->base.context->options.mp_policy.param_dtype);
}

/* Copy this rank's part from the gathered copy to m->part, or back from m->part to the copy that is
 * being gathered. */
static void copy_part(const fsdp_copy_memory *m, bool back)
{
    const fsdp_param_context *c = m->base.context;
    const fsdp_dtype dtype = c->options.mp_policy.param_dtype;
    const part own = part_of(m, fsdp_group_rank(c->shard_group));
    char *whole = fsdp_buffer_data(m->buffer);
    void *kept = fsdp_buffer_data(m->part);
    if (!c->device->kernels || !own.n)
        return;
    whole += own.first * fsdp_dtype_size(dtype);
    c->device->kernels->cast(c->device->context, back ? (void *)whole : kept, dtype,
                             back ? kept : (void *)whole, dtype, (int64_t)own.n);
}

static fsdp_status keep_part(fsdp_param_memory *base)
{
    fsdp_copy_memory *m = copy_of(base);
    drop_part(m);
    m->part_ranks = fsdp_param_context_kept_ranks(base->context);
    FSDP_TRY(fsdp_pool_acquire(&base->context->comm->whole, part_bytes(m), &m->part));
    copy_part(m, false);
    fsdp_storage_set_data(base->view, NULL);
    drop_buffer(m);
    return FSDP_OK;
}

/* Declare which ranks read this rank's part (fsdp_buffer_wrote()): the ranks that keep the same
 * copy. If several of these ranks share memory, it is enough to declare the first of them. */
static void name_part(const fsdp_copy_memory *m)
{
    const fsdp_group *group = m->base.context->shard_group;
    const size_t size = fsdp_dtype_size(m->base.context->options.mp_policy.param_dtype);
    const int rank = fsdp_group_rank(group), begin = rank - rank % m->part_ranks;
    const part own = part_of(m, rank);
    for (int r = begin; r < begin + m->part_ranks; r++)
        if (fsdp_group_is_first_of_memory(group, m->base.context->device, begin, r))
            fsdp_buffer_wrote(m->buffer, r, own.first * size, own.n * size);
}

/* Begin a gather over the ranks that keep the copy. */
static fsdp_status gather_parts(fsdp_copy_memory *m)
{
    const fsdp_param_context *c = m->base.context;
    const fsdp_phase_info info = fsdp_param_memory_phase(&m->base, FSDP_KIND_WRITE_SHARD);
    FSDP_TRY(fsdp_pool_acquire(fsdp_param_context_pool(c), fsdp_param_memory_bytes(&m->base),
                               &m->buffer));
    FSDP_TRY(fsdp_buffer_begin(m->buffer, FSDP_PHASE_WRITE, &info));
    copy_part(m, true);
    name_part(m);
    fsdp_buffer_end(m->buffer);
    m->unwritten = 0;
    m->is_gathered = true;
    report_gather(m);
    return FSDP_OK;
}

/* --- the functions of the memory --- */

static fsdp_status gather(fsdp_param_memory *base)
{
    fsdp_copy_memory *m = copy_of(base);
    /* If the local tensors are in a file, beginning a read of one of them loads all of them. So
     * begin a read of only the first one. */
    const fsdp_tensor *first = base->params[0]->local;
    if (m->is_gathered)
        return FSDP_OK;
    const bool has_part = m->part;
    if (!has_part)
        FSDP_TRY(fsdp_tensor_begin_read(first));
    fsdp_status status = has_part ? gather_parts(m) : write_copy(m);
    if (status != FSDP_OK)
        drop(base);
    if (!has_part)
        fsdp_tensor_end_read(first);
    return status;
}

/* If the ranks keep parts of the copy, gather these parts. The parts are in memory, even if this
 * rank's rows are in a file. */
static fsdp_status prefetch(fsdp_param_memory *base)
{
    return copy_of(base)->part ? gather(base) : fsdp_param_memory_prefetch(base);
}

static fsdp_status unshard(fsdp_param_memory *base)
{
    return fsdp_param_memory_unshard_buffer(base, copy_of(base)->buffer);
}

static void show(fsdp_param_memory *base)
{
    fsdp_param_memory_show_buffer(base, copy_of(base)->buffer);
}

static void reshard(fsdp_param_memory *base)
{
    fsdp_copy_memory *m = copy_of(base);
    fsdp_storage_set_data(base->view, NULL);
    if (m->is_gathered)
        fsdp_buffer_end(m->buffer);
    m->is_gathered = false;
    drop_part(m);
}

static fsdp_status allocate(fsdp_param_memory *base)
{
    base->own_guard.begin_write = begin_write;
    return fsdp_param_memory_create_view(base);
}

const fsdp_param_memory_ops fsdp_memory_copy = {.bytes = sizeof(fsdp_copy_memory),
                                                .allocate = allocate,
                                                .gather = gather,
                                                .prefetch = prefetch,
                                                .unshard = unshard,
                                                .show = show,
                                                .keep_part = keep_part,
                                                .reshard = reshard,
                                                .drop = drop,
                                                .release = fsdp_param_memory_release_view};

/* --- the storage --- */

static bool fits(const fsdp_param *p, fsdp_dtype dtype)
{
    (void)p, (void)dtype;
    return true;
}

static fsdp_status create_local(const fsdp_param_memories *memories, const fsdp_param *p,
                                const int64_t *shape, fsdp_tensor **local)
{
    return fsdp_create_private_local(memories->items[FSDP_MEMORY_COPY], p, shape, local);
}

const fsdp_param_storage fsdp_storage_copy = {.name = "cast copy",
                                              .fits = fits,
                                              .unsharded = FSDP_MEMORY_COPY,
                                              .sharded = FSDP_MEMORY_COPY,
                                              .create_local = create_local,
                                              .own_rows_of_copy = fsdp_own_rows_in_copy};
