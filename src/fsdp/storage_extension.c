/* Stores parameters that have an all-gather extension. The ranks exchange these parameters in a
 * packed form. The packed form may differ from the form that is stored, and from the form that
 * operations read.
 *
 * Note [All-gather extensions]. In a WRITE phase, each rank packs its rows into a buffer that all
 * ranks share. In the READ phase that follows, every rank unpacks all rows into private memory.
 * Then the packed buffer returns to its pool. So an extension may choose any packed form. Each rank
 * needs private memory for the whole parameter, as in FSDP2. */
#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/fsdp/param_storage.h"

enum {
    PACK_ALIGN = 64
};

typedef struct packed_memory {
    fsdp_param_memory base;
    fsdp_buffer *packed;   /* The packed rows of all ranks; NULL: no gather is in progress. */
    fsdp_buffer *unpacked; /* The whole parameters. NULL: the group is sharded. */
} packed_memory;

static packed_memory *packed_of(fsdp_param_memory *m)
{
    return (packed_memory *)(void *)m;
}

static const fsdp_all_gather_extension *extension_of(const fsdp_param *p)
{
    return p->parameter->extension;
}

fsdp_status fsdp_parameter_set_all_gather_extension(fsdp_parameter *parameter,
                                                    const fsdp_all_gather_extension *extension)
{
    if (parameter->owner)
        return fsdp_error(FSDP_ERR_STATE, "all_gather extension: the parameter is one of a unit "
                                          "already: set it before fully_shard");
    if (extension &&
        !(extension->packed_bytes && extension->pre_all_gather && extension->post_all_gather))
        return fsdp_error(FSDP_ERR_INVALID, "all_gather extension: packed_bytes, pre_all_gather "
                                            "and post_all_gather must all be given");
    fsdp_all_gather_extension *copy = NULL;
    if (extension) {
        copy = fsdp_calloc(1, sizeof *copy);
        if (!copy)
            return FSDP_ERR_NOMEM;
        *copy = *extension;
    }
    fsdp_free(parameter->extension);
    parameter->extension = copy;
    return FSDP_OK;
}

/* --- layout --- */

/* Return the number of rows of p that rank `rank` packs. */
static int64_t rows_of(const fsdp_param *p, int rank)
{
    int64_t begin, end;
    fsdp_shard_rows(p->parameter->shape[0], fsdp_group_world_size(p->context->shard_group), rank,
                    &begin, &end);
    return end - begin;
}

static size_t packed_bytes(const fsdp_param *p, int rank)
{
    const fsdp_all_gather_extension *e = extension_of(p);
    return e->packed_bytes(e->self, p->parameter, rows_of(p, rank));
}

static size_t aligned(size_t bytes)
{
    return (bytes + PACK_ALIGN - 1) / PACK_ALIGN * PACK_ALIGN;
}

/* The place of one rank's rows of one parameter in the packed buffer. Places are in the order of
 * the parameters, and for each parameter in the order of the ranks. */
typedef struct place {
    size_t param;
    int rank;
    size_t offset, bytes;
} place;

/* Move *at to the next place. To begin, set *at to {.rank = -1}. Return false after the last
 * place. */
static bool next_place(const packed_memory *m, place *at)
{
    at->offset += aligned(at->bytes);
    if (++at->rank == fsdp_group_world_size(m->base.context->shard_group)) {
        at->param++;
        at->rank = 0;
    }
    if (at->param == m->base.n_params)
        return false;
    at->bytes = packed_bytes(m->base.params[at->param], at->rank);
    return true;
}

/* Return the size of the packed buffer in bytes. Set *logical to its size without padding. */
static size_t total_bytes(const packed_memory *m, uint64_t *logical)
{
    place at = {.rank = -1};
    *logical = 0;
    while (next_place(m, &at))
        *logical += at.bytes;
    return at.offset;
}

/* --- packing --- */

static fsdp_phase_info phase_info(const packed_memory *m, fsdp_phase_kind kind, uint64_t bytes)
{
    return fsdp_param_context_phase(m->base.context, kind, FSDP_DTYPE_U8, bytes);
}

