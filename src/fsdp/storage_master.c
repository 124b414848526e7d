/* Stores parameters in the dtype in which operations read them: Note [Master buffer] in
 * param_storage.h. */
#include "src/fsdp/storage_master.h"

#include "src/base/assert.h"

typedef struct master_memory {
    fsdp_param_memory base;
    fsdp_buffer *buffer;
    fsdp_storage *storage; /* Its data is the whole buffer; local tensors are views of it. */
    int writers; /* Number of open writes of this rank's rows, which share one WRITE phase. */
} master_memory;

static master_memory *master_of(fsdp_param_memory *m)
{
    FSDP_DEBUG_ASSERT(m->ops == &fsdp_memory_master);
    return (master_memory *)(void *)m;
}

/* --- writes of this rank's rows --- */

static fsdp_status begin_write(void *self)
{
    master_memory *m = self;
    const fsdp_phase_info info = fsdp_param_memory_phase(&m->base, FSDP_KIND_WRITE_SHARD);
    return fsdp_param_memory_begin_write(m->buffer, &info, &m->writers);
}

static void end_write(void *self)
{
    master_memory *m = self;
    fsdp_param_memory_end_write(m->buffer, &m->writers);
}

/* --- the functions of the memory --- */

static fsdp_status allocate(fsdp_param_memory *base)
{
    master_memory *m = master_of(base);
    const fsdp_param_context *c = base->context;
    const size_t bytes = fsdp_param_memory_bytes(base);
    base->own_guard.begin_write = begin_write;
    base->own_guard.end_write = end_write;
    FSDP_TRY(fsdp_buffer_create(c->device, c->shard_group, bytes, FSDP_TAG_PARAM, &m->buffer));
    FSDP_TRY(fsdp_storage_from_memory(c->device, fsdp_buffer_data(m->buffer), bytes, &m->storage));
    m->storage->guards = &base->write_guard;
    FSDP_TRY(fsdp_param_memory_create_view(base));
    /* Without peers that may write their rows, the buffer can be read at any time. */
    base->view->lasting = c->shard_group ? NULL : m->storage;
    return FSDP_OK;
}

static fsdp_status unshard(fsdp_param_memory *base)
{
    return fsdp_param_memory_unshard_buffer(base, master_of(base)->buffer);
}

static void show(fsdp_param_memory *base)
{
    fsdp_param_memory_show_buffer(base, master_of(base)->buffer);
}

static void reshard(fsdp_param_memory *base)
{
    fsdp_storage_set_data(base->view, NULL);
    fsdp_buffer_end(master_of(base)->buffer);
}

static void release(fsdp_param_memory *base)
{
    master_memory *m = master_of(base);
    if (m->storage) {
        fsdp_storage_drop_guards(m->storage);
        fsdp_storage_set_data(m->storage, NULL);
    }
    fsdp_storage_release(m->storage);
    fsdp_param_memory_release_view(base);
    fsdp_buffer_destroy(m->buffer);
}

const fsdp_param_memory_ops fsdp_memory_master = {.bytes = sizeof(master_memory),
                                                  .allocate = allocate,
                                                  .unshard = unshard,
                                                  .show = show,
                                                  .reshard = reshard,
                                                  .release = release};

/* --- the functions of the storage --- */

/* All ranks must share one memory, because they write and read the same buffer. So parameters do
 * not fit if ranks are on several hosts, or if each rank has a card of its own. This rank's rows
 * must be contiguous in the buffer. */
bool fsdp_fits_in_master(const fsdp_param *p)
{
    return fsdp_ranks_share_memory(p->context, p->context->shard_group) && p->slice.runs == 1;
}

void *fsdp_own_rows_in_master(fsdp_param_memory *base, const fsdp_param *p, size_t size)
{
    char *data = fsdp_buffer_data(master_of(base)->buffer);
    return data ? data + (p->offset + (size_t)p->slice.first) * size : NULL;
}

static bool fits(const fsdp_param *p, fsdp_dtype dtype)
{
    return dtype == p->context->options.mp_policy.param_dtype && fsdp_fits_in_master(p);
}

static fsdp_status create_local(const fsdp_param_memories *memories, const fsdp_param *p,
                                const int64_t *shape, fsdp_tensor **local)
{
    master_memory *m = master_of(memories->items[FSDP_MEMORY_MASTER]);
    const int64_t first = (int64_t)p->offset + p->slice.first;
    return fsdp_tensor_over(m->storage, p->dtype, p->parameter->ndim, shape, first, local);
}

const fsdp_param_storage fsdp_storage_master = {.name = "in the master",
                                                .fits = fits,
                                                .unsharded = FSDP_MEMORY_MASTER,
                                                .sharded = FSDP_MEMORY_MASTER,
                                                .create_local = create_local};
