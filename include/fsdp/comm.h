/**
 * @file
 * Process groups, which are the ranks that train together, and collectives for small data.
 *
 * In production, a rank is a process. Either `fsdp launch` has started it (transport "shm"), or
 * mpirun, mpiexec or srun has (transport "shm" on one host, "mpi" on several). In tests, a rank is
 * a thread (transport "threads"). The same code runs in processes and in threads.
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
 * WORLD_SIZE, LOCAL_RANK and other environment variables that `fsdp launch` sets. If Open MPI or
 * MPICH has started this process together with others, the job consists of all of these processes,
 * on one host or several. This function then loads the MPI library, initializes MPI unless the
 * program has done so, and sets the variables RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE and
 * GROUP_RANK. If this function has initialized MPI, MPI is finalized when the process ends;
 * otherwise the program must finalize it. If no launcher's variables are set, the group has only
 * this rank (a world of one). There is one exception: if srun has started several processes without
 * an MPI, this function returns an error.
 *
 * In a collective, a rank waits at most FSDP_TIMEOUT_S seconds (default 600) for a peer that does
 * not arrive. If the process of the peer is stopped, e.g. by SIGSTOP or a debugger, the rank waits
 * at most FSDP_STALL_S seconds (default 4; 0: FSDP_TIMEOUT_S applies). A rank knows that a peer is
 * stopped because it gets no heartbeats: each process has a thread that sends a heartbeat to the
 * peers twice a second. For peers on other hosts, the limit is 1.5 times FSDP_STALL_S.
 *
 * @param backend NULL: as the environment variables say; "shm": started by `fsdp launch`; "mpi":
 *                started by MPI; "local": a world of one, which always has this transport
 * @param group   out: owned by the caller, destroyed with fsdp_destroy_process_group()
 * @return FSDP_ERR_INVALID if an environment variable is wrong; FSDP_ERR_UNSUPPORTED if another
 *         launcher started the ranks, if the backend is unknown, or if no MPI library belongs to
 *         the launcher; FSDP_ERR_TIMEOUT if peers do not arrive; FSDP_ERR_COMM if a peer has failed
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_init_process_group(const char *backend,
                                                             fsdp_group **group);

/**
 * Leave the group and free it. Accepts NULL. The peers treat this rank as failed only if it has
 * called fsdp_group_abort().
 */
FSDP_API void fsdp_destroy_process_group(fsdp_group *group);

/** The function that fsdp_run_ranks() calls on each rank. */
typedef fsdp_status fsdp_rank_fn(fsdp_group *group, void *arg);

/**
 * Run `world_size` ranks as threads of this process, with the transport "threads". Each thread
 * calls body(group, arg). Use it for tests, and to debug a training program in one process.
 *
 * @param status out, [world_size]: what body returned on each rank; may be NULL
 * @return the earliest failure that any rank has reported; fsdp_last_error() has the message of
 *         that failure
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_run_ranks(int world_size, fsdp_rank_fn *body, void *arg,
                                                    fsdp_status *status);

/**
 * MPI_Comm_split, or torch.distributed.new_subgroups_by_enumeration: split `parent` into new
 * groups. The ranks that pass the same color form one group. Their order in the new group is the
 * order of their keys. Ranks whose keys are equal are in the order of their ranks in `parent`.
 * Collective over `parent`. A failure of `parent` or of one of the new groups is a failure of
 * `parent` and all of the new groups. Error messages always give the rank in the world.
 *
 * @param color >= 0; negative: this rank joins no group, and *group is set to NULL
 * @param group out: owned by the caller, destroyed with fsdp_destroy_process_group(); it may
 *              outlive `parent`
 * @return FSDP_ERR_UNSUPPORTED if `parent` has already been split 15 times, or if `parent` is
 *         itself the result of four nested splits
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_group_split(fsdp_group *parent, int color, int key,
                                                      fsdp_group **group);

/** Return this rank's index in the group; 0 if `group` is NULL. */
FSDP_API int fsdp_group_rank(const fsdp_group *group);
/** Return the number of ranks of the group; 1 if `group` is NULL. */
FSDP_API int fsdp_group_world_size(const fsdp_group *group);
/** Return this rank's index among the ranks of the group that are on this host; 0 if `group` is
 * NULL. */
