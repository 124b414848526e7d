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
    FSDP_REDUCE_AVG, /**< sum, then division by world_size */
    FSDP_REDUCE_MAX,
    FSDP_REDUCE_MIN,
} fsdp_reduce_op;

/**
 * torch.distributed.init_process_group: join the job that this process belongs to. Reads RANK,
 * WORLD_SIZE, LOCAL_RANK and the variables that `fsdp launch` sets. Without them the group is a
 * world of one, unless srun or mpirun started several processes, which is an error.
 *
 * FSDP_TIMEOUT_S (default 600) is the number of seconds that a rank waits for a peer that does not
 * arrive. FSDP_STALL_S (default 4; 0: no limit) is the number of seconds that it waits for a peer
 * whose process is stopped, by SIGSTOP or a debugger. Each rank that is a process has a thread that
 * signals to its peers twice a second that it is running.
 *
 * @param backend "shm" or NULL, with the same effect. In a world of one, the transport is "local"
 *                instead
 * @param group   out: owned by the caller, ended by fsdp_destroy_process_group()
 * @return FSDP_ERR_INVALID for a malformed environment; FSDP_ERR_UNSUPPORTED if another launcher
 *         started the ranks; FSDP_ERR_TIMEOUT if peers do not arrive; FSDP_ERR_COMM if a peer has
 *         failed.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_init_process_group(const char *backend,
                                                             fsdp_group **group);

/**
 * Leave the group. Accepts NULL. A rank that leaves without calling fsdp_group_abort() leaves
 * normally: its peers do not treat it as failed.
 */
FSDP_API void fsdp_destroy_process_group(fsdp_group *group);

/** The function that fsdp_run_ranks() calls on each rank. */
typedef fsdp_status fsdp_rank_fn(fsdp_group *group, void *arg);

/**
 * Run `world_size` ranks as threads of this process over the "threads" transport. Each thread calls
 * body(group, arg). For tests, and for debugging a training program in one process.
 *
 * @param status out, [world_size]: what body returned on each rank; may be NULL
 * @return the first failure in rank order, with its message
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_run_ranks(int world_size, fsdp_rank_fn *body, void *arg,
                                                    fsdp_status *status);

/**
 * MPI_Comm_split, or torch.distributed.new_subgroups_by_enumeration: create a group of those ranks
 * of `parent` that pass the same color, ordered by key, then by rank. Collective over parent. If
 * the parent or the new group fails, the other one fails, too. Error messages call a rank by its
 * rank in the world.
 *
 * @param color >= 0, or negative: this rank joins no group and gets NULL
 * @param group out: owned by the caller, ended by fsdp_destroy_process_group(); it may outlive
 *              parent
 * @return FSDP_ERR_UNSUPPORTED if parent has already been split 15 times, or is itself the result
 *         of four nested splits
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_group_split(fsdp_group *parent, int color, int key,
                                                      fsdp_group **group);

/** For a NULL group, this and the next three functions describe a world of one: rank 0 of 1. */
FSDP_API int fsdp_group_rank(const fsdp_group *group);
FSDP_API int fsdp_group_world_size(const fsdp_group *group);
/** Get this rank's index among the ranks of this host, and the number of ranks of this host. */
FSDP_API int fsdp_group_local_rank(const fsdp_group *group);
FSDP_API int fsdp_group_local_world_size(const fsdp_group *group);
/** "local" (world of one), "threads" or "shm"; static storage. */
FSDP_API const char *fsdp_group_backend(const fsdp_group *group);

