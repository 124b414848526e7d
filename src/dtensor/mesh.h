/* The internals of meshes and DTensors. */
#pragma once
#include <fsdp/dtensor.h>

struct fsdp_device_mesh {
    int ndim;
    int shape[FSDP_MAX_MESH_DIMS], coordinate[FSDP_MAX_MESH_DIMS];
    char *names[FSDP_MAX_MESH_DIMS];
    fsdp_group *groups[FSDP_MAX_MESH_DIMS];
    bool owns_groups;
};

/* How a tensor is distributed over ranks. A plain group is a mesh of one dimension. */
typedef struct fsdp_tensor_spec {
    int mesh_ndim;
    const fsdp_device_mesh *mesh; /* borrowed; NULL: the mesh is of_group */
    fsdp_device_mesh of_group;    /* the mesh of a plain group; the group is borrowed */
    fsdp_placement placements[FSDP_MAX_MESH_DIMS];
    int64_t shape[FSDP_MAX_DIMS]; /* the global shape */
} fsdp_tensor_spec;

/* Set `shape` to this rank's local shape if only the first `dims` dimensions of the mesh cut the
 * tensor. */
void fsdp_spec_local_shape(const fsdp_tensor_spec *spec, int ndim, int dims, int64_t *shape);
/* Set [*begin, *end) to one rank's part of a tensor dimension that dimension d of the mesh cuts.
 * The tensor dimension has `size` elements. `rank` is the rank's place along d. */
void fsdp_spec_part(const fsdp_tensor_spec *spec, int d, int rank, int64_t size, int64_t *begin,
                    int64_t *end);
/* Give `local` a copy of the spec, after checking its shape. */
FSDP_MUST_CHECK fsdp_status fsdp_spec_attach(fsdp_tensor *local, const fsdp_tensor_spec *spec);
/* Return the mesh, borrowed from the spec. */
const fsdp_device_mesh *fsdp_spec_mesh(const fsdp_tensor_spec *spec);
/* For the ranks along the mesh's dimension d: fsdp_spec_group() returns their group,
 * fsdp_spec_ranks() their number, and fsdp_spec_rank() this rank's place among them. */
fsdp_group *fsdp_spec_group(const fsdp_tensor_spec *spec, int d);
int fsdp_spec_ranks(const fsdp_tensor_spec *spec, int d);
int fsdp_spec_rank(const fsdp_tensor_spec *spec, int d);