FSDP_API int fsdp_group_local_rank(const fsdp_group *group);
/** Return the number of ranks of the group that are on this host; 1 if `group` is NULL. */
FSDP_API int fsdp_group_local_world_size(const fsdp_group *group);
/** Return the group's transport: "local" (one rank), "threads", "shm" or "mpi"; static storage. */
FSDP_API const char *fsdp_group_backend(const fsdp_group *group);

/** Wait until all ranks have made this call. Collective. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_barrier(fsdp_group *group);

/**
 * Combine the arrays `buf` [count] of all ranks, element by element and in rank order. The result
 * replaces `buf` on every rank and has the same bits on all of them. `dtype` may be float32,
 * float64, int64 or int32. Use this function for scalars and small arrays. Do not use it for the
 * gradients of units, which backward reduces itself.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_all_reduce(fsdp_group *group, void *buf, size_t count,
                                                     fsdp_dtype dtype, fsdp_reduce_op op);

/** Give every rank the data of all ranks: copy `send` [bytes] of each rank, in rank order, to
 * `recv` [world_size * bytes]. `bytes` may be 0. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_all_gather(fsdp_group *group, const void *send,
                                                     size_t bytes, void *recv);

/**
 * Combine the arrays `send` [world_size * count] of all ranks, element by element. The values of
 * the ranks are combined pairwise, as a binary tree in rank order. Rank r gets elements [r * count,
 * (r + 1) * count) of the result in `recv` [count]. On rank r, `recv` may be send + r * count.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_reduce_scatter(fsdp_group *group, const float *send,
                                                         float *recv, size_t count,
                                                         fsdp_reduce_op op);

/** Copy `buf` [bytes] of rank `root` to `buf` of all ranks. */
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

/** Return the name of a kind: "all_gather", "reduce_scatter", ...; "unknown" if `kind` is no kind.
 * Static storage. */
FSDP_API const char *fsdp_comm_kind_name(fsdp_comm_kind kind);

/** What this rank has done in one group since the group was created. If the group was split, each
 * of the new groups has counters of its own. */
typedef struct fsdp_comm_counters {
    uint64_t calls[FSDP_KIND_COUNT];         /**< number of collectives; an all-gather is counted
                                                  when its result is read */
    uint64_t logical_bytes[FSDP_KIND_COUNT]; /**< bytes of the whole tensors that the counted
                                                collectives have gathered or reduced. FSDP2 would
                                                send all of these bytes. This library does not copy
                                                bytes that are in shared memory */
    int64_t wait_ns[FSDP_KIND_COUNT];        /**< nanoseconds that this rank has waited for peers */
    uint64_t moved_bytes; /**< bytes that were copied between ranks; a unit whose ranks are on one
                             host adds nothing */
} fsdp_comm_counters;

/** Get a copy of the counters. To measure a part of a program, get one copy before that part and
 * another one after it; the differences are what the part has done. In a group of one rank, all
 * counters stay 0. */
FSDP_API fsdp_comm_counters fsdp_group_get_counters(const fsdp_group *group);
/** Return the sum of wait_ns over all kinds. */
FSDP_API int64_t fsdp_comm_counters_wait_ns(const fsdp_comm_counters *counters);

/**
 * Report to all peers that this rank has failed with `status` and the message of fsdp_last_error().
 * If a peer is in a call on the group, or makes one later, the call returns FSDP_ERR_COMM. The
 * message on the peer names this rank, and the step, unit and call in which this rank failed.
 */
FSDP_API void fsdp_group_abort(fsdp_group *group, fsdp_status status);

/**
 * Compute a default for fsdp_device_options.threads, the number of threads of this rank: the number
 * of cores that this rank may use, divided by the number of ranks that may use the same cores. If a
 * container limits the CPU time, the result is at most this rank's share of that limit. The result
 * is at least 1. The call also changes how ranks of the group wait: from now on, a rank that waits
 * for a peer spins only if every thread of every rank has a core of its own. Collective.
 * @param group NULL: one rank
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_default_threads(fsdp_group *group, int *threads);

#ifdef __cplusplus
}
#endif
