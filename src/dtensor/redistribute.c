/* Changes the placements of DTensors, one mesh dimension at a time.
 *
 * If a mesh dimension divides a tensor into parts, later mesh dimensions may divide these parts
 * further. So the placement on a mesh dimension can be changed only while all later mesh dimensions
 * are Replicate. Therefore a change has two passes. The first pass goes backwards, from the last
 * mesh dimension to the first one whose placement changes, and makes each of these dimensions
 * Replicate. The second pass goes forwards over the same dimensions and applies the new
 * placements. */
#include <string.h>

#include "src/base/alloc.h"
#include "src/dtensor/mesh.h"
#include "src/tensor/host_copy.h"
#include "src/tensor/offload.h"

/* Return the product of the sizes of dimensions [0, d). */
static int64_t outer_of(const int64_t *shape, int d)
{
    int64_t n = 1;
    for (int i = 0; i < d; i++)
        n *= shape[i];
    return n;
}

/* Return the product of the sizes of the dimensions after d. */
static int64_t inner_of(const int64_t *shape, int ndim, int d)
{
    int64_t n = 1;
    for (int i = d + 1; i < ndim; i++)
        n *= shape[i];
    return n;
}

/* Copy `n` entries of dimension `dim`: entry from_at + i of `from` becomes entry to_at + i of `to`.
 * Both tensors are contiguous, and their shapes differ only in the size of `dim`. In `from`, the
 * size of `dim` is from_size. If from_host is true, `from` is in host memory, otherwise it is on
 * the device of `to`. */
static void copy_part(const fsdp_tensor *to, const char *from, bool from_host, int64_t from_size,
                      int dim, int64_t from_at, int64_t to_at, int64_t n)
{
    const fsdp_device *device = to->storage->device;
    const size_t inner = (size_t)inner_of(to->shape, to->ndim, dim) * fsdp_dtype_size(to->dtype);
    const int64_t outer = outer_of(to->shape, dim);
    char *target = fsdp_tensor_ptr(to);
    for (int64_t o = 0; o < outer && n && inner; o++) {
        char *dst = target + (size_t)(o * to->shape[dim] + to_at) * inner;
        const char *src = from + (size_t)(o * from_size + from_at) * inner;
        if (from_host)
            fsdp_device_from_host(device, dst, src, (size_t)n * inner);
        else
            device->kernels->copy(device->context, dst, src, (size_t)n * inner);
    }
}

static fsdp_status new_like(const fsdp_tensor *t, const int64_t *shape, fsdp_dtype dtype,
                            fsdp_tensor **out)
{
    return fsdp_tensor_create(t->storage->device, dtype, t->ndim, shape, FSDP_TAG_COMM, out);
}

/* --- steps that make a mesh dimension Replicate --- */

/* Copy the gathered parts of a tensor to their positions in `whole`. `gathered` contains one part
 * for each rank along mesh dimension d, in the order of the ranks. Each part is padded to `bytes`
 * bytes. */
static void assemble_parts(const fsdp_tensor_spec *spec, int d, const char *gathered, size_t bytes,
                           const fsdp_tensor *whole)
{
    const int dim = spec->placements[d].dim;
    for (int r = 0; r < fsdp_spec_ranks(spec, d); r++) {
        int64_t begin, end;
        fsdp_spec_part(spec, d, r, whole->shape[dim], &begin, &end);
        copy_part(whole, gathered + (size_t)r * bytes, true, end - begin, dim, 0, begin,
                  end - begin);
    }
}

/* Gather the parts of all ranks along mesh dimension d into `whole`. All ranks send the same number
 * of bytes: the size of the first rank's part, which is the largest. A rank whose part is smaller
 * adds padding, which is not copied to `whole`. */
static fsdp_status gather_parts(const fsdp_tensor *t, const fsdp_tensor_spec *spec, int d,
                                const fsdp_tensor *whole)
{
    const int dim = spec->placements[d].dim, ranks = fsdp_spec_ranks(spec, d);
    int64_t begin, end;
    fsdp_spec_part(spec, d, 0, whole->shape[dim], &begin, &end);
    const size_t row =
        (size_t)(outer_of(whole->shape, dim) * inner_of(whole->shape, whole->ndim, dim)) *
        fsdp_dtype_size(t->dtype);
    const size_t bytes = (size_t)(end - begin) * row;
    const size_t own = (size_t)t->shape[dim] * row;
    char *send = fsdp_calloc(bytes, 1), *gathered = fsdp_calloc((size_t)ranks, bytes);
    fsdp_status status = send && gathered ? FSDP_OK : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status = fsdp_device_to_host(t->storage->device, send, fsdp_tensor_ptr(t), own);
    if (status == FSDP_OK)
        status = fsdp_all_gather(fsdp_spec_group(spec, d), send, bytes, gathered);
    if (status == FSDP_OK)
        assemble_parts(spec, d, gathered, bytes, whole);
    fsdp_free(send);
    fsdp_free(gathered);
    return status;
}

