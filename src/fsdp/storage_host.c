/* Under NO_SHARD, stores frozen parameters once for all ranks. All ranks must share the memory of
 * one host or, if they are on cards, of one card (fsdp_ranks_share_memory()).
 *
 * Note [Once per host]. Under NO_SHARD every rank has its own whole master weights of the
 * parameters that train. But while a parameter is frozen, it is equal on all ranks. So it is stored
 * only once, in a shared buffer, and the local tensor of each rank is a view of the whole parameter
 * in this buffer. Reads do not have to wait for writes: a write begins only when no rank has
 * gathered the parameter, and no rank continues before the write has ended on all ranks.
 *
 * All ranks run the same program, so a write of the parameter happens on all ranks. Only the first
 * rank writes to the shared buffer. On the other ranks, the write goes to private memory, whose
 * contents are not used. This memory is freed at the end of the write. The memory plan does not
 * count it, because it exists only between steps, for one parameter at a time.
 *
 * If the parameter's dtype is param_dtype, operations read the shared buffer. Otherwise, a gather
 * casts the parameter from the shared buffer to a copy. */
#include "src/base/alloc.h"
#include "src/comm/agree.h"
#include "src/fsdp/param_storage.h"

typedef struct host_memory host_memory;

/* One parameter in the shared buffer. */
typedef struct host_param {
    host_memory *memory;
    fsdp_param *param;
    size_t offset; /* Offset in the shared buffer, in bytes. */
    fsdp_storage_guard guard;
    int writers; /* Number of open writes. */
    /* Private memory to which every rank except the first one writes instead of the shared buffer.
     * It contains zeros when the write begins. NULL if no write is open. Always NULL on the first
     * rank. */
    void *unwanted;
    fsdp_block *block; /* The allocator's block of `unwanted`; NULL if it is from fsdp_calloc(). */
} host_param;

struct host_memory {
    fsdp_param_memory base;
    fsdp_buffer *buffer;
    size_t bytes;
    host_param **items; /* [base.n_params] */
    size_t cap_items;
};

static host_memory *host_of(fsdp_param_memory *m)
{
    return (host_memory *)(void *)m;
}

static size_t bytes_of(const fsdp_param *p)
{
    return (size_t)fsdp_aligned_numel(fsdp_param_numel(p)) * fsdp_dtype_size(p->dtype);
}

static void *data_of(const host_param *h)
{
    char *base = fsdp_buffer_data(h->memory->buffer);
    return base ? base + h->offset : NULL;
}

/* --- writes --- */

static fsdp_status open_unwanted(host_param *h)
{
    const fsdp_device *device = h->param->context->device;
    const size_t bytes = bytes_of(h->param);
    if (!device->ops->shared_memory) {
        h->unwanted = fsdp_calloc(1, bytes);
        return h->unwanted ? FSDP_OK : FSDP_ERR_NOMEM;
    }
    FSDP_TRY(
        fsdp_allocator_alloc(device->allocator, bytes, FSDP_TAG_DATA, &h->block, &h->unwanted));
    fsdp_device_memset(device, h->unwanted, 0, bytes);
    return FSDP_OK;
}

static void close_unwanted(host_param *h)
{
    if (h->block)
        fsdp_allocator_free(h->param->context->device->allocator, h->block);
    else
        fsdp_free(h->unwanted);
    h->block = NULL;
    h->unwanted = NULL;
}

static fsdp_status begin_write(void *self)
{
    host_param *h = self;
    const fsdp_param_context *c = h->param->context;
    if (!c->device->kernels || h->writers++)
        return FSDP_OK;
    fsdp_status status = FSDP_OK;
    const bool is_first = fsdp_group_rank(c->group) == 0;
    if (!is_first)
        status = open_unwanted(h);
    if (status == FSDP_OK)
        status = fsdp_device_synchronize(c->device);
    /* Every rank calls fsdp_agree() after its last read of the shared buffer. So when fsdp_agree()
     * returns, no rank is still reading the buffer. */
    status = fsdp_agree(c->group, status);
    if (status != FSDP_OK) {
        close_unwanted(h);
        h->writers--;
        return status;
    }
    if (h->unwanted)
        fsdp_storage_set_data(h->param->local->storage, h->unwanted);
    return FSDP_OK;
}

static void end_write(void *self)
{
    host_param *h = self;
    const fsdp_param_context *c = h->param->context;
    if (!c->device->kernels || --h->writers)
        return;
    fsdp_status status = fsdp_device_synchronize(c->device);
    if (status != FSDP_OK)
        fsdp_group_abort(c->group, status);
    fsdp_storage_set_data(h->param->local->storage, data_of(h));
    close_unwanted(h);
    /* If the barrier fails, this function cannot report the error, because it returns nothing. But
     * the next collective of the group returns the same error. */
    if (fsdp_barrier(c->group) != FSDP_OK)
        return;
}

