/* Stores frozen tables that operations use only for lookups of rows. All ranks must share the
 * memory of one host or, if they are on cards, of one card (fsdp_ranks_share_memory()).
 *
 * Note [Rows of tables]. The rows of all ranks are in one shared buffer, and the `local` of a rank
 * is a view of its rows. A frozen table never changes while a model trains. So the buffer is in a
 * READ phase from the first unshard on, until a rank writes its rows again, as a load does.
 *
 * An unshard therefore gathers nothing. An operation that looks up n rows reads these rows, and no
 * others, where their owners have written them. The statistics count n rows for each lookup instead
 * of an all-gather of the whole table. An embedding of 128256 rows is one gigabyte in bfloat16, and
 * 512 tokens look up 4 MiB of it.
 *
 * If ranks are on several hosts, or if each rank has a card of its own, a rank cannot read its
 * peers' rows directly. The table is then gathered whole, as other parameters are. */
#include "src/fsdp/param_storage.h"

typedef struct rows_memory {
    fsdp_param_memory base;
    fsdp_buffer *buffer;
    fsdp_storage *storage; /* Its data is the whole buffer; local tensors are views of it. */
    int writers;           /* Number of open writes of this rank's rows. */
    bool is_reading;       /* `buffer` is in a READ phase. */
} rows_memory;

static rows_memory *rows_of(fsdp_param_memory *m)
{
    return (rows_memory *)(void *)m;
}

static void end_reading(rows_memory *m)
{
    if (m->is_reading)
        fsdp_buffer_end(m->buffer);
    m->is_reading = false;
}

static fsdp_status begin_write(void *self)
{
    rows_memory *m = self;
    const fsdp_phase_info info = fsdp_param_memory_phase(&m->base, FSDP_KIND_WRITE_SHARD);
    end_reading(m);
    return fsdp_param_memory_begin_write(m->buffer, &info, &m->writers);
}

static void end_write(void *self)
{
    rows_memory *m = self;
    fsdp_param_memory_end_write(m->buffer, &m->writers);
}

/* --- the functions of the memory --- */

static fsdp_status allocate(fsdp_param_memory *base)
{
    rows_memory *m = rows_of(base);
    const fsdp_param_context *c = base->context;
    const size_t bytes = fsdp_param_memory_bytes(base);
    base->own_guard.begin_write = begin_write;
    base->own_guard.end_write = end_write;
    FSDP_TRY(fsdp_buffer_create(c->device, c->shard_group, bytes, FSDP_TAG_PARAM, &m->buffer));
    FSDP_TRY(fsdp_storage_from_memory(c->device, fsdp_buffer_data(m->buffer), bytes, &m->storage));
    m->storage->guards = &base->write_guard;
    return fsdp_param_memory_create_view(base);
}

static void show(fsdp_param_memory *base)
{
    fsdp_storage_set_data(base->view, fsdp_buffer_data(rows_of(base)->buffer));
}

static fsdp_status unshard(fsdp_param_memory *base)
{
    rows_memory *m = rows_of(base);
    const fsdp_dtype dtype = base->context->options.mp_policy.param_dtype;
    const fsdp_phase_info info =
        fsdp_param_context_phase(base->context, FSDP_KIND_ALL_GATHER, dtype, 0);
    if (!m->is_reading)
        FSDP_TRY(fsdp_buffer_begin(m->buffer, FSDP_PHASE_READ, &info));
    m->is_reading = true;
    show(base);
    return FSDP_OK;
}

static void reshard(fsdp_param_memory *base)
{
    fsdp_storage_set_data(base->view, NULL);
}

static void release(fsdp_param_memory *base)
{
    rows_memory *m = rows_of(base);
    end_reading(m);
    if (m->storage) {
        fsdp_storage_drop_guards(m->storage);
        fsdp_storage_set_data(m->storage, NULL);
    }
    fsdp_storage_release(m->storage);
    fsdp_param_memory_release_view(base);
    fsdp_buffer_destroy(m->buffer);
}

const fsdp_param_memory_ops fsdp_memory_rows = {.bytes = sizeof(rows_memory),
                                                .allocate = allocate,
                                                .unshard = unshard,
                                                .show = show,
                                                .reshard = reshard,
                                                .release = release};

/* --- the functions of the storage --- */

static bool fits(const fsdp_param *p, fsdp_dtype dtype)
{
    const fsdp_param_context *c = p->context;
    return p->parameter->only_looked_up && !fsdp_parameter_requires_grad(p->parameter) &&
           c->shard_group && fsdp_ranks_share_memory(c, c->shard_group) &&
           p->owner.shard.dim == 0 && dtype == c->options.mp_policy.param_dtype;
}

static fsdp_status create_local(const fsdp_param_memories *memories, const fsdp_param *p,
                                const int64_t *shape, fsdp_tensor **local)
{
    rows_memory *m = rows_of(memories->items[FSDP_MEMORY_ROWS]);
    const int64_t first = (int64_t)p->offset + p->slice.first;
    return fsdp_tensor_over(m->storage, p->dtype, p->parameter->ndim, shape, first, local);
}

static uint64_t gathered_bytes(const fsdp_param *p)
{
    (void)p;
    return 0;
}

static void note_lookups(const fsdp_param *p, int64_t n)
{
    const fsdp_param_context *c = p->context;
    const uint64_t bytes =
        (uint64_t)(n * p->parameter->shape[1]) * fsdp_dtype_size(c->options.mp_policy.param_dtype);
    fsdp_group_count(c->shard_group, FSDP_KIND_ALL_GATHER, bytes);
    fsdp_param_context_report(c, FSDP_UNIT_LOOK_UP, c->shard_group, bytes);
}

const fsdp_param_storage fsdp_storage_rows = {.name = "rows of a table",
                                              .fits = fits,
                                              .unsharded = FSDP_MEMORY_ROWS,
                                              .sharded = FSDP_MEMORY_ROWS,
                                              .create_local = create_local,
                                              .gathered_bytes = gathered_bytes,
                                              .note_lookups = note_lookups};