/* If `status` is an error, abort the group of mesh dimension d: its ranks would wait for this rank
 * in their next collective. */
static void abort_if_failed(const fsdp_tensor *t, const fsdp_tensor_spec *spec, int d,
                            fsdp_status status)
{
    if (status != FSDP_OK && t->storage->device->kernels && fsdp_spec_ranks(spec, d) > 1)
        fsdp_group_abort(fsdp_spec_group(spec, d), status);
}

static fsdp_status unshard(fsdp_tensor *t, const fsdp_tensor_spec *spec, int d, fsdp_tensor **out)
{
    int64_t shape[FSDP_MAX_DIMS];
    fsdp_tensor *whole;
    fsdp_spec_local_shape(spec, t->ndim, d, shape);
    fsdp_status status = new_like(t, shape, t->dtype, &whole);
    abort_if_failed(t, spec, d, status);
    FSDP_TRY(status);
    if (t->storage->device->kernels && fsdp_tensor_numel(whole))
        status = gather_parts(t, spec, d, whole);
    abort_if_failed(t, spec, d, status);
    if (status != FSDP_OK) {
        fsdp_tensor_release(whole);
        return status;
    }
    *out = whole;
    return FSDP_OK;
}

static fsdp_dtype sum_dtype(fsdp_dtype dtype)
{
    return dtype == FSDP_DTYPE_BF16 || dtype == FSDP_DTYPE_F16 ? FSDP_DTYPE_F32 : dtype;
}

static fsdp_status all_reduce(fsdp_group *group, const fsdp_tensor *sum)
{
    fsdp_host_copy copy;
    FSDP_TRY(fsdp_host_copy_of(&copy, sum));
    const fsdp_status status = fsdp_all_reduce(group, copy.data, (size_t)fsdp_tensor_numel(sum),
                                               sum->dtype, FSDP_REDUCE_SUM);
    if (status == FSDP_OK)
        fsdp_host_copy_write(&copy);
    fsdp_host_copy_destroy(&copy);
    return status;
}

static fsdp_status add_partials(fsdp_tensor *t, const fsdp_tensor_spec *spec, int d,
                                fsdp_tensor **out)
{
    fsdp_tensor *sum;
    fsdp_status status = fsdp_tensor_to(t, sum_dtype(t->dtype), FSDP_TAG_COMM, &sum);
    abort_if_failed(t, spec, d, status);
    FSDP_TRY(status);
    if (t->storage->device->kernels && fsdp_spec_group(spec, d))
        status = all_reduce(fsdp_spec_group(spec, d), sum);
    abort_if_failed(t, spec, d, status);
    if (status == FSDP_OK && sum->dtype != t->dtype)
        status = fsdp_tensor_to(sum, t->dtype, FSDP_TAG_COMM, out);
    else if (status == FSDP_OK)
        *out = fsdp_tensor_retain(sum);
    fsdp_tensor_release(sum);
    return status;
}

/* --- steps from Replicate to another placement --- */

static fsdp_status cut_shard(fsdp_tensor *t, const fsdp_tensor_spec *spec, int d, fsdp_tensor **out)
{
    const int dim = spec->placements[d].dim;
    const fsdp_device *device = t->storage->device;
    int64_t shape[FSDP_MAX_DIMS], begin, end;
    fsdp_spec_part(spec, d, fsdp_spec_rank(spec, d), t->shape[dim], &begin, &end);
    memcpy(shape, t->shape, sizeof shape);
    shape[dim] = end - begin;
    FSDP_TRY(new_like(t, shape, t->dtype, out));
    if (device->kernels && fsdp_tensor_numel(*out))
        copy_part(*out, fsdp_tensor_ptr(t), false, t->shape[dim], dim, begin, 0, end - begin);
    return FSDP_OK;
}