/* --- the functions of the memory --- */

static fsdp_status reserve(fsdp_param_memory *base, const fsdp_param *p, size_t *offset)
{
    host_memory *m = host_of(base);
    const size_t i = base->n_params - 1;
    host_param *h = fsdp_calloc(1, sizeof *h);
    if (!h || !FSDP_GROW(m->items, m->cap_items, base->n_params)) {
        fsdp_free(h);
        base->n_params--;
        return FSDP_ERR_NOMEM;
    }
    *h = (host_param){.memory = m, .param = base->params[i], .offset = m->bytes};
    m->items[i] = h;
    *offset = m->bytes / fsdp_dtype_size(p->dtype);
    m->bytes += bytes_of(p);
    base->numel =
        (int64_t)(m->bytes / fsdp_dtype_size(base->context->options.mp_policy.param_dtype));
    return FSDP_OK;
}

static fsdp_status allocate(fsdp_param_memory *base)
{
    host_memory *m = host_of(base);
    const fsdp_param_context *c = base->context;
    FSDP_TRY(fsdp_buffer_create(c->device, c->group, m->bytes, FSDP_TAG_PARAM, &m->buffer));
    return fsdp_param_memory_create_view(base);
}

static void show(fsdp_param_memory *base)
{
    fsdp_storage_set_data(base->view, fsdp_buffer_data(host_of(base)->buffer));
}

static fsdp_status unshard(fsdp_param_memory *base)
{
    show(base);
    return FSDP_OK;
}

static void reshard(fsdp_param_memory *base)
{
    fsdp_storage_set_data(base->view, NULL);
}

static void release(fsdp_param_memory *base)
{
    host_memory *m = host_of(base);
    fsdp_param_memory_release_view(base);
    fsdp_buffer_destroy(m->buffer);
    for (size_t i = 0; i < base->n_params; i++)
        fsdp_free(m->items[i]);
    fsdp_free(m->items);
}

const fsdp_param_memory_ops fsdp_memory_host = {.bytes = sizeof(host_memory),
                                                .reserve = reserve,
                                                .allocate = allocate,
                                                .unshard = unshard,
                                                .show = show,
                                                .reshard = reshard,
                                                .release = release};

/* --- the functions of the storages --- */

static bool fits_cast(const fsdp_param *p, fsdp_dtype dtype)
{
    const fsdp_param_context *c = p->context;
    (void)dtype;
    return c->options.no_shard && c->group && !fsdp_parameter_requires_grad(p->parameter) &&
           fsdp_ranks_share_memory(c, c->group);
}

static bool fits(const fsdp_param *p, fsdp_dtype dtype)
{
    return dtype == p->context->options.mp_policy.param_dtype && fits_cast(p, dtype);
}

static host_param *find_host_param(const host_memory *m, const fsdp_param *p)
{
    size_t i = 0;
    while (m->items[i]->param != p)
        i++;
    return m->items[i];
}

static fsdp_status create_local(const fsdp_param_memories *memories, const fsdp_param *p,
                                const int64_t *shape, fsdp_tensor **local)
{
    host_param *h = find_host_param(host_of(memories->items[FSDP_MEMORY_HOST]), p);
    fsdp_storage *storage;
    FSDP_TRY(fsdp_storage_from_memory(p->context->device, data_of(h), bytes_of(p), &storage));
    fsdp_status status = fsdp_tensor_over(storage, p->dtype, p->parameter->ndim, shape, 0, local);
    h->guard = (fsdp_storage_guard){.begin_write = begin_write,
                                    .end_write = end_write,
                                    .writes_take_memory = true,
                                    .self = h,
                                    .next = &memories->items[p->storage->unsharded]->write_guard};
    storage->guards = &h->guard;
    fsdp_storage_release(storage);
    return status;
}

static void leave_local(fsdp_tensor *local)
{
    fsdp_storage_set_data(local->storage, NULL);
}

const fsdp_param_storage fsdp_storage_host = {.name = "once per host",
                                              .fits = fits,
                                              .unsharded = FSDP_MEMORY_HOST,
                                              .sharded = FSDP_MEMORY_HOST,
                                              .create_local = create_local,
                                              .leave_local = leave_local};

/* own_rows_of_copy is NULL, because an optimizer must not write the copy. While a write is open,
 * only the first rank's `local` has the parameter's values. On every other rank, `local` is the
 * private memory `unwanted`, which contains zeros when the write begins. An optimizer would compute
 * wrong rows from these zeros and store the wrong rows in the rank's copy. */
const fsdp_param_storage fsdp_storage_host_cast = {.name = "once per host, cast",
                                                   .fits = fits_cast,
                                                   .unsharded = FSDP_MEMORY_COPY,
                                                   .sharded = FSDP_MEMORY_HOST,
                                                   .create_local = create_local,
                                                   .leave_local = leave_local};