static void give_back_packed(packed_memory *m)
{
    if (m->packed)
        fsdp_pool_release(fsdp_param_context_pool(m->base.context), m->packed);
    m->packed = NULL;
}

/* Pack this rank's rows of p. `to` is the address of these rows in the packed buffer. */
static fsdp_status pack(const fsdp_param *p, void *to, size_t bytes)
{
    const fsdp_param_context *c = p->context;
    const fsdp_all_gather_extension *e = extension_of(p);
    if (!fsdp_device_has_own_memory(c->device))
        return e->pre_all_gather(e->self, p->parameter, p->local, c->shard_group, to, bytes);
    void *packed = fsdp_realloc(NULL, aligned(bytes), 1);
    if (!packed)
        return FSDP_ERR_NOMEM;
    const fsdp_status status =
        e->pre_all_gather(e->self, p->parameter, p->local, c->shard_group, packed, bytes);
    if (status == FSDP_OK)
        fsdp_device_from_host(c->device, to, packed, bytes);
    fsdp_free(packed);
    return status;
}

static fsdp_status pack_own(const packed_memory *m)
{
    const fsdp_param_context *c = m->base.context;
    const int rank = fsdp_group_rank(c->shard_group);
    unsigned char *base = fsdp_buffer_data(m->packed);
    place at = {.rank = -1};
    /* Wait for kernels that may still use the memory, because the host will write to it. */
    FSDP_TRY(fsdp_device_synchronize(c->device));
    while (base && next_place(m, &at)) {
        if (at.rank != rank)
            continue;
        FSDP_TRY(pack(m->base.params[at.param], base + at.offset, at.bytes));
        fsdp_buffer_wrote(m->packed, FSDP_ALL_READERS, at.offset, at.bytes);
    }
    return FSDP_OK;
}

static fsdp_status write_packed(packed_memory *m)
{
    const fsdp_param_context *c = m->base.context;
    uint64_t logical;
    const size_t bytes = total_bytes(m, &logical);
    FSDP_TRY(fsdp_pool_acquire(fsdp_param_context_pool(c), bytes, &m->packed));
    const fsdp_phase_info info = phase_info(m, FSDP_KIND_WRITE_SHARD, logical);
    fsdp_status status = fsdp_buffer_begin(m->packed, FSDP_PHASE_WRITE, &info);
    if (status == FSDP_OK) {
        status = pack_own(m);
        fsdp_error_context(status, "all_gather extension of unit '%s'", c->name);
        if (status != FSDP_OK && c->shard_group) /* peers must not unpack an incomplete buffer */
            fsdp_group_abort(c->shard_group, status);
        fsdp_buffer_end(m->packed);
    }
    if (status != FSDP_OK) {
        give_back_packed(m);
        return status;
    }
    fsdp_param_context_report(c, FSDP_UNIT_GATHER, c->shard_group, logical);
    return FSDP_OK;
}

static fsdp_status gather(fsdp_param_memory *base)
{
    packed_memory *m = packed_of(base);
    /* If the local tensors are in a file, beginning a read of one of them loads all of them. So
     * begin a read of only the first one. */
    const fsdp_tensor *first = base->params[0]->local;
    if (m->packed)
        return FSDP_OK;
    FSDP_TRY(fsdp_tensor_begin_read(first));
    fsdp_status status = write_packed(m);
    fsdp_tensor_end_read(first);
    return status;
}

/* --- unpacking --- */

/* Unpack `rows` of p from the address `from` in the packed buffer. */
static fsdp_status unpack(const fsdp_param *p, const void *from, size_t bytes, fsdp_tensor *rows)
{
    const fsdp_device *device = p->context->device;
    const fsdp_all_gather_extension *e = extension_of(p);
    if (!fsdp_device_has_own_memory(device))
        return e->post_all_gather(e->self, p->parameter, from, bytes, rows);
    void *packed = fsdp_realloc(NULL, aligned(bytes), 1);
    if (!packed)
        return FSDP_ERR_NOMEM;
    fsdp_status status = fsdp_device_to_host(device, packed, from, bytes);
    if (status == FSDP_OK)
        status = e->post_all_gather(e->self, p->parameter, packed, bytes, rows);
    fsdp_free(packed);
    return status;
}