/* Turn Replicate into Partial. The first rank along d keeps the values, and the other ranks get
 * zeros. So the sum over the ranks equals the old values. */
static fsdp_status split_sum(fsdp_tensor *t, const fsdp_tensor_spec *spec, int d, fsdp_tensor **out)
{
    const fsdp_device *device = t->storage->device;
    if (fsdp_spec_rank(spec, d) == 0) {
        *out = fsdp_tensor_retain(t);
        return FSDP_OK;
    }
    FSDP_TRY(new_like(t, t->shape, t->dtype, out));
    if (device->kernels && fsdp_tensor_numel(*out))
        device->kernels->fill(device->context, fsdp_tensor_ptr(*out), t->dtype, 0.0,
                              fsdp_tensor_numel(*out));
    return FSDP_OK;
}

/* --- changing placements --- */

typedef fsdp_status step_fn(fsdp_tensor *t, const fsdp_tensor_spec *spec, int d, fsdp_tensor **out);

/* Replace *t with the result of `step`. */
static fsdp_status take_step(fsdp_tensor **t, step_fn *step, const fsdp_tensor_spec *spec, int d)
{
    fsdp_tensor *result;
    FSDP_TRY(step(*t, spec, d, &result));
    fsdp_tensor_release(*t);
    *t = result;
    return FSDP_OK;
}

/* Make dimension d of the mesh Replicate. All later dimensions must be Replicate already. */
static fsdp_status make_replicate(fsdp_tensor **t, const fsdp_tensor_spec *spec, int d)
{
    const fsdp_placement_kind kind = spec->placements[d].kind;
    if (kind == FSDP_REPLICATE)
        return FSDP_OK;
    return take_step(t, kind == FSDP_SHARD ? unshard : add_partials, spec, d);
}

static fsdp_status apply_placement(fsdp_tensor **t, const fsdp_tensor_spec *spec, int d)
{
    const fsdp_placement_kind kind = spec->placements[d].kind;
    if (kind == FSDP_REPLICATE)
        return FSDP_OK;
    return take_step(t, kind == FSDP_SHARD ? cut_shard : split_sum, spec, d);
}

static bool same_placement(fsdp_placement a, fsdp_placement b)
{
    return a.kind == b.kind && (a.kind != FSDP_SHARD || a.dim == b.dim);
}

static fsdp_status check_source(const fsdp_tensor *t, const char *call)
{
    if (fsdp_tensor_is_contiguous(t))
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID, "%s of a local tensor that is not contiguous", call);
}

/* `t` has the placements of the spec `from`. On mesh dimension `first` and on all later mesh
 * dimensions, change them to the placements of the spec `to`. Set *out to the result. If a step was
 * needed, the result is a new tensor without a spec. Otherwise it is `t` itself. */
static fsdp_status change_placements(fsdp_tensor *t, const fsdp_tensor_spec *from, int first,
                                     const fsdp_tensor_spec *to, fsdp_tensor **out)
{
    FSDP_TRY(fsdp_tensor_begin_read(t));
    fsdp_tensor *now = fsdp_tensor_retain(t);
    fsdp_status status = FSDP_OK;
    for (int d = from->mesh_ndim; d-- > first && status == FSDP_OK;)
        status = make_replicate(&now, from, d);
    for (int d = first; d < from->mesh_ndim && status == FSDP_OK; d++)
        status = apply_placement(&now, to, d);
    fsdp_tensor_end_read(t);
    if (status != FSDP_OK) {
        fsdp_tensor_release(now);
        return status;
    }
    *out = now;
    return FSDP_OK;
}

/* Set *out to a tensor without a spec, and take over the caller's reference to `t`. If `t` has no
 * spec, *out is `t` itself. Otherwise *out is a copy, and `t` is released. */
static fsdp_status own_copy(fsdp_tensor *t, fsdp_tensor **out)
{
    if (!t->spec) {
        *out = t;
        return FSDP_OK;
    }
    fsdp_status status = fsdp_tensor_to(t, t->dtype, FSDP_TAG_COMM, out);
    fsdp_tensor_release(t);
    return status;
}

