/**
 * @file
 * Device meshes and DTensor: a tensor with a specification of how it is distributed over ranks.
 *
 * Each rank holds its part as an ordinary (local) tensor with a spec: mesh, placements, global
 * shape. Shard(d) splits dimension d as FSDP2 splits rows: the first rank gets the first ceil(size
 * / ranks) entries, the second rank the next ones, and so on. The last ranks may get fewer or none.
 * If several dimensions of a mesh shard the same dimension of a tensor, the first one splits first.
 */
#pragma once
#include <fsdp/base.h>
#include <fsdp/comm.h>
#include <fsdp/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/** @name Device mesh @{ */
enum {
    FSDP_MAX_MESH_DIMS = 4
};

/** A row-major grid of ranks: torch.distributed.device_mesh. */
typedef struct fsdp_device_mesh fsdp_device_mesh;

/**
 * init_device_mesh(shape, mesh_dim_names): arrange all ranks of `group` as a grid. Collective. If
 * the mesh has several dimensions, `group` is split once for each of them (fsdp_group_split()).
 *
 * @param group borrowed: must outlive the mesh. NULL: a world of one
 * @param ndim  1 to FSDP_MAX_MESH_DIMS
 * @param shape [ndim] sizes, whose product must be the number of ranks
 * @param names [ndim], e.g. {"replicate", "shard"}, copied; NULL: none
 * @param mesh  out: owned by the caller. Release all tensors on the mesh before
 *              fsdp_device_mesh_destroy()
 * @return FSDP_ERR_INVALID naming a shape or a name that is not valid
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_device_mesh_create(fsdp_group *group, int ndim,
                                                             const int *shape,
                                                             const char *const *names,
                                                             fsdp_device_mesh **mesh);
/**
 * mesh["shard"], mesh["replicate", "shard"]: get a mesh with only some of the dimensions of `mesh`:
 * the part of it that contains this rank. This does not communicate: the slice uses the groups of
 * `mesh`, which must outlive the slice.
 *
 * @param names [n] names of dimensions of `mesh`, in the order of `mesh`; dimensions between them
 *              may be left out
 * @param slice out: owned by the caller, ended by fsdp_device_mesh_destroy()
 * @return FSDP_ERR_INVALID for an unknown name (the message lists the known names), or if the names
 *         are in another order
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_device_mesh_slice(const fsdp_device_mesh *mesh,
                                                            const char *const *names, int n,
                                                            fsdp_device_mesh **slice);
FSDP_API void fsdp_device_mesh_destroy(fsdp_device_mesh *mesh); /**< accepts NULL */
FSDP_API int fsdp_device_mesh_ndim(const fsdp_device_mesh *mesh);
FSDP_API int fsdp_device_mesh_size(const fsdp_device_mesh *mesh, int dim);
/** Get this rank's position along a dimension, like DeviceMesh.get_local_rank(). */
FSDP_API int fsdp_device_mesh_coordinate(const fsdp_device_mesh *mesh, int dim);
/** Get the index of the dimension called `name`; -1 if there is none. */
FSDP_API int fsdp_device_mesh_dim(const fsdp_device_mesh *mesh, const char *name);
/** Get the group of the ranks that differ from this rank only in their position along dimension
 * `dim`, like DeviceMesh.get_group(). Borrowed; NULL in a world of one. */
FSDP_API fsdp_group *fsdp_device_mesh_group(const fsdp_device_mesh *mesh, int dim);
/** @} */

/** @name DTensor @{ */
typedef enum fsdp_placement_kind {
    FSDP_REPLICATE, /**< every rank holds the whole tensor */
    FSDP_SHARD,     /**< each rank holds a part of dimension `dim` */
    FSDP_PARTIAL,   /**< the tensor is the sum of the ranks' tensors */
} fsdp_placement_kind;

typedef struct fsdp_placement {
    fsdp_placement_kind kind;
    int dim; /**< for FSDP_SHARD */
} fsdp_placement;

/** FSDP2's chunk rule: when n rows are split over world_size ranks, `rank` holds the rows [begin,
 * end). */
FSDP_API void fsdp_shard_rows(int64_t n, int world_size, int rank, int64_t *begin, int64_t *end);