static fsdp_status unpack_rows(const packed_memory *m, const place *at, int64_t first)
{
    const fsdp_param *p = m->base.params[at->param];
    const unsigned char *base = fsdp_buffer_data(m->packed);
    const int64_t n = rows_of(p, at->rank);
    fsdp_tensor *rows;
    if (!n)
        return FSDP_OK;
    FSDP_TRY(fsdp_tensor_narrow(p->data, first, first + n, &rows));
    const fsdp_status status = unpack(p, base + at->offset, at->bytes, rows);
    fsdp_tensor_release(rows);
    return status;
}

static fsdp_status unpack_all(const packed_memory *m)
{
    place at = {.rank = -1};
    int64_t first = 0;
    while (fsdp_buffer_data(m->packed) && next_place(m, &at)) {
        first = at.rank == 0 ? 0 : first;
        FSDP_TRY(unpack_rows(m, &at, first));
        first += rows_of(m->base.params[at.param], at.rank);
    }
    return FSDP_OK;
}

static void reshard(fsdp_param_memory *base)
{
    packed_memory *m = packed_of(base);
    fsdp_storage_set_data(base->view, NULL);
    if (m->unpacked)
        fsdp_pool_release(&base->context->comm->whole, m->unpacked);
    m->unpacked = NULL;
    give_back_packed(m);
}

static fsdp_status unshard(fsdp_param_memory *base)
{
    packed_memory *m = packed_of(base);
    const fsdp_param_context *c = base->context;
    uint64_t logical;
    total_bytes(m, &logical);
    FSDP_TRY(fsdp_pool_acquire(&c->comm->whole, fsdp_param_memory_bytes(base), &m->unpacked));
    const fsdp_phase_info info = phase_info(m, FSDP_KIND_ALL_GATHER, logical);
    fsdp_status status = fsdp_buffer_begin(m->packed, FSDP_PHASE_READ, &info);
    if (status == FSDP_OK) {
        status = fsdp_group_check(c->shard_group); /* fails if a rank could not pack its rows */
        fsdp_storage_set_data(base->view, fsdp_buffer_data(m->unpacked));
        if (status == FSDP_OK)
            status = unpack_all(m);
        fsdp_buffer_end(m->packed);
    }
    give_back_packed(m);
    if (status != FSDP_OK) {
        fsdp_error_context(status, "all_gather extension of unit '%s'", c->name);
        reshard(base);
    }
    return status;
}

/* --- the memory and the storage --- */

/* `show` is NULL because this memory cannot be hidden. Each rank has a private unpacked copy, and a
 * reshard returns this copy to its pool. */
const fsdp_param_memory_ops fsdp_memory_packed = {.bytes = sizeof(packed_memory),
                                                  .allocate = fsdp_param_memory_create_view,
                                                  .gather = gather,
                                                  .prefetch = fsdp_param_memory_prefetch,
                                                  .unshard = unshard,
                                                  .reshard = reshard,
                                                  .drop = reshard,
                                                  .release = fsdp_param_memory_release_view};

static bool fits(const fsdp_param *p, fsdp_dtype dtype)
{
    (void)dtype;
    return extension_of(p) != NULL;
}

static fsdp_status create_local(const fsdp_param_memories *memories, const fsdp_param *p,
                                const int64_t *shape, fsdp_tensor **local)
{
    return fsdp_create_private_local(memories->items[FSDP_MEMORY_PACKED], p, shape, local);
}

static uint64_t gathered_bytes(const fsdp_param *p)
{
    uint64_t bytes = 0;
    for (int rank = 0; rank < fsdp_group_world_size(p->context->shard_group); rank++)
        bytes += packed_bytes(p, rank);
    return bytes;
}

const fsdp_param_storage fsdp_storage_extension = {.name = "extension",
                                                   .fits = fits,
                                                   .unsharded = FSDP_MEMORY_PACKED,
                                                   .sharded = FSDP_MEMORY_PACKED,
                                                   .create_local = create_local,
                                                   .gathered_bytes = gathered_bytes};