fsdp_status fsdp_redistribute(fsdp_tensor *t, const fsdp_placement *placements, fsdp_tensor **out)
{
    if (!t->spec)
        return fsdp_error(FSDP_ERR_INVALID, "redistribute: an ordinary tensor has no mesh");
    FSDP_TRY(check_source(t, "redistribute"));
    fsdp_tensor_spec to = *t->spec;
    int first = 0;
    memcpy(to.placements, placements, (size_t)to.mesh_ndim * sizeof *placements);
    for (int d = 0; d < to.mesh_ndim; d++)
        if (to.placements[d].kind == FSDP_SHARD &&
            (to.placements[d].dim < 0 || to.placements[d].dim >= t->ndim))
            return fsdp_error(FSDP_ERR_INVALID,
                              "redistribute: Shard(%d) of a tensor of %d "
                              "dimensions",
                              to.placements[d].dim, t->ndim);
    while (first < to.mesh_ndim && same_placement(to.placements[first], t->spec->placements[first]))
        first++;
    if (first == to.mesh_ndim) {
        *out = fsdp_tensor_retain(t);
        return FSDP_OK;
    }
    fsdp_tensor *result;
    FSDP_TRY(change_placements(t, t->spec, first, &to, &result));
    FSDP_TRY(own_copy(result, &result));
    fsdp_status status = fsdp_spec_attach(result, &to);
    if (status == FSDP_OK)
        *out = result;
    else
        fsdp_tensor_release(result);
    return status;
}

static bool same_mesh(const fsdp_device_mesh *a, const fsdp_device_mesh *b)
{
    bool same = a->ndim == b->ndim;
    for (int d = 0; d < a->ndim && same; d++)
        same = a->shape[d] == b->shape[d] && a->groups[d] == b->groups[d];
    return same;
}

/* Check that a DTensor with the spec `spec` already has the requested mesh and placements.
 * distribute_tensor() calls this if its argument is a DTensor already, because it returns such a
 * DTensor unchanged. */
static fsdp_status check_distributed(const fsdp_tensor_spec *spec, const fsdp_device_mesh *mesh,
                                     const fsdp_placement *placements)
{
    if (!same_mesh(fsdp_spec_mesh(spec), mesh))
        return fsdp_error(FSDP_ERR_INVALID,
                          "distribute_tensor: the tensor is a DTensor on another mesh");
    for (int d = 0; d < spec->mesh_ndim; d++)
        if (!same_placement(spec->placements[d], placements[d]))
            return fsdp_error(FSDP_ERR_INVALID,
                              "distribute_tensor: the tensor is a DTensor with another placement "
                              "on dimension %d of the mesh: fsdp_redistribute() changes it",
                              d);
    return FSDP_OK;
}

fsdp_status fsdp_distribute_tensor(fsdp_tensor *tensor, const fsdp_device_mesh *mesh,
                                   const fsdp_placement *placements, fsdp_tensor **out)
{
    static const fsdp_placement replicated[FSDP_MAX_MESH_DIMS];
    fsdp_tensor *copy;
    if (tensor->spec) {
        FSDP_TRY(check_distributed(tensor->spec, mesh, placements));
        *out = fsdp_tensor_retain(tensor);
        return FSDP_OK;
    }
    FSDP_TRY(check_source(tensor, "distribute_tensor"));
    FSDP_TRY(fsdp_tensor_to(tensor, tensor->dtype, FSDP_TAG_PARAM, &copy));
    fsdp_status status = fsdp_dtensor_from_local_on_mesh(copy, mesh, replicated, tensor->shape);
    if (status == FSDP_OK)
        status = fsdp_redistribute(copy, placements, out);
    fsdp_tensor_release(copy);
    return status;
}

fsdp_status fsdp_full_tensor(fsdp_tensor *t, fsdp_tensor **full)
{
    static const fsdp_tensor_spec replicated;
    int first = 0;
    while (t->spec && first < t->spec->mesh_ndim &&
           t->spec->placements[first].kind == FSDP_REPLICATE)
        first++;
    if (!t->spec || first == t->spec->mesh_ndim) {
        /* Callers read the result without fsdp_tensor_begin_read(). So if t has data only while a
         * read of it is open, return a copy. */
        if (fsdp_tensor_is_held_elsewhere(t))
            return fsdp_tensor_to(t, t->dtype, FSDP_TAG_COMM, full);
        *full = fsdp_tensor_retain(t);
        return FSDP_OK;
    }
    FSDP_TRY(check_source(t, "full_tensor"));
    return change_placements(t, t->spec, first, &replicated, full);
}