/** Wait until all ranks have made this call. Collective. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_barrier(fsdp_group *group);

/**
 * Combine `buf` [count] of dtype element-wise over the ranks, in rank order, so all ranks get the
 * same bits. The result replaces `buf` on every rank. dtype may be float32, float64, int64 or
 * int32. Use it for scalars and small arrays; gradients are reduced by other code.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_all_reduce(fsdp_group *group, void *buf, size_t count,
                                                     fsdp_dtype dtype, fsdp_reduce_op op);

/** Copy send [bytes] of each rank to recv [world_size * bytes] on every rank, in rank order.
 * `bytes` may be 0. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_all_gather(fsdp_group *group, const void *send,
                                                     size_t bytes, void *recv);

/**
 * Reduce `send` [world_size * count] element-wise over the ranks. The values of the ranks are
 * combined pairwise, as a binary tree in rank order. Rank r gets slice r of the result in `recv`
 * [count]. `recv` may be send + rank * count.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_reduce_scatter(fsdp_group *group, const float *send,
                                                         float *recv, size_t count,
                                                         fsdp_reduce_op op);

/** Copy buf [bytes] of rank `root` to all ranks. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_broadcast(fsdp_group *group, void *buf, size_t bytes,
                                                    int root);

/** Kinds of collective work, for counters and messages. */
typedef enum fsdp_comm_kind {
    FSDP_KIND_ALL_GATHER,     /**< the gather of a unit; fsdp_all_gather() */
    FSDP_KIND_REDUCE_SCATTER, /**< the reduction of a unit's gradients; fsdp_reduce_scatter() */
    FSDP_KIND_WRITE_SHARD,    /**< a rank writes its rows (optimizer, init, load), or casts them for
                                   its peers to read */
    FSDP_KIND_GRADIENT,       /**< backward writes this rank's gradients of a unit */
    FSDP_KIND_ALL_REDUCE,
    FSDP_KIND_BROADCAST,
    FSDP_KIND_BARRIER,
    FSDP_KIND_STATE_DICT,
    FSDP_KIND_BUFFER, /**< the creation of memory that all ranks share */
    FSDP_KIND_COUNT,
} fsdp_comm_kind;

/** "all_gather", "reduce_scatter", ...; static storage. "unknown" for any other value. */
FSDP_API const char *fsdp_comm_kind_name(fsdp_comm_kind kind);

/** What this rank has done on one group since the group was created. Groups that were split from it
 * have their own counters. */
typedef struct fsdp_comm_counters {
    uint64_t calls[FSDP_KIND_COUNT];         /**< number of collectives; an all-gather is counted
                                                  when its result is read */
    uint64_t logical_bytes[FSDP_KIND_COUNT]; /**< size of the whole tensors that these collectives
                                                  would communicate in FSDP2, even if no bytes are
                                                  copied here */
    int64_t wait_ns[FSDP_KIND_COUNT];        /**< time this rank spent waiting for peers */
    uint64_t moved_bytes; /**< bytes that were copied between ranks; units whose ranks share a host
                               add nothing */
} fsdp_comm_counters;

/** Get a copy of the counters; the difference of two copies is the work between them. In a world of
 * one, all counters stay 0. */
FSDP_API fsdp_comm_counters fsdp_group_get_counters(const fsdp_group *group);
/** Return the sum of wait_ns over all kinds. */
FSDP_API int64_t fsdp_comm_counters_wait_ns(const fsdp_comm_counters *counters);

/**
 * Report to all peers that this rank has failed. The message is its fsdp_last_error(). The current
 * and later calls of the peers on the group fail with FSDP_ERR_COMM and a message that names this
 * rank and the step, unit and call in which it failed.
 */
FSDP_API void fsdp_group_abort(fsdp_group *group, fsdp_status status);

/**
 * Get the default number of threads of a rank (fsdp_device_options.threads): the number of cores
 * that the rank may use, divided by the number of ranks that may use the same cores. It is at least
 * 1 and at most the CPU quota of a container. Collective.
 * @param group keeps the number for its waits: a rank that waits for a peer spins only if there is
 *              a core for each thread of all ranks. NULL: one rank
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_default_threads(fsdp_group *group, int *threads);

#ifdef __cplusplus
}
#endif
