/**
 * @file
 * Device meshes, and DTensors, which are tensors that are distributed over the ranks of a mesh.
 *
 * Each rank holds its part as a local tensor, together with the mesh, the placements and the shape
 * of the whole tensor. Shard(d) splits dimension d as FSDP2 splits rows: the first rank gets the
 * first ceil(size / ranks) entries, the second rank the next ones, and so on. The last ranks may
 * get fewer or none. If several dimensions of the mesh shard one dimension of the tensor, the first
 * of them splits it first, and the next one splits the parts.
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
 * the mesh has several dimensions, `group` is split once for each dimension (fsdp_group_split()).
 *
 * @param group borrowed: must outlive the mesh. NULL: a world of one
 * @param ndim  1 to FSDP_MAX_MESH_DIMS
 * @param shape [ndim] sizes, whose product must be the number of ranks
 * @param names [ndim], e.g. {"replicate", "shard"}, copied; NULL: none
 * @param mesh  out: owned by the caller. Release all tensors on the mesh before
 *              fsdp_device_mesh_destroy()
 * @return FSDP_ERR_INVALID for an invalid shape or name (the message contains it);
 *         FSDP_ERR_UNSUPPORTED if the ranks are on several hosts, and a dimension has groups with
 *         different numbers of ranks on a host; the errors of fsdp_group_split()
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_device_mesh_create(fsdp_group *group, int ndim,
                                                             const int *shape,
                                                             const char *const *names,
                                                             fsdp_device_mesh **mesh);
/**
 * mesh["shard"], mesh["replicate", "shard"]: create a mesh that has only the dimensions `names` of
 * `mesh`. Its ranks are this rank and the ranks whose positions differ from this rank's only along
 * `names`. The slice uses the groups of `mesh`, so this function does not communicate, and `mesh`
 * must outlive the slice.
 *
 * @param names [n] names of dimensions of `mesh`, in the same order as in `mesh`
 * @param slice out: owned by the caller, destroyed with fsdp_device_mesh_destroy()
 * @return FSDP_ERR_INVALID for an unknown name (the message lists the known names), or if the order
 *         of the names is not that of `mesh`
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_device_mesh_slice(const fsdp_device_mesh *mesh,
                                                            const char *const *names, int n,
                                                            fsdp_device_mesh **slice);
FSDP_API void fsdp_device_mesh_destroy(fsdp_device_mesh *mesh); /**< accepts NULL */
FSDP_API int fsdp_device_mesh_ndim(const fsdp_device_mesh *mesh);
FSDP_API int fsdp_device_mesh_size(const fsdp_device_mesh *mesh, int dim);
/** Return this rank's position along dimension `dim`, like DeviceMesh.get_local_rank(). */
FSDP_API int fsdp_device_mesh_coordinate(const fsdp_device_mesh *mesh, int dim);
/** Return the index of the dimension called `name`; -1 if there is none. */
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
    int dim; /**< for FSDP_SHARD: the dimension of the tensor */
} fsdp_placement;

/** Get the rows [*begin, *end) that `rank` has if n rows are split over world_size ranks as in
 * FSDP2. */
FSDP_API void fsdp_shard_rows(int64_t n, int world_size, int rank, int64_t *begin, int64_t *end);

/** Return true if `tensor` is a DTensor. */
FSDP_API bool fsdp_is_dtensor(const fsdp_tensor *tensor);
/**
 * @name Properties of a DTensor
 * If the tensor is not a DTensor, these functions return NULL, 0 or FSDP_REPLICATE, unless their
 * comments say otherwise. Pointers that they return are borrowed. @{
 */
/** Get the shape of the whole tensor. For an ordinary tensor, this is its own shape. */
FSDP_API const int64_t *fsdp_dtensor_shape(const fsdp_tensor *tensor);
/** DTensor.device_mesh: get the tensor's mesh. The result for a tensor that was created on a mesh
 * is that mesh. The mesh must outlive the tensor. A tensor that was created on a group
 * (fsdp_dtensor_from_local()) has a mesh of one unnamed dimension. The tensor owns this mesh. */
