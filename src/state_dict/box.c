/* Computes a rank's box of a DTensor. The box is first the whole tensor. Then the placement in each
 * mesh dimension reduces it. Also copies the elements of a box from a whole tensor to a tensor of
 * the box's size, in runs that are contiguous in both tensors. */
#include <string.h>

#include "src/comm/group.h"
#include "src/dtensor/mesh.h"
#include "src/state_dict/box.h"
#include "src/tensor/tensor.h"

static void whole_of(const fsdp_tensor *t, fsdp_box *box)
{
    *box = (fsdp_box){.ndim = t->ndim};
    memcpy(box->shape, fsdp_dtensor_shape(t), (size_t)t->ndim * sizeof *box->shape);
    memcpy(box->size, box->shape, sizeof box->size);
}

/* Reduce the box to the part that mesh dimension `d` gives to `rank`. `rank` is a rank in the group
 * of this mesh dimension. */
static void cut(const fsdp_tensor_spec *spec, int d, int rank, fsdp_box *box)
{
    const fsdp_placement *p = &spec->placements[d];
    int64_t begin, end;
    if (p->kind != FSDP_SHARD)
        return;
    fsdp_spec_part(spec, d, rank, box->size[p->dim], &begin, &end);
    box->offset[p->dim] += begin;
    box->size[p->dim] = end - begin;
}

fsdp_status fsdp_box_of(const fsdp_tensor *t, fsdp_box *box)
{
    const fsdp_tensor_spec *spec = t->spec;
    whole_of(t, box);
    for (int d = 0; spec && d < spec->mesh_ndim; d++) {
        if (spec->placements[d].kind == FSDP_PARTIAL)
            return fsdp_error(FSDP_ERR_UNSUPPORTED, "a partial tensor: redistribute it first");
        cut(spec, d, fsdp_spec_rank(spec, d), box);
    }
    return FSDP_OK;
}

/* Convert a rank from one group to another. `r` is the rank of a process in the group of mesh
 * dimension `d`. Return the rank of the same process in `group`. */
static int place_in(const fsdp_tensor_spec *spec, int d, int r, const fsdp_group *group)
{
    return fsdp_group_rank_of_world(group, fsdp_group_world_rank(fsdp_spec_group(spec, d), r));
}

/* Return the coordinate in mesh dimension `d` of the process with rank `rank` in `group`. The ranks
 * of the mesh must be in row-major order in `group`. The ranks of two neighbors in dimension `d`
 * then always differ by the same number, the stride of the dimension. The stride is computed from
 * the ranks of the two processes with coordinates 0 and 1. Return -1 if one of these processes is
 * not in `group`, or if the stride is not positive. */
static int coordinate_of(const fsdp_tensor_spec *spec, int d, const fsdp_group *group, int rank)
{
    const int ranks = fsdp_spec_ranks(spec, d);
    if (ranks == 1)
        return 0;
    const int first = place_in(spec, d, 0, group), second = place_in(spec, d, 1, group);
    return first < 0 || second <= first ? -1 : rank / (second - first) % ranks;
}

bool fsdp_box_of_rank(const fsdp_tensor *t, const fsdp_group *group, int rank, fsdp_box *box)
{
    const fsdp_tensor_spec *spec = t->spec;
    whole_of(t, box);
    for (int d = 0; spec && d < spec->mesh_ndim; d++) {
        const int coordinate = coordinate_of(spec, d, group, rank);
        if (coordinate < 0)
            return false;
        cut(spec, d, coordinate, box);
    }
    return true;
}

bool fsdp_box_is_rows(const fsdp_box *box)
{
    for (int d = 1; d < box->ndim; d++)
        if (box->size[d] != box->shape[d])
            return false;
    return true;
}

/* Return the length of a run, in elements. A run is a sequence of elements of the box that are
 * contiguous in the whole tensor, and also in a tensor that contains only the box. Runs are as long
 * as possible, and all have the same length. Set *split to the dimension where runs begin to vary:
 * in each dimension before *split, all elements of a run have the same index. In dimension *split
 * and later dimensions, the indices may differ. */
static int64_t run_of(const fsdp_box *box, int *split)
{
    int64_t run = 1;
    int d = box->ndim;
    while (d > 0) {
        run *= box->size[--d];
        if (box->size[d] != box->shape[d])
            break;
    }
    *split = d;
    return run;
}

/* Return the position in the whole tensor of the element at `index` in the box. */
static int64_t element_at(const fsdp_box *box, const int64_t *index)
{
    int64_t at = 0;
    for (int d = 0; d < box->ndim; d++)
        at = at * box->shape[d] + box->offset[d] + index[d];
    return at;
}

void fsdp_box_copy(const fsdp_box *box, const fsdp_tensor *whole, fsdp_tensor *part)
{
    const fsdp_device *device = part->storage->device;
    const int64_t numel = fsdp_tensor_numel(part);
    int64_t index[FSDP_MAX_DIMS] = {0};
    int split;
    if (!device->kernels || !numel)
        return;
    const int64_t run = run_of(box, &split);
    const char *from = fsdp_tensor_ptr(whole);
    char *to = fsdp_tensor_ptr(part);
    for (int64_t done = 0; done < numel; done += run) {
        device->kernels->cast(device->context, to + (size_t)done * fsdp_dtype_size(part->dtype),
                              part->dtype,
                              from + (size_t)element_at(box, index) * fsdp_dtype_size(whole->dtype),
                              whole->dtype, run);
        for (int d = split - 1; d >= 0 && ++index[d] == box->size[d]; d--)
            index[d] = 0;
    }
}
