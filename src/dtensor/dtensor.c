/* DTensors. A DTensor is a local tensor to which a spec is attached: a mesh, placements and the
 * global shape. */
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/dtensor/mesh.h"
#include "src/tensor/tensor.h"

void fsdp_shard_rows(int64_t n, int world_size, int rank, int64_t *begin, int64_t *end)
{
    int64_t chunk = (n + world_size - 1) / world_size;
    int64_t b = chunk * rank, e = b + chunk;
    *begin = b < n ? b : n;
    *end = e < n ? e : n;
}

/* --- specs --- */

const fsdp_device_mesh *fsdp_spec_mesh(const fsdp_tensor_spec *spec)
{
    return spec->mesh ? spec->mesh : &spec->of_group;
}

fsdp_group *fsdp_spec_group(const fsdp_tensor_spec *spec, int d)
{
    return fsdp_spec_mesh(spec)->groups[d];
}

int fsdp_spec_ranks(const fsdp_tensor_spec *spec, int d)
{
    return fsdp_group_world_size(fsdp_spec_group(spec, d));
}

int fsdp_spec_rank(const fsdp_tensor_spec *spec, int d)
{
    return fsdp_group_rank(fsdp_spec_group(spec, d));
}

void fsdp_spec_part(const fsdp_tensor_spec *spec, int d, int rank, int64_t size, int64_t *begin,
                    int64_t *end)
{
    fsdp_shard_rows(size, fsdp_spec_ranks(spec, d), rank, begin, end);
}

void fsdp_spec_local_shape(const fsdp_tensor_spec *spec, int ndim, int dims, int64_t *shape)
{
    memcpy(shape, spec->shape, (size_t)ndim * sizeof *shape);
    for (int d = 0; d < dims; d++) {
        const fsdp_placement *p = &spec->placements[d];
        int64_t begin, end;
        if (p->kind != FSDP_SHARD)
            continue;
        fsdp_spec_part(spec, d, fsdp_spec_rank(spec, d), shape[p->dim], &begin, &end);
        shape[p->dim] = end - begin;
    }
}

/* Write the placements to `text`, for example "Shard(0), Replicate()". */
static void placements_text(const fsdp_tensor_spec *spec, char *text, size_t size)
{
    static const char *const names[] = {"Replicate()", "Shard", "Partial()"};
    size_t at = 0;
    text[0] = 0;
    for (int d = 0; d < spec->mesh_ndim && at < size; d++) {
        const fsdp_placement *p = &spec->placements[d];
        at += (size_t)snprintf(text + at, size - at, "%s%s", d ? ", " : "", names[p->kind]);
        if (p->kind == FSDP_SHARD && at < size)
            at += (size_t)snprintf(text + at, size - at, "(%d)", p->dim);
    }
}

static fsdp_status check_placements(const fsdp_tensor_spec *spec, int ndim)
{
    for (int d = 0; d < spec->mesh_ndim; d++) {
        const fsdp_placement *p = &spec->placements[d];
        if (p->kind != FSDP_REPLICATE && p->kind != FSDP_SHARD && p->kind != FSDP_PARTIAL)
            return fsdp_error(FSDP_ERR_INVALID, "placement %d has an unknown kind", d);
        if (p->kind == FSDP_SHARD && (p->dim < 0 || p->dim >= ndim))
            return fsdp_error(FSDP_ERR_INVALID, "Shard(%d) of a tensor of %d dimensions", p->dim,
                              ndim);
    }
    return FSDP_OK;
}

static fsdp_status check_part(const fsdp_tensor *local, const fsdp_tensor_spec *spec)
{
    char have[FSDP_SHAPE_TEXT], want[FSDP_SHAPE_TEXT], placements[128];
    int64_t expected[FSDP_MAX_DIMS] = {0};
    fsdp_spec_local_shape(spec, local->ndim, spec->mesh_ndim, expected);
    if (memcmp(expected, local->shape, (size_t)local->ndim * sizeof *expected) == 0)
        return FSDP_OK;
    placements_text(spec, placements, sizeof placements);
    return fsdp_error(FSDP_ERR_INVALID, "local shape %s of a DTensor with %s should be %s",
                      fsdp_shape_text(local->ndim, local->shape, have), placements,
                      fsdp_shape_text(local->ndim, expected, want));
}

