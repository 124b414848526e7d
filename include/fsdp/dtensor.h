/**
 * @file
 * DTensor: a tensor with a specification of how it lies over ranks.
 *
 * A rank holds its part as an ordinary (local) tensor that carries a spec: mesh, placement, global
 * shape. Shard(0) cuts rows as FSDP2 does: ceil(rows / world_size) for each rank in order, so the
 * last ranks may hold fewer or none.
 */
#pragma once
#include <fsdp/base.h>
#include <fsdp/comm.h>
#include <fsdp/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum fsdp_placement_kind {
    FSDP_REPLICATE, /**< every rank holds all of it */
    FSDP_SHARD,     /**< each rank holds rows of dimension `dim` */
} fsdp_placement_kind;

typedef struct fsdp_placement {
    fsdp_placement_kind kind;
    int dim; /**< of FSDP_SHARD; only 0 in this version */
} fsdp_placement;

/** Rows [begin, end) of n that `rank` of `world_size` holds: FSDP2's chunk rule. */
FSDP_API void fsdp_shard_rows(int64_t n, int world_size, int rank, int64_t *begin, int64_t *end);

/** Is it a DTensor? */
FSDP_API bool fsdp_is_dtensor(const fsdp_tensor *tensor);
/** @name Of a DTensor; NULL, 0 or FSDP_REPLICATE for an ordinary tensor. Borrowed. @{ */
FSDP_API fsdp_group *fsdp_dtensor_group(const fsdp_tensor *tensor);
FSDP_API fsdp_placement fsdp_dtensor_placement(const fsdp_tensor *tensor);
FSDP_API const int64_t *fsdp_dtensor_shape(const fsdp_tensor *tensor); /**< global */
/** @} */

/**
 * Make `local` (this rank's rows, by fsdp_shard_rows) a DTensor: DTensor.from_local.
 * @param group borrowed: it must outlive the tensor
 * @param shape [ndim of local] global
 * @return FSDP_ERR_INVALID if local's shape is not this rank's part; FSDP_ERR_UNSUPPORTED for a
 *         dimension other than 0.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_dtensor_from_local(fsdp_tensor *local, fsdp_group *group,
                                                             fsdp_placement placement,
                                                             const int64_t *shape);
/**
 * The whole tensor on every rank, contiguous, dtype of local. Collective. An ordinary tensor is
 * its own full tensor (a new reference).
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_full_tensor(fsdp_tensor *tensor, fsdp_tensor **full);

#ifdef __cplusplus
}
#endif
