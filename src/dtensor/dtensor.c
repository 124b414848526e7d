/* DTensor: the spec that a local tensor carries, and gathering the whole. */
#include <string.h>

#include <fsdp/dtensor.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/tensor/tensor.h"

typedef struct fsdp_tensor_spec {
    fsdp_group *group;
    fsdp_placement placement;
    int64_t shape[FSDP_MAX_DIMS]; /* global */
} fsdp_tensor_spec;

void fsdp_shard_rows(int64_t n, int world_size, int rank, int64_t *begin, int64_t *end)
{
    int64_t chunk = (n + world_size - 1) / world_size;
    int64_t b = chunk * rank, e = b + chunk;
    *begin = b < n ? b : n;
    *end = e < n ? e : n;
}

bool fsdp_is_dtensor(const fsdp_tensor *t)
{
    return t->spec != NULL;
}

fsdp_group *fsdp_dtensor_group(const fsdp_tensor *t)
{
    return t->spec ? t->spec->group : NULL;
}

fsdp_placement fsdp_dtensor_placement(const fsdp_tensor *t)
{
    return t->spec ? t->spec->placement : (fsdp_placement){FSDP_REPLICATE, 0};
}

const int64_t *fsdp_dtensor_shape(const fsdp_tensor *t)
{
    return t->spec ? t->spec->shape : t->shape;
}

static void spec_destroy(fsdp_tensor_spec *spec)
{
    fsdp_free(spec);
}

static fsdp_status check_part(const fsdp_tensor *local, fsdp_group *group, fsdp_placement placement,
                              const int64_t *shape)
{
    char have[FSDP_SHAPE_TEXT], want[FSDP_SHAPE_TEXT];
    int64_t expected[FSDP_MAX_DIMS] = {0};
    memcpy(expected, shape, (size_t)local->ndim * sizeof *shape);
    if (placement.kind == FSDP_SHARD) {
        int64_t begin, end;
        if (placement.dim != 0)
            return fsdp_error(FSDP_ERR_UNSUPPORTED, "Shard(%d): this version shards dimension 0",
                              placement.dim);
        fsdp_shard_rows(shape[0], fsdp_group_world_size(group), fsdp_group_rank(group), &begin,
                        &end);
        expected[0] = end - begin;
    }
    if (memcmp(expected, local->shape, (size_t)local->ndim * sizeof *shape) != 0)
        return fsdp_error(FSDP_ERR_INVALID, "local shape %s of a DTensor with %s should be %s",
                          fsdp_shape_text(local->ndim, local->shape, have),
                          placement.kind == FSDP_SHARD ? "Shard(0)" : "Replicate()",
                          fsdp_shape_text(local->ndim, expected, want));
    return FSDP_OK;
}

fsdp_status fsdp_dtensor_from_local(fsdp_tensor *local, fsdp_group *group, fsdp_placement placement,
                                    const int64_t *shape)
{
    int64_t numel;
    if (!group)
        return fsdp_error(FSDP_ERR_INVALID, "a DTensor needs a group");
    if (local->ndim < 1)
        return fsdp_error(FSDP_ERR_INVALID, "a scalar has no dimension to shard");
    FSDP_TRY(fsdp_shape_numel(local->ndim, shape, &numel));
    FSDP_TRY(check_part(local, group, placement, shape));
    fsdp_tensor_spec *spec = fsdp_calloc(1, sizeof *spec);
    if (!spec)
        return FSDP_ERR_NOMEM;
    spec->group = group;
    spec->placement = placement;
    memcpy(spec->shape, shape, (size_t)local->ndim * sizeof *shape);
    fsdp_free(local->spec);
    local->spec = spec;
    local->spec_destroy = spec_destroy;
    return FSDP_OK;
}

/* Every rank sends ceil(rows / world_size) rows, the last ones partly unused; `padded` [chunk *
 * world_size, ...] then holds the rows of the whole tensor in order, because only the tail is
 * short. Nothing else of the tensor's size is held, unless this rank's rows are short themselves.
 */
static fsdp_status gather_rows(fsdp_tensor *t, int64_t chunk, fsdp_tensor *padded)
{
    size_t row_bytes = (size_t)fsdp_tensor_row_numel(t) * fsdp_dtype_size(t->dtype);
    size_t chunk_bytes = (size_t)chunk * row_bytes;
    char *filled = NULL;
    const void *send = fsdp_tensor_ptr(t);
    if (t->shape[0] < chunk) {
        filled = fsdp_calloc(chunk_bytes, 1);
        if (!filled)
            return FSDP_ERR_NOMEM;
        if (t->shape[0])
            memcpy(filled, send, (size_t)t->shape[0] * row_bytes);
        send = filled;
    }
    fsdp_status status =
        fsdp_all_gather(t->spec->group, send, chunk_bytes, fsdp_tensor_ptr(padded));
    fsdp_free(filled);
    return status;
}

fsdp_status fsdp_full_tensor(fsdp_tensor *t, fsdp_tensor **full)
{
    if (!t->spec || t->spec->placement.kind == FSDP_REPLICATE) {
        *full = fsdp_tensor_retain(t);
        return FSDP_OK;
    }
    if (!fsdp_tensor_is_contiguous(t))
        return fsdp_error(FSDP_ERR_INVALID, "full_tensor of a local tensor that is not contiguous");
    fsdp_device *device = t->storage->device;
    const int64_t rows = t->spec->shape[0], world_size = fsdp_group_world_size(t->spec->group);
    const int64_t chunk = (rows + world_size - 1) / world_size;
    int64_t shape[FSDP_MAX_DIMS];
    memcpy(shape, t->spec->shape, sizeof shape);
    shape[0] = chunk * world_size;
    fsdp_tensor *padded;
    FSDP_TRY(fsdp_tensor_create(device, t->dtype, t->ndim, shape, FSDP_TAG_COMM, &padded));
    fsdp_status status = FSDP_OK;
    if (device->kernels && fsdp_tensor_numel(padded))
        status = gather_rows(t, chunk, padded);
    if (status == FSDP_OK)
        status = fsdp_tensor_narrow(padded, 0, rows, full);
    fsdp_tensor_release(padded);
    return status;
}
