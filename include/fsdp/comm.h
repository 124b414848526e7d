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
 * RANK, WORLD_SIZE, LOCAL_RANK and what `fsdp launch` passes. Without them: a world of one, but
 * not where srun or mpirun started several processes.
 *
 * FSDP_TIMEOUT_S (600) is how long a rank waits for one that does not come; FSDP_STALL_S (4) how
 * long for one whose process is stopped, by SIGSTOP or a debugger, 0: for ever. Ranks that are
 * processes have a thread that tells the others twice a second that they run.
 *
 * @param backend "shm", or NULL for the best that fits
 * @param group   out: owned by the caller, ended by fsdp_destroy_process_group()
 * @return FSDP_ERR_INVALID for a malformed environment; FSDP_ERR_UNSUPPORTED for ranks of another
 *         launcher; FSDP_ERR_TIMEOUT if peers do not come; FSDP_ERR_COMM if one has failed.
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

/**
 * A group of those ranks of `parent` that give the same color, ordered by key, then by rank: as
 * MPI_Comm_split, and torch.distributed.new_subgroups_by_enumeration. Collective over parent. A
 * failure in either group is one of both, and messages name ranks of the world.
 *
 * @param color >= 0, or negative: this rank joins none and gets NULL
 * @param group out: owned by the caller, ended by fsdp_destroy_process_group(); it may outlive
 *              parent
 * @return FSDP_ERR_UNSUPPORTED if parent was split 15 times already, or is the fourth of a chain
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_group_split(fsdp_group *parent, int color, int key,
                                                      fsdp_group **group);

/** A group of NULL, here and in the next, is a world of one: rank 0 of 1. */
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

/** What ranks do together, as it is counted and named in messages. */
typedef enum fsdp_comm_kind {
    FSDP_KIND_ALL_GATHER,     /**< a unit's unshard; fsdp_all_gather() */
    FSDP_KIND_REDUCE_SCATTER, /**< a unit's gradients; fsdp_reduce_scatter() */
    FSDP_KIND_WRITE_SHARD,    /**< own rows change (optimizer, init, load) or are cast to be read */
    FSDP_KIND_GRADIENT,       /**< backward writes this rank's gradients of a unit */
    FSDP_KIND_ALL_REDUCE,
    FSDP_KIND_BROADCAST,
    FSDP_KIND_BARRIER,
    FSDP_KIND_STATE_DICT,
    FSDP_KIND_BUFFER, /**< making memory that all ranks see */
    FSDP_KIND_COUNT,
} fsdp_comm_kind;

/** "all_gather", "reduce_scatter", ...; static storage. "unknown" for what is no kind. */
FSDP_API const char *fsdp_comm_kind_name(fsdp_comm_kind kind);

/** What this rank did on one group since it was made; groups that were split off count alone. */
typedef struct fsdp_comm_counters {
    uint64_t calls[FSDP_KIND_COUNT];         /**< an all_gather counts once, where it is read */
    uint64_t logical_bytes[FSDP_KIND_COUNT]; /**< of whole collectives, as FSDP2 would run them */
    int64_t wait_ns[FSDP_KIND_COUNT];        /**< time this rank spent waiting for peers */
    uint64_t moved_bytes; /**< that were copied between ranks: units of one host copy none */
} fsdp_comm_counters;

/** A copy of the counters, to be subtracted from a later one. A world of one counts nothing. */
FSDP_API fsdp_comm_counters fsdp_group_get_counters(const fsdp_group *group);
/** Sum of wait_ns over all kinds. */
FSDP_API int64_t fsdp_comm_counters_wait_ns(const fsdp_comm_counters *counters);

/**
 * Tell all peers that this rank has failed with its last error; their pending and later calls on
 * the group fail with FSDP_ERR_COMM and a message that names this rank, step, unit and call.
 */
FSDP_API void fsdp_group_abort(fsdp_group *group, fsdp_status status);

/**
 * How many threads a rank computes with, when nobody says (fsdp_device_options.threads): the cores
 * that it may run on, shared out among the ranks that may run on the same ones, and no more than
 * the CPU quota of a container; at least 1.
 * Collective.
 * @param group told of it: its waits spin only where each thread has a core. NULL: a rank alone
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_default_threads(fsdp_group *group, int *threads);

#ifdef __cplusplus
}
#endif
