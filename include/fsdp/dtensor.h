/**
 * @file
 * Device meshes and DTensor: a tensor with a specification of how it lies over ranks.
 *
 * A rank holds its part as an ordinary (local) tensor that carries a spec: mesh, placements, global
 * shape. Shard(d) cuts dimension d as FSDP2 cuts rows: ceil(size / ranks) for each rank in order,
 * so the last ranks may hold fewer or none. Where several dimensions of a mesh cut the same
 * dimension of a tensor, the first one cuts first.
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

/** Ranks as a grid, row-major: torch.distributed.device_mesh. */
typedef struct fsdp_device_mesh fsdp_device_mesh;

/**
 * init_device_mesh(shape, mesh_dim_names): all ranks of `group` as a grid. Collective; a mesh of
 * several dimensions splits `group` once for each (fsdp_group_split).
 *
 * @param group borrowed: it outlives the mesh. NULL: a world of one
 * @param ndim  1 to FSDP_MAX_MESH_DIMS
 * @param shape [ndim] whose product is the number of ranks
 * @param names [ndim], e.g. {"replicate", "shard"}, copied; NULL: none
 * @param mesh  out: owned by the caller, ended by fsdp_device_mesh_destroy() after the tensors on
 * it
 * @return FSDP_ERR_INVALID naming shape or name that does not fit
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_device_mesh_create(fsdp_group *group, int ndim,
                                                             const int *shape,
                                                             const char *const *names,
                                                             fsdp_device_mesh **mesh);
/**
 * mesh["shard"], mesh["replicate", "shard"]: the mesh of some of the dimensions, which this rank is
 * in. No communication: groups are those of `mesh`, which outlives it.
 *
 * @param names [n] of dimensions of `mesh`, in its order; others may lie between them
 * @param slice out: owned by the caller, ended by fsdp_device_mesh_destroy()
 * @return FSDP_ERR_INVALID for a name that it has not, listing those that it has, or another order
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_device_mesh_slice(const fsdp_device_mesh *mesh,
                                                            const char *const *names, int n,
                                                            fsdp_device_mesh **slice);
FSDP_API void fsdp_device_mesh_destroy(fsdp_device_mesh *mesh); /**< accepts NULL */
FSDP_API int fsdp_device_mesh_ndim(const fsdp_device_mesh *mesh);
FSDP_API int fsdp_device_mesh_size(const fsdp_device_mesh *mesh, int dim);
/** This rank's place along a dimension: get_local_rank. */
FSDP_API int fsdp_device_mesh_coordinate(const fsdp_device_mesh *mesh, int dim);
/** The dimension of that name; -1 if there is none. */
FSDP_API int fsdp_device_mesh_dim(const fsdp_device_mesh *mesh, const char *name);
/** This rank's neighbours along a dimension: get_group. Borrowed; NULL in a world of one. */
FSDP_API fsdp_group *fsdp_device_mesh_group(const fsdp_device_mesh *mesh, int dim);
/** @} */

/** @name DTensor @{ */
typedef enum fsdp_placement_kind {
    FSDP_REPLICATE, /**< every rank holds all of it */
    FSDP_SHARD,     /**< each rank holds a part of dimension `dim` */
    FSDP_PARTIAL,   /**< the ranks' tensors are to be added */
} fsdp_placement_kind;

typedef struct fsdp_placement {
    fsdp_placement_kind kind;
    int dim; /**< of FSDP_SHARD */
} fsdp_placement;

/** Rows [begin, end) of n that `rank` of `world_size` holds: FSDP2's chunk rule. */
FSDP_API void fsdp_shard_rows(int64_t n, int world_size, int rank, int64_t *begin, int64_t *end);

/** Is it a DTensor? */
FSDP_API bool fsdp_is_dtensor(const fsdp_tensor *tensor);
/** @name Of a DTensor; NULL, 0 or FSDP_REPLICATE for an ordinary tensor. Borrowed. @{ */
FSDP_API const int64_t *fsdp_dtensor_shape(const fsdp_tensor *tensor); /**< global */
/** DTensor.device_mesh: what it was made on, which outlives it; over a plain group, a mesh of one
 * dimension without a name, which lives as long as the tensor. */
FSDP_API const fsdp_device_mesh *fsdp_dtensor_device_mesh(const fsdp_tensor *tensor);
FSDP_API int fsdp_dtensor_mesh_ndim(const fsdp_tensor *tensor);
/** [mesh_ndim]: DTensor.placements */
FSDP_API const fsdp_placement *fsdp_dtensor_placements(const fsdp_tensor *tensor);
/** Those of the mesh's first dimension: all there is on a mesh of one. @{ */
FSDP_API fsdp_group *fsdp_dtensor_group(const fsdp_tensor *tensor);
FSDP_API fsdp_placement fsdp_dtensor_placement(const fsdp_tensor *tensor);
/** @} */
/** @} */

/**
 * Make `local` (this rank's part) a DTensor over the ranks of `group`.
 * @param group borrowed: it must outlive the tensor
 * @param shape [ndim of local] global
 * @return FSDP_ERR_INVALID if local's shape is not this rank's part
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_dtensor_from_local(fsdp_tensor *local, fsdp_group *group,
                                                             fsdp_placement placement,
                                                             const int64_t *shape);
/**
 * The same over a mesh: DTensor.from_local(local, mesh, placements).
 * @param mesh       borrowed: it must outlive the tensor
 * @param placements one for each dimension of the mesh
 */
FSDP_API FSDP_MUST_CHECK fsdp_status
fsdp_dtensor_from_local_on_mesh(fsdp_tensor *local, const fsdp_device_mesh *mesh,
                                const fsdp_placement *placements, const int64_t *shape);
/**
 * DTensor.to_local(): this rank's part as an ordinary tensor over the same memory. An ordinary
 * tensor is its own part. Parameters are written through fsdp_parameter_local() itself, which notes
 * that they have values.
 *
 * @param tensor contiguous
 * @param local  out: new reference
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_dtensor_to_local(fsdp_tensor *tensor,
                                                           fsdp_tensor **local);
/**
 * distribute_tensor: this rank's part of `tensor`, which every rank has whole and equal; no
 * communication. Partial: the first rank of the dimension keeps it, the others get zeros.
 *
 * @param tensor contiguous; a DTensor that lies so already is its own part
 * @param out    new reference, contiguous, dtype of tensor
 * @return FSDP_ERR_INVALID for a DTensor on another mesh or with other placements, which
 *         fsdp_redistribute() changes, and for a dimension that the tensor has not
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_distribute_tensor(fsdp_tensor *tensor,
                                                            const fsdp_device_mesh *mesh,
                                                            const fsdp_placement *placements,
                                                            fsdp_tensor **out);
/**
 * The same tensor with other placements on its mesh: DTensor.redistribute. Collective. What is
 * partial is added in rank order, in float32 where it is bfloat16 or float16.
 *
 * @param tensor     a DTensor, contiguous
 * @param placements [mesh_ndim]
 * @param out        new reference; `tensor` itself if nothing changes
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_redistribute(fsdp_tensor *tensor,
                                                       const fsdp_placement *placements,
                                                       fsdp_tensor **out);
/**
 * The whole tensor on every rank, contiguous, dtype of local. Collective. An ordinary tensor is
 * its own full tensor (a new reference).
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_full_tensor(fsdp_tensor *tensor, fsdp_tensor **full);
/** @} */

#ifdef __cplusplus
}
#endif