/** Is `tensor` a DTensor? */
FSDP_API bool fsdp_is_dtensor(const fsdp_tensor *tensor);
/**
 * @name Properties of a DTensor; NULL, 0 or FSDP_REPLICATE for an ordinary tensor. Borrowed. @{
 */
FSDP_API const int64_t *fsdp_dtensor_shape(const fsdp_tensor *tensor); /**< global */
/** DTensor.device_mesh: get the mesh on which the tensor was created. The mesh must outlive the
 * tensor. A DTensor over a plain group has a mesh of one unnamed dimension, which exists as long as
 * the tensor. */
FSDP_API const fsdp_device_mesh *fsdp_dtensor_device_mesh(const fsdp_tensor *tensor);
FSDP_API int fsdp_dtensor_mesh_ndim(const fsdp_tensor *tensor);
/** [mesh_ndim]: DTensor.placements */
FSDP_API const fsdp_placement *fsdp_dtensor_placements(const fsdp_tensor *tensor);
/** Get the group and the placement of the mesh's first dimension. @{ */
FSDP_API fsdp_group *fsdp_dtensor_group(const fsdp_tensor *tensor);
FSDP_API fsdp_placement fsdp_dtensor_placement(const fsdp_tensor *tensor);
/** @} */
/** @} */

/**
 * Turn `local`, which is this rank's part, into a DTensor over the ranks of `group`.
 * @param group borrowed: must outlive the tensor
 * @param shape [ndim of local] shape of the whole tensor
 * @return FSDP_ERR_INVALID if local does not have the shape of this rank's part
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_dtensor_from_local(fsdp_tensor *local, fsdp_group *group,
                                                             fsdp_placement placement,
                                                             const int64_t *shape);
/**
 * DTensor.from_local(local, mesh, placements): turn `local`, which is this rank's part, into a
 * DTensor over a mesh.
 * @param mesh       borrowed: must outlive the tensor
 * @param placements one for each dimension of the mesh
 */
FSDP_API FSDP_MUST_CHECK fsdp_status
fsdp_dtensor_from_local_on_mesh(fsdp_tensor *local, const fsdp_device_mesh *mesh,
                                const fsdp_placement *placements, const int64_t *shape);
/**
 * DTensor.to_local(): get this rank's part as an ordinary tensor over the same memory. For an
 * ordinary tensor, get the tensor itself. Do not write a parameter through the result: only a write
 * to fsdp_parameter_local() records that the parameter has values.
 *
 * @param tensor contiguous
 * @param local  out: new reference
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_dtensor_to_local(fsdp_tensor *tensor,
                                                           fsdp_tensor **local);
/**
 * distribute_tensor(): create a DTensor with this rank's part of `tensor`. Every rank passes the
 * same whole tensor, so this does not communicate. FSDP_PARTIAL: the first rank along the mesh
 * dimension keeps the values, and the others get zeros.
 *
 * @param tensor contiguous. If it is a DTensor that already has this mesh and these placements, it
 *               is also the result
 * @param out    new reference, contiguous, dtype of tensor
 * @return FSDP_ERR_INVALID for a DTensor on another mesh or with other placements (use
 *         fsdp_redistribute()), and for a placement along a dimension that the tensor does not have
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_distribute_tensor(fsdp_tensor *tensor,
                                                            const fsdp_device_mesh *mesh,
                                                            const fsdp_placement *placements,
                                                            fsdp_tensor **out);
/**
 * DTensor.redistribute(): create the same tensor with other placements on its mesh. Collective.
 * Partial values are added in rank order, in float32 if they are bfloat16 or float16.
 *
 * @param tensor     a DTensor, contiguous
 * @param placements [mesh_ndim]
 * @param out        new reference; `tensor` itself if nothing changes
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_redistribute(fsdp_tensor *tensor,
                                                       const fsdp_placement *placements,
                                                       fsdp_tensor **out);
/**
 * DTensor.full_tensor(): get the whole tensor on every rank, contiguous, in the dtype of the local
 * tensor. Collective. For an ordinary tensor, get a new reference to it.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_full_tensor(fsdp_tensor *tensor, fsdp_tensor **full);
/** @} */

#ifdef __cplusplus
}
#endif
