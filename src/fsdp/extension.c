/* See extension.h. */
#include "src/fsdp/extension.h"

#include "src/base/alloc.h"
#include "src/base/assert.h"

enum {
    PACK_ALIGN = 64
};

static const fsdp_all_gather_extension *extension_of(const fsdp_param *p)
{
    return p->parameter->extension;
}

bool fsdp_param_is_extended(const fsdp_param *p)
{
    return extension_of(p) != NULL;
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

/* Rows of p that rank `rank` packs. */
static int64_t rows_of(const fsdp_param_group *u, const fsdp_param *p, int rank)
{
    int64_t begin, end;
    fsdp_shard_rows(p->parameter->shape[0], fsdp_group_world_size(u->shard_group), rank, &begin,
                    &end);
    return end - begin;
}

static size_t packed_bytes(const fsdp_param_group *u, const fsdp_param *p, int rank)
{
    const fsdp_all_gather_extension *e = extension_of(p);
    return e->packed_bytes(e->self, p->parameter, rows_of(u, p, rank));
}

static size_t aligned(size_t bytes)
{
    return (bytes + PACK_ALIGN - 1) / PACK_ALIGN * PACK_ALIGN;
}

/* Walks the packed buffer: parameter by parameter, rank by rank. */
typedef struct place {
    size_t param;
    int rank;
    size_t offset, bytes;
} place;

/* The next part, from {.rank = -1} on; false after the last. */
static bool next_place(const fsdp_param_group *u, place *at)
{
    at->offset += aligned(at->bytes);
    if (++at->rank == fsdp_group_world_size(u->shard_group) || at->rank == 0) {
        at->param += at->rank != 0;
        at->rank = 0;
        while (at->param < u->n_params && !fsdp_param_is_extended(&u->params[at->param]))
            at->param++;
    }
    if (at->param == u->n_params)
        return false;
    at->bytes = packed_bytes(u, &u->params[at->param], at->rank);
    return true;
}

/* Bytes of the packed buffer, and of what travels in it. */
static size_t total_bytes(const fsdp_param_group *u, uint64_t *logical)
{
    place at = {.rank = -1};
    *logical = 0;
    while (next_place(u, &at))
        *logical += at.bytes;
    return at.offset;
}

static size_t whole_bytes(const fsdp_param_group *u)
{
    return (size_t)u->extended_numel * fsdp_dtype_size(u->options.mp_policy.param_dtype);
}

fsdp_status fsdp_extension_prepare(fsdp_param_group *u)
{
    u->extended_numel = 0;
    for (size_t i = 0; i < u->n_params; i++) {
        fsdp_param *p = &u->params[i];
        if (!fsdp_param_is_extended(p))
            continue;
        p->offset = (size_t)u->extended_numel;
        u->extended_numel += fsdp_param_group_aligned(fsdp_parameter_numel(p->parameter));
    }
    FSDP_TRY(fsdp_storage_from_memory(u->device, NULL, whole_bytes(u), &u->unpacked_storage));
    u->unpacked_storage->guards = &u->gathered_guard;
    return FSDP_OK;
}

void fsdp_extension_release(fsdp_param_group *u)
{
    if (!u->unpacked_storage)
        return;
    u->unpacked_storage->guards = NULL;
    fsdp_storage_set_data(u->unpacked_storage, NULL);
    fsdp_storage_release(u->unpacked_storage);
    u->unpacked_storage = NULL;
}

/* --- packing --- */

static fsdp_pool *packed_pool(const fsdp_param_group *u)
{
    return u->shard_group ? &u->pools->gathered : &u->pools->whole;
}

static fsdp_phase_info info_of(const fsdp_param_group *u, fsdp_phase_kind kind, uint64_t bytes)
{
    return (fsdp_phase_info){.unit = u->number,
                             .step = u->step,
                             .kind = (uint16_t)kind,
                             .dtype = FSDP_DTYPE_U8,
                             .bytes = bytes};
}

static void give_back_packed(fsdp_param_group *u)
{
    if (u->packed)
        fsdp_pool_give_back(packed_pool(u), u->packed);
    u->packed = NULL;
}

static fsdp_status pack_own(const fsdp_param_group *u)
{
    const int rank = fsdp_group_rank(u->shard_group);
    unsigned char *base = fsdp_buffer_data(u->packed);
    place at = {.rank = -1};
    FSDP_TRY(fsdp_device_synchronize(u->device)); /* the host writes; kernels were there before */
    while (base && next_place(u, &at)) {
        const fsdp_param *p = &u->params[at.param];
        const fsdp_all_gather_extension *e = extension_of(p);
        if (at.rank == rank)
            FSDP_TRY(e->pre_all_gather(e->self, p->parameter, p->local, u->shard_group,
                                       base + at.offset, at.bytes));
    }
    return FSDP_OK;
}

fsdp_status fsdp_extension_pack(fsdp_param_group *u)
{
    uint64_t logical;
    if (!u->extended_numel)
        return FSDP_OK;
    const size_t bytes = total_bytes(u, &logical);
    FSDP_ASSERT(!u->packed);
    FSDP_TRY(fsdp_pool_take(packed_pool(u), bytes, &u->packed));
    fsdp_phase_info info = info_of(u, FSDP_KIND_WRITE_SHARD, logical);
    fsdp_status status = fsdp_buffer_begin(u->packed, FSDP_PHASE_WRITE, &info);
    if (status == FSDP_OK) {
        status = pack_own(u);
        fsdp_error_context(status, "all_gather extension of unit '%s'", u->name);
        if (status != FSDP_OK && u->shard_group) /* before peers can take it for packed */
            fsdp_group_abort(u->shard_group, status);
        fsdp_buffer_end(u->packed);
    }
    if (status != FSDP_OK) {
        give_back_packed(u);
        return status;
    }
    fsdp_param_group_tell(u, FSDP_UNIT_GATHER, u->shard_group, logical);
    return FSDP_OK;
}

/* --- unpacking --- */

static fsdp_status unpack_rows(const fsdp_param_group *u, const place *at, int64_t first)
{
    const fsdp_param *p = &u->params[at->param];
    const fsdp_all_gather_extension *e = extension_of(p);
    const unsigned char *base = fsdp_buffer_data(u->packed);
    const int64_t n = rows_of(u, p, at->rank);
    fsdp_tensor *rows;
    if (!n)
        return FSDP_OK;
    FSDP_TRY(fsdp_tensor_narrow(p->data, first, first + n, &rows));
    fsdp_status status =
        e->post_all_gather(e->self, p->parameter, base + at->offset, at->bytes, rows);
    fsdp_tensor_release(rows);
    return status;
}

static fsdp_status unpack_all(const fsdp_param_group *u)
{
    place at = {.rank = -1};
    int64_t first = 0;
    while (fsdp_buffer_data(u->packed) && next_place(u, &at)) {
        first = at.rank == 0 ? 0 : first;
        FSDP_TRY(unpack_rows(u, &at, first));
        first += rows_of(u, &u->params[at.param], at.rank);
    }
    return FSDP_OK;
}

fsdp_status fsdp_extension_unpack(fsdp_param_group *u)
{
    uint64_t logical;
    if (!u->extended_numel)
        return FSDP_OK;
    total_bytes(u, &logical);
    FSDP_TRY(fsdp_pool_take(&u->pools->whole, whole_bytes(u), &u->unpacked));
    fsdp_phase_info info = info_of(u, FSDP_KIND_ALL_GATHER, logical);
    fsdp_status status = fsdp_buffer_begin(u->packed, FSDP_PHASE_READ, &info);
    if (status == FSDP_OK) {
        status = fsdp_group_check(u->shard_group); /* has one failed to pack? */
        fsdp_storage_set_data(u->unpacked_storage, fsdp_buffer_data(u->unpacked));
        if (status == FSDP_OK)
            status = unpack_all(u);
        fsdp_buffer_end(u->packed);
    }
    give_back_packed(u);
    if (status != FSDP_OK) {
        fsdp_error_context(status, "all_gather extension of unit '%s'", u->name);
        fsdp_extension_drop(u);
    }
    return status;
}

void fsdp_extension_drop(fsdp_param_group *u)
{
    if (!u->extended_numel)
        return;
    fsdp_storage_set_data(u->unpacked_storage, NULL);
    if (u->unpacked)
        fsdp_pool_give_back(&u->pools->whole, u->unpacked);
    u->unpacked = NULL;
    give_back_packed(u);
}