static void spec_destroy(fsdp_tensor_spec *spec)
{
    fsdp_free(spec);
}

fsdp_status fsdp_spec_attach(fsdp_tensor *local, const fsdp_tensor_spec *spec)
{
    int64_t numel;
    if (local->ndim < 1)
        return fsdp_error(FSDP_ERR_INVALID, "a scalar has no dimension to shard");
    FSDP_TRY(fsdp_shape_numel(local->ndim, spec->shape, &numel));
    FSDP_TRY(check_placements(spec, local->ndim));
    FSDP_TRY(check_part(local, spec));
    fsdp_tensor_spec *copy = fsdp_calloc(1, sizeof *copy);
    if (!copy)
        return FSDP_ERR_NOMEM;
    *copy = *spec;
    fsdp_free(local->spec);
    local->spec = copy;
    local->spec_destroy = spec_destroy;
    return FSDP_OK;
}

/* --- public functions --- */

bool fsdp_is_dtensor(const fsdp_tensor *t)
{
    return t->spec != NULL;
}

fsdp_group *fsdp_dtensor_group(const fsdp_tensor *t)
{
    return t->spec ? fsdp_spec_group(t->spec, 0) : NULL;
}

const fsdp_device_mesh *fsdp_dtensor_device_mesh(const fsdp_tensor *t)
{
    return t->spec ? fsdp_spec_mesh(t->spec) : NULL;
}

fsdp_placement fsdp_dtensor_placement(const fsdp_tensor *t)
{
    return t->spec ? t->spec->placements[0] : (fsdp_placement){FSDP_REPLICATE, 0};
}

int fsdp_dtensor_mesh_ndim(const fsdp_tensor *t)
{
    return t->spec ? t->spec->mesh_ndim : 0;
}

const fsdp_placement *fsdp_dtensor_placements(const fsdp_tensor *t)
{
    return t->spec ? t->spec->placements : NULL;
}

const int64_t *fsdp_dtensor_shape(const fsdp_tensor *t)
{
    return t->spec ? t->spec->shape : t->shape;
}

fsdp_status fsdp_dtensor_to_local(fsdp_tensor *t, fsdp_tensor **local)
{
    if (t->spec)
        return fsdp_tensor_view(t, t->ndim, t->shape, local);
    *local = fsdp_tensor_retain(t);
    return FSDP_OK;
}

static void set_shape(fsdp_tensor_spec *spec, int ndim, const int64_t *shape)
{
    memcpy(spec->shape, shape, (size_t)ndim * sizeof *shape);
}

fsdp_status fsdp_dtensor_from_local(fsdp_tensor *local, fsdp_group *group, fsdp_placement placement,
                                    const int64_t *shape)
{
    if (!group)
        return fsdp_error(FSDP_ERR_INVALID, "a DTensor needs a group");
    fsdp_tensor_spec spec = {.mesh_ndim = 1,
                             .of_group = {.ndim = 1,
                                          .shape = {fsdp_group_world_size(group)},
                                          .coordinate = {fsdp_group_rank(group)},
                                          .groups = {group}},
                             .placements = {placement}};
    set_shape(&spec, local->ndim, shape);
    return fsdp_spec_attach(local, &spec);
}

fsdp_status fsdp_dtensor_from_local_on_mesh(fsdp_tensor *local, const fsdp_device_mesh *mesh,
                                            const fsdp_placement *placements, const int64_t *shape)
{
    fsdp_tensor_spec spec = {.mesh_ndim = mesh->ndim, .mesh = mesh};
    memcpy(spec.placements, placements, (size_t)mesh->ndim * sizeof *placements);
    set_shape(&spec, local->ndim, shape);
    return fsdp_spec_attach(local, &spec);
}
