/* Inside of meshes and DTensors. */
#pragma once
#include <fsdp/dtensor.h>

struct fsdp_device_mesh {
    int ndim;
    int shape[FSDP_MAX_MESH_DIMS], coordinate[FSDP_MAX_MESH_DIMS];
    char *names[FSDP_MAX_MESH_DIMS];
    fsdp_group *groups[FSDP_MAX_MESH_DIMS];
    bool owns_groups;
};

/* How a tensor lies over ranks; a plain group is a mesh of one dimension. */
typedef struct fsdp_tensor_spec {
    int mesh_ndim;
    const fsdp_device_mesh *mesh; /* borrowed; NULL: */
    fsdp_device_mesh of_group;    /* that of a plain group, which is borrowed */
    fsdp_placement placements[FSDP_MAX_MESH_DIMS];
    int64_t shape[FSDP_MAX_DIMS]; /* global */
} fsdp_tensor_spec;

/* The shape that this rank holds once the first `dims` dimensions of the mesh have cut it. */
void fsdp_spec_local_shape(const fsdp_tensor_spec *spec, int ndim, int dims, int64_t *shape);
/* Which part of dimension `size` long a rank of the mesh's dimension d holds. */
void fsdp_spec_part(const fsdp_tensor_spec *spec, int d, int rank, int64_t size, int64_t *begin,
                    int64_t *end);
/* Give `local` a copy of the spec, once its shape was found to be right. */
FSDP_MUST_CHECK fsdp_status fsdp_spec_attach(fsdp_tensor *local, const fsdp_tensor_spec *spec);
/* Borrowed from the spec. */
const fsdp_device_mesh *fsdp_spec_mesh(const fsdp_tensor_spec *spec);
/* The neighbours along dimension d. */
fsdp_group *fsdp_spec_group(const fsdp_tensor_spec *spec, int d);
int fsdp_spec_ranks(const fsdp_tensor_spec *spec, int d);
int fsdp_spec_rank(const fsdp_tensor_spec *spec, int d);
