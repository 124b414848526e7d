/* Creates device meshes and slices of meshes. A mesh has one process group for each of its
 * dimensions. The group of a dimension contains this rank and all ranks whose coordinates differ
 * from those of this rank only in that dimension. */
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/str.h"
#include "src/comm/group.h"
#include "src/comm/plan_group.h"
#include "src/dtensor/mesh.h"

static fsdp_status check_shape(fsdp_group *group, int ndim, const int *shape)
{
    const int ranks = fsdp_group_world_size(group);
    int64_t product = 1;
    if (ndim < 1 || ndim > FSDP_MAX_MESH_DIMS)
        return fsdp_error(FSDP_ERR_INVALID, "device mesh: %d dimensions, not 1 to %d", ndim,
                          FSDP_MAX_MESH_DIMS);
    for (int d = 0; d < ndim; d++) {
        if (shape[d] < 1 || shape[d] > ranks)
            return fsdp_error(FSDP_ERR_INVALID,
                              "device mesh: dimension %d has %d ranks, there are %d", d, shape[d],
                              ranks);
        product *= shape[d];
    }
    if (product != ranks)
        return fsdp_error(FSDP_ERR_INVALID,
                          "device mesh: its shape is for %lld ranks, there are %d",
                          (long long)product, ranks);
    return FSDP_OK;
}

static fsdp_status copy_names(fsdp_device_mesh *m, const char *const *names)
{
    for (int d = 0; names && d < m->ndim; d++) {
        if (!names[d] || !*names[d] || fsdp_device_mesh_dim(m, names[d]) >= 0)
            return fsdp_error(FSDP_ERR_INVALID, "device mesh: the name '%s' of dimension %d is %s",
                              names[d] ? names[d] : "", d,
                              names[d] && *names[d] ? "also that of another dimension" : "empty");
        m->names[d] = fsdp_strdup(names[d]);
        if (!m->names[d])
            return FSDP_ERR_NOMEM;
    }
    return FSDP_OK;
}

static void set_coordinates(fsdp_device_mesh *m, int rank)
{
    for (int d = m->ndim; d-- > 0;) {
        m->coordinate[d] = rank % m->shape[d];
        rank /= m->shape[d];
    }
}

/* Return the color for fsdp_group_split(), which puts ranks with the same color into one group. All
 * ranks whose coordinates differ only in dimension d have the same color. */
static int color_of(const fsdp_device_mesh *m, int d)
{
    int color = 0;
    for (int k = 0; k < m->ndim; k++)
        if (k != d)
            color = color * m->shape[k] + m->coordinate[k];
    return color;
}

/* Return the difference between the ranks of two neighbors along dimension d. */
static int stride_of(const fsdp_device_mesh *m, int d)
{
    int stride = 1;
    for (int k = d + 1; k < m->ndim; k++)
        stride *= m->shape[k];
    return stride;
}

/* Return the number of the host that runs rank `rank`. The group of a plan does not record the
 * hosts of its ranks. In this case, assume that the ranks fill the hosts in order. */
static int host_of(const fsdp_group *group, int rank)
{
    return fsdp_group_is_plan(group) ? rank / fsdp_group_local_world_size(group)
                                     : fsdp_group_host(group, rank);
}

/* A group along dimension d of the mesh may have ranks on several hosts. Check that it has the same
 * number of ranks on each of these hosts. If *expected is 0, this is the first group: set *expected
 * to this number of ranks. Otherwise check that the number is *expected. Then the ranks of all
 * groups share memory in the same way and choose the same kinds of buffers. `first` is the member
 * of the group with coordinate 0 along d. */
static fsdp_status check_hosts_of_group(const fsdp_device_mesh *m, const fsdp_group *group, int d,
                                        int first, int *expected)
{
    const int stride = stride_of(m, d), last = first + (m->shape[d] - 1) * stride;
    int n = 0;
    for (int r = first; r <= last; r += stride) {
        n++;
        if (r < last && host_of(group, r + stride) == host_of(group, r))
            continue;
        if (*expected && n != *expected)
            return fsdp_error(
                FSDP_ERR_UNSUPPORTED,
                "device mesh: with %d ranks on each host, its dimension %d has groups "
                "of %d ranks that have %d ranks on one host and %d on another: the size "
                "of a group (--shard-size) must divide the ranks of a host, or be a "
                "multiple of them",
                fsdp_group_local_world_size(group), d, m->shape[d], *expected, n);
        *expected = n;
        n = 0;
    }
    return FSDP_OK;
}

static fsdp_status check_hosts(const fsdp_device_mesh *m, const fsdp_group *group)
{
    const int ranks = fsdp_group_world_size(group);
    if (fsdp_group_local_world_size(group) == ranks)
        return FSDP_OK;
    for (int d = 0; d < m->ndim; d++)
        for (int r = 0, expected = 0; r < ranks; r++)
            if (r / stride_of(m, d) % m->shape[d] == 0)
                FSDP_TRY(check_hosts_of_group(m, group, d, r, &expected));
    return FSDP_OK;
}

