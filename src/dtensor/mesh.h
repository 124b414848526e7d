/* Internals of meshes and DTensors: the struct of a mesh, and the spec of a DTensor. */
#pragma once
#include <fsdp/dtensor.h>

struct fsdp_device_mesh {
    int ndim;
    int shape[FSDP_MAX_MESH_DIMS], coordinate[FSDP_MAX_MESH_DIMS];
    char *names[FSDP_MAX_MESH_DIMS];
    fsdp_group *groups[FSDP_MAX_MESH_DIMS];
    bool owns_groups;
};

/* How a DTensor is distributed over the ranks of a mesh. If the DTensor was created for a plain
 * process group, that group is the only dimension of its mesh. */
typedef struct fsdp_tensor_spec {
    int mesh_ndim;
    const fsdp_device_mesh *mesh; /* borrowed; NULL: `of_group` is used instead */
    fsdp_device_mesh of_group;    /* used if `mesh` is NULL; its group is borrowed */
    fsdp_placement placements[FSDP_MAX_MESH_DIMS];
    int64_t shape[FSDP_MAX_DIMS]; /* the global shape */
} fsdp_tensor_spec;

/* Suppose that only the first `dims` dimensions of the mesh divide the tensor, and the other
 * dimensions are Replicate. Set `shape` to the shape of this rank's part of the tensor. */
void fsdp_spec_local_shape(const fsdp_tensor_spec *spec, int ndim, int dims, int64_t *shape);
/* Suppose that a tensor dimension of `size` entries is divided among the ranks along mesh dimension
 * d. Set [*begin, *end) to the entries of the rank whose coordinate along mesh dimension d is
 * `rank`. */
void fsdp_spec_part(const fsdp_tensor_spec *spec, int d, int rank, int64_t size, int64_t *begin,
                    int64_t *end);
/* Check the spec, and check that `local` has the shape that the spec gives to this rank. Then
 * attach a copy of the spec to `local`. */
FSDP_MUST_CHECK fsdp_status fsdp_spec_attach(fsdp_tensor *local, const fsdp_tensor_spec *spec);
/* Return the mesh, borrowed from the spec. */
const fsdp_device_mesh *fsdp_spec_mesh(const fsdp_tensor_spec *spec);
/* Return the group of the ranks along dimension d of the mesh. */
fsdp_group *fsdp_spec_group(const fsdp_tensor_spec *spec, int d);
/* Return the number of ranks along dimension d of the mesh. */
int fsdp_spec_ranks(const fsdp_tensor_spec *spec, int d);
/* Return this rank's coordinate along dimension d of the mesh. */
int fsdp_spec_rank(const fsdp_tensor_spec *spec, int d);