FSDP_API const fsdp_device_mesh *fsdp_dtensor_device_mesh(const fsdp_tensor *tensor);
FSDP_API int fsdp_dtensor_mesh_ndim(const fsdp_tensor *tensor);
/** DTensor.placements: get the placements [mesh_ndim]. */
FSDP_API const fsdp_placement *fsdp_dtensor_placements(const fsdp_tensor *tensor);
/** Get the group of the mesh's first dimension. */
FSDP_API fsdp_group *fsdp_dtensor_group(const fsdp_tensor *tensor);
/** Get the placement on the mesh's first dimension. */
FSDP_API fsdp_placement fsdp_dtensor_placement(const fsdp_tensor *tensor);
/** @} */

/**
 * Make `local` a DTensor over the ranks of `group`. `local` is this rank's part.
 * @param group borrowed: must outlive the tensor
 * @param shape [ndim] shape of the whole tensor; ndim is that of `local`
 * @return FSDP_ERR_INVALID if `group` is NULL, if `local` is a scalar, if `local` does not have the
 *         dimension that the placement names, or if the shape of `local` is not that of this rank's
 *         part
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_dtensor_from_local(fsdp_tensor *local, fsdp_group *group,
                                                             fsdp_placement placement,
                                                             const int64_t *shape);
/**
 * DTensor.from_local(local, mesh, placements): make `local` a DTensor over a mesh. `local` is this
 * rank's part.
 * @param mesh       borrowed: must outlive the tensor
 * @param placements [ndim of the mesh]
 */
FSDP_API FSDP_MUST_CHECK fsdp_status
fsdp_dtensor_from_local_on_mesh(fsdp_tensor *local, const fsdp_device_mesh *mesh,
                                const fsdp_placement *placements, const int64_t *shape);
/**
 * DTensor.to_local(): get this rank's part as an ordinary tensor that shares the DTensor's memory.
 * If `tensor` is an ordinary tensor, get `tensor` itself. Do not use the result to write a
 * parameter. Write the tensor of fsdp_parameter_local() instead, because only a write of that
 * tensor records that the parameter has values.
 *
 * @param tensor contiguous
 * @param local  out: new reference
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_dtensor_to_local(fsdp_tensor *tensor,
                                                           fsdp_tensor **local);
/**
 * distribute_tensor(): create a DTensor with this rank's part of `tensor`. Every rank passes the
 * same whole tensor, so this does not communicate. With FSDP_PARTIAL, the part of the first rank
 * along the mesh dimension has the values of `tensor`, and the parts of the other ranks are zeros.
 *
 * @param tensor contiguous. If it is already a DTensor with this mesh and these placements, the
 *               result is `tensor` itself
 * @param out    new reference, contiguous, with the dtype of `tensor`
 * @return FSDP_ERR_INVALID if `tensor` is a DTensor on another mesh or with other placements (use
 *         fsdp_redistribute()); FSDP_ERR_INVALID also if `tensor` does not have the dimension of a
 *         placement
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_distribute_tensor(fsdp_tensor *tensor,
                                                            const fsdp_device_mesh *mesh,
                                                            const fsdp_placement *placements,
                                                            fsdp_tensor **out);
/**
 * DTensor.redistribute(): create a DTensor with the same whole tensor and the same mesh, but with
 * other placements. Collective. Parts with FSDP_PARTIAL are added in rank order; bfloat16 and
 * float16 parts are added in float32.
 *
 * @param tensor     a DTensor, contiguous
 * @param placements [mesh_ndim]
 * @param out        new reference, to `tensor` itself if the placements do not change, otherwise to
 *                   a new tensor
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_redistribute(fsdp_tensor *tensor,
                                                       const fsdp_placement *placements,
                                                       fsdp_tensor **out);
/**
 * DTensor.full_tensor(): get the whole tensor on every rank, contiguous, in the dtype of the local
 * tensor. Collective. If `tensor` is an ordinary tensor or is replicated, get a new reference to
 * `tensor` itself. If such a tensor has data only during a read (fsdp_tensor_begin_read()), get a
 * copy instead.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_full_tensor(fsdp_tensor *tensor, fsdp_tensor **full);
/** @} */

#ifdef __cplusplus
}
#endif
