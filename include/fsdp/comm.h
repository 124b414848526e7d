/**
 * @file
 * Process groups: the ranks that train together, and small collectives among them.
 *
 * A rank is a process in production (transport "shm", started by `fsdp launch`) and a thread in
 * tests (transport "threads"); both run the same code.
 */
#pragma once
#include <fsdp/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fsdp_group fsdp_group;

typedef enum fsdp_reduce_op {
    FSDP_REDUCE_SUM,
    FSDP_REDUCE_AVG, /**< summed, then divided by world_size */
    FSDP_REDUCE_MAX,
    FSDP_REDUCE_MIN,
} fsdp_reduce_op;

/**
 * Join the job that this process belongs to, as torch.distributed.init_process_group does: reads
 * RANK, WORLD_SIZE, LOCAL_RANK and what `fsdp launch` passes. Without them: a world of one.
 *
 * @param backend "shm", or NULL for the best that fits
 * @param group   out: owned by the caller, ended by fsdp_destroy_process_group()
 * @return FSDP_ERR_INVALID for a malformed environment; FSDP_ERR_TIMEOUT if peers do not come;
 *         FSDP_ERR_COMM if one has failed.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_init_process_group(const char *backend,
                                                             fsdp_group **group);

/**
 * Leave the group. Accepts NULL. A rank that leaves without having called
 * fsdp_group_abort() has said goodbye: peers do not take it for dead.
 */
FSDP_API void fsdp_destroy_process_group(fsdp_group *group);

/**
 * Run `world_size` ranks as threads of this process over the "threads" transport: each calls
 * body(group, arg) on a thread of its own. For tests and for debugging a training program in one
 * process.
 *
 * @param status out, [world_size]: what body returned on each rank; may be NULL
 * @return the first failure by rank order, with its message
 */
typedef fsdp_status fsdp_rank_fn(fsdp_group *group, void *arg);
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_run_ranks(int world_size, fsdp_rank_fn *body, void *arg,
                                                    fsdp_status *status);

FSDP_API int fsdp_group_rank(const fsdp_group *group);
FSDP_API int fsdp_group_world_size(const fsdp_group *group);
/** Rank among the ranks of this host, and their number. */
FSDP_API int fsdp_group_local_rank(const fsdp_group *group);
FSDP_API int fsdp_group_local_world_size(const fsdp_group *group);
/** "local" (world of one), "threads" or "shm"; static storage. */
FSDP_API const char *fsdp_group_backend(const fsdp_group *group);

/** Wait until all ranks have called it. Collective. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_barrier(fsdp_group *group);

/**
 * Combine `buf` [count] of dtype element-wise over the ranks, in rank order, so that every rank
 * gets the same bits; result in place on every rank. float32, float64, int64 and int32.
 * For scalars and small arrays: gradients do not go this way.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_all_reduce(fsdp_group *group, void *buf, size_t count,
                                                     fsdp_dtype dtype, fsdp_reduce_op op);

/** recv [world_size * bytes] = send [bytes] of each rank, in rank order. Any size; may be 0. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_all_gather(fsdp_group *group, const void *send,
                                                     size_t bytes, void *recv);

/**
 * Reduce `send` [world_size * count] element-wise over the ranks, as the aligned binary tree in
 * rank order; rank r keeps slice r in `recv` [count]. float32. In place if recv == send + rank *
 * count.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_reduce_scatter(fsdp_group *group, const float *send,
                                                         float *recv, size_t count,
                                                         fsdp_reduce_op op);

/** buf [bytes] of rank `root` to all. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_broadcast(fsdp_group *group, void *buf, size_t bytes,
                                                    int root);

/**
 * Tell all peers that this rank has failed with its last error; their pending and later calls on
 * the group fail with FSDP_ERR_COMM and a message that names this rank, step, unit and call.
 */
FSDP_API void fsdp_group_abort(fsdp_group *group, fsdp_status status);

#ifdef __cplusplus
}
#endif
