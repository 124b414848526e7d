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
    const fsdp_device_mesh *mesh; /* borrowed; NULL: of_group is used */
    fsdp_device_mesh of_group;    /* the mesh of a plain group, which is borrowed */
    fsdp_placement placements[FSDP_MAX_MESH_DIMS];
    int64_t shape[FSDP_MAX_DIMS]; /* global */
} fsdp_tensor_spec;

/* The local shape of this rank after the first `dims` dimensions of the mesh have cut the
 * tensor. */
void fsdp_spec_local_shape(const fsdp_tensor_spec *spec, int ndim, int dims, int64_t *shape);
/* The part [begin, end) of a dimension of `size` that a rank of the mesh's dimension d has. */
void fsdp_spec_part(const fsdp_tensor_spec *spec, int d, int rank, int64_t size, int64_t *begin,
                    int64_t *end);
/* Give `local` a copy of the spec, after checking its shape. */
FSDP_MUST_CHECK fsdp_status fsdp_spec_attach(fsdp_tensor *local, const fsdp_tensor_spec *spec);
/* Borrowed from the spec. */
const fsdp_device_mesh *fsdp_spec_mesh(const fsdp_tensor_spec *spec);
/* The ranks along dimension d. */
fsdp_group *fsdp_spec_group(const fsdp_tensor_spec *spec, int d);
int fsdp_spec_ranks(const fsdp_tensor_spec *spec, int d);
int fsdp_spec_rank(const fsdp_tensor_spec *spec, int d);
