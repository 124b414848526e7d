/* Stores parameters that a gather casts: Note [Cast copies] and Note [Kept copies] in
 * param_storage.h. */
#include "src/fsdp/storage_copy.h"

#include "src/trace/trace.h"

static fsdp_copy_memory *copy_of(fsdp_param_memory *m)
{
    return (fsdp_copy_memory *)(void *)m;
}

/* --- writes of this rank's rows --- */

/* Open the kept copy for writing. No rank reads it before the next gather. No effect if no copy is
 * kept or if it is open already. */
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

static void drop(fsdp_param_memory *base)
{
    fsdp_copy_memory *m = copy_of(base);
    m->is_gathered = false;
    if (!m->buffer)
        return;
    fsdp_buffer_end(m->buffer);
    fsdp_pool_release(fsdp_param_context_pool(base->context), m->buffer);
    m->buffer = NULL;
    m->is_open = false;
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

/* Name this rank's rows, which the peers read. */
static void name_own_rows(const fsdp_copy_memory *m)
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
        name_own_rows(m);
        fsdp_buffer_end(m->buffer);
    }
    m->is_open = false;
    m->unwritten = 0;
    m->is_gathered = true;
    fsdp_param_context_report(c, FSDP_UNIT_GATHER, c->shard_group,
                              fsdp_param_memory_phase(&m->base, FSDP_KIND_WRITE_SHARD).bytes);
    return FSDP_OK;
}

static fsdp_status gather(fsdp_param_memory *base)
{
    fsdp_copy_memory *m = copy_of(base);
    /* If the local tensors are in a file, beginning a read of one of them loads all of them. So
     * begin a read of only the first one. */
    const fsdp_tensor *first = base->params[0]->local;
    if (m->is_gathered)
        return FSDP_OK;
    FSDP_TRY(fsdp_tensor_begin_read(first));
    fsdp_status status = write_copy(m);
    if (status != FSDP_OK)
        drop(base);
    fsdp_tensor_end_read(first);
    return status;
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
}

/* --- the memory and the storage --- */

static fsdp_status allocate(fsdp_param_memory *base)
{
    base->own_guard.begin_write = begin_write;
    return fsdp_param_memory_create_view(base);
}

const fsdp_param_memory_ops fsdp_memory_copy = {.bytes = sizeof(fsdp_copy_memory),
                                                .allocate = allocate,
                                                .gather = gather,
                                                .prefetch = fsdp_param_memory_prefetch,
                                                .unshard = unshard,
                                                .show = show,
                                                .reshard = reshard,
                                                .drop = drop,
                                                .release = fsdp_param_memory_release_view};

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