static fsdp_status make_groups(fsdp_device_mesh *m, fsdp_group *group)
{
    if (m->ndim == 1 || !group) {
        for (int d = 0; d < m->ndim; d++)
            m->groups[d] = group;
        return FSDP_OK;
    }
    m->owns_groups = true;
    for (int d = 0; d < m->ndim; d++)
        FSDP_TRY(fsdp_group_is_plan(group)
                     ? fsdp_plan_group_split(group, m->coordinate[d], m->shape[d], stride_of(m, d),
                                             &m->groups[d])
                     : fsdp_group_split(group, color_of(m, d), m->coordinate[d], &m->groups[d]));
    return FSDP_OK;
}

fsdp_status fsdp_device_mesh_create(fsdp_group *group, int ndim, const int *shape,
                                    const char *const *names, fsdp_device_mesh **mesh)
{
    FSDP_TRY(check_shape(group, ndim, shape));
    fsdp_device_mesh *m = fsdp_calloc(1, sizeof *m);
    if (!m)
        return FSDP_ERR_NOMEM;
    m->ndim = ndim;
    memcpy(m->shape, shape, (size_t)ndim * sizeof *shape);
    set_coordinates(m, fsdp_group_rank(group));
    fsdp_status status = copy_names(m, names);
    if (status == FSDP_OK)
        status = check_hosts(m, group);
    if (status == FSDP_OK)
        status = make_groups(m, group);
    if (status != FSDP_OK) {
        fsdp_device_mesh_destroy(m);
        return status;
    }
    *mesh = m;
    return FSDP_OK;
}

void fsdp_device_mesh_destroy(fsdp_device_mesh *m)
{
    if (!m)
        return;
    for (int d = 0; d < m->ndim; d++) {
        if (m->owns_groups)
            fsdp_destroy_process_group(m->groups[d]);
        fsdp_free(m->names[d]);
    }
    fsdp_free(m);
}

/* --- slices --- */

/* Return an error that lists the names of the mesh's dimensions, for example "'replicate',
 * 'shard'". */
static fsdp_status unknown_dimension_error(const fsdp_device_mesh *m, const char *name)
{
    fsdp_str known = {0};
    for (int d = 0; d < m->ndim; d++)
        if (m->names[d])
            fsdp_str_printf(&known, "%s'%s'", known.len ? ", " : "", m->names[d]);
    fsdp_status status =
        fsdp_error(FSDP_ERR_INVALID, "device mesh: it has no dimension '%s'; its dimensions are %s",
                   name ? name : "", known.len ? known.data : "without names");
    fsdp_str_fini(&known);
    return status;
}

static fsdp_status choose_dims(const fsdp_device_mesh *m, const char *const *names, int n,
                               int *dims)
{
    if (n < 1 || n > m->ndim)
        return fsdp_error(FSDP_ERR_INVALID, "device mesh: a slice of %d dimensions of %d", n,
                          m->ndim);
    for (int i = 0; i < n; i++) {
        dims[i] = names[i] ? fsdp_device_mesh_dim(m, names[i]) : -1;
        if (dims[i] < 0)
            return unknown_dimension_error(m, names[i]);
        if (i && dims[i] == dims[i - 1])
            return fsdp_error(FSDP_ERR_INVALID, "device mesh: '%s' is named twice", names[i]);
        if (i && dims[i] < dims[i - 1])
            return fsdp_error(FSDP_ERR_INVALID,
                              "device mesh: '%s' comes before '%s' in the mesh: a slice keeps its "
                              "order",
                              names[i], names[i - 1]);
    }
    return FSDP_OK;
}

fsdp_status fsdp_device_mesh_slice(const fsdp_device_mesh *mesh, const char *const *names, int n,
                                   fsdp_device_mesh **slice)
{
    int dims[FSDP_MAX_MESH_DIMS];
    FSDP_TRY(choose_dims(mesh, names, n, dims));
    fsdp_device_mesh *m = fsdp_calloc(1, sizeof *m);
    if (!m)
        return FSDP_ERR_NOMEM;
    m->ndim = n;
    for (int i = 0; i < n; i++) {
        m->shape[i] = mesh->shape[dims[i]];
        m->coordinate[i] = mesh->coordinate[dims[i]];
        m->groups[i] = mesh->groups[dims[i]];
    }
    fsdp_status status = copy_names(m, names);
    if (status != FSDP_OK) {
        fsdp_device_mesh_destroy(m);
        return status;
    }
    *slice = m;
    return FSDP_OK;
}

int fsdp_device_mesh_ndim(const fsdp_device_mesh *m)
{
    return m->ndim;
}

static bool has_dim(const fsdp_device_mesh *m, int dim)
{
    return dim >= 0 && dim < m->ndim;
}

int fsdp_device_mesh_size(const fsdp_device_mesh *m, int dim)
{
    return has_dim(m, dim) ? m->shape[dim] : 1;
}

int fsdp_device_mesh_coordinate(const fsdp_device_mesh *m, int dim)
{
    return has_dim(m, dim) ? m->coordinate[dim] : 0;
}

int fsdp_device_mesh_dim(const fsdp_device_mesh *m, const char *name)
{
    for (int d = 0; d < m->ndim; d++)
        if (m->names[d] && strcmp(m->names[d], name) == 0)
            return d;
    return -1;
}

fsdp_group *fsdp_device_mesh_group(const fsdp_device_mesh *m, int dim)
{
    return has_dim(m, dim) ? m->groups[dim] : NULL;
}
