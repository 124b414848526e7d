/* See torch_dtensor.h. */
#include "src/torchfile/torch_dtensor.h"

#include <string.h>

#include "src/torchfile/torch_archive.h"

/* Limit of the size of a dimension. It ensures that a size multiplied by a coordinate in the mesh
 * (src/source/source_ranks.c) cannot overflow. */
static const int64_t MAX_DIM = (int64_t)1 << 46;

bool fsdp_torch_is_dtensor(const fsdp_pickle_value *value)
{
    return fsdp_pickle_is(value, FSDP_PICKLE_RECORD) &&
           fsdp_pickle_is_call(value, "_rebuild_wrapper_subclass") &&
           fsdp_pickle_is_call(fsdp_pickle_at(value, 0), "DTensor");
}

static bool is_sharded_tensor(const fsdp_pickle_value *value)
{
    return fsdp_pickle_is(value, FSDP_PICKLE_OPAQUE) &&
           strcmp(value->name->name, "ShardedTensor") == 0;
}

bool fsdp_torch_is_part(const fsdp_pickle_value *value)
{
    return fsdp_torch_is_dtensor(value) || is_sharded_tensor(value);
}

fsdp_status fsdp_torch_refuse_part(const char *path, const char *name,
                                   const fsdp_pickle_value *value, const char *why)
{
    if (is_sharded_tensor(value))
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "%s: '%s' is a ShardedTensor, one rank's part of an FSDP1 model. In "
                          "PyTorch, save the model with StateDictType.FULL_STATE_DICT, or with "
                          "torch.distributed.checkpoint.save()",
                          path, name);
    if (!fsdp_torch_is_dtensor(value))
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_UNSUPPORTED,
                      "%s: '%s' is a DTensor, one rank's part of an FSDP2 model%s%s. In PyTorch, "
                      "save the dict of get_model_state_dict(model, "
                      "options=StateDictOptions(full_state_dict=True)), or use "
                      "torch.distributed.checkpoint.save()",
                      path, name, why ? "; " : "", why ? why : "");
}

/* ---- reading --------------------------------------------------------------------------------- */

typedef struct reading {
    const char *path, *name;
    fsdp_torch_dtensor *to;
} reading;

static fsdp_status bad_dtensor(const reading *r, const char *what)
{
    return fsdp_error(FSDP_ERR_FORMAT, "%s: DTensor '%s': %s", r->path, r->name, what);
}

static bool is_list(const fsdp_pickle_value *value)
{
    return fsdp_pickle_is(value, FSDP_PICKLE_TUPLE) || fsdp_pickle_is(value, FSDP_PICKLE_LIST);
}

static bool take_size(const fsdp_pickle_value *value, int64_t *size)
{
    if (!fsdp_pickle_is(value, FSDP_PICKLE_INT) || value->integer < 0)
        return false;
    *size = value->integer;
    return true;
}

static fsdp_status read_shape(const reading *r, const fsdp_pickle_value *size)
{
    if (!is_list(size) || size->list.n > FSDP_DTENSOR_MAX_DIMS)
        return bad_dtensor(r, "its size is not a tuple of at most 64 numbers");
    r->to->ndim = (int)size->list.n;
    for (int d = 0; d < r->to->ndim; d++)
        if (!take_size(size->list.items[d], &r->to->shape[d]) || r->to->shape[d] > MAX_DIM)
            return bad_dtensor(
                r, "its size holds a value that is not a number, or that a tensor cannot have");
    return FSDP_OK;
}

/* Read a placement, which is Replicate() or Shard(dim). `dim` is stored either in the state of the
 * Shard, under the key `dim`, or as the argument of the call to Shard. */
static fsdp_status read_placement(const reading *r, const fsdp_pickle_value *placement, int *dim)
{
    char text[128];
    if (fsdp_pickle_is_call(placement, "Replicate")) {
        *dim = FSDP_DTENSOR_REPLICATE;
        return FSDP_OK;
    }
    if (!fsdp_pickle_is_call(placement, "Shard"))
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "%s: DTensor '%s' is placed by %s; only Shard and Replicate are joined",
                          r->path, r->name, fsdp_pickle_describe(placement, text, sizeof text));
    const fsdp_pickle_value *value = fsdp_pickle_find(placement, "dim");
    value = value ? value : fsdp_pickle_at(placement, 0);
    if (!fsdp_pickle_is(value, FSDP_PICKLE_INT) || value->integer < -r->to->ndim ||
        value->integer >= r->to->ndim)
        return bad_dtensor(r, "it is sharded along a dimension that it does not have");
    *dim = (int)value->integer + (value->integer < 0 ? r->to->ndim : 0);
    return FSDP_OK;
}

static fsdp_status read_placements(const reading *r, const fsdp_pickle_value *placements)
{
    if (!is_list(placements) || placements->list.n > FSDP_DTENSOR_MAX_MESH)
        return bad_dtensor(r, "its placements are not a tuple of at most 8");
    r->to->mesh_ndim = (int)placements->list.n;
    for (int i = 0; i < r->to->mesh_ndim; i++)
        FSDP_TRY(read_placement(r, placements->list.items[i], &r->to->shard_dims[i]));
    return FSDP_OK;
}

static void read_coordinate(const reading *r, const fsdp_pickle_value *coordinate)
{
    const bool known = is_list(coordinate) && coordinate->list.n == (size_t)r->to->mesh_ndim;
    for (int i = 0; i < r->to->mesh_ndim; i++)
        if (!known || !take_size(coordinate->list.items[i], &r->to->coordinate[i]))
            r->to->coordinate[i] = -1;
}

fsdp_status fsdp_torch_dtensor_read(const char *path, const char *name,
                                    const fsdp_pickle_value *value, fsdp_torch_dtensor *dtensor)
{
    const reading r = {path, name, dtensor};
    const fsdp_pickle_value *spec = fsdp_pickle_find(value, "_spec");
    *dtensor = (fsdp_torch_dtensor){.local = fsdp_pickle_find(value, "_local_tensor")};
    if (!fsdp_torch_is_tensor(dtensor->local))
        return bad_dtensor(&r, "it has no local tensor");
    FSDP_TRY(read_shape(&r, fsdp_pickle_at(value, 2)));
    FSDP_TRY(read_placements(&r, fsdp_pickle_find(spec, "placements")));
    read_coordinate(&r, fsdp_pickle_find(fsdp_pickle_find(spec, "mesh"), "_coordinate_on_dim"));
    return FSDP_OK;
}
