/* `fsdp bench collectives`: the work of one rank. Each collective is timed for each size, in two
 * ways. "shared" is the way in which FSDP units (fsdp_fully_shard()) communicate: the ranks
 * exchange data in memory that all of them map. "copied" is the function of <fsdp/comm.h>, whose
 * result is in the rank's own memory. A broadcast is timed only as "copied". For comparison, memcpy
 * is timed, with all ranks running it at the same time.
 *
 * Note [Bytes of a collective]. Bytes are counted as in nccl-tests: the size of a rank's input or
 * of its result, whichever is larger. For an all-gather, this is the result. For a reduce-scatter,
 * it is the whole input of a rank. For an all-reduce or a broadcast, it is the buffer. Elements are
 * float32. `count` is the number of elements that one rank contributes to an all-gather, or gets
 * from a reduce-scatter. For other collectives, it is the number of elements of the buffer.
 *
 * The algorithm bandwidth is the size divided by the time. The bus bandwidth is what each rank's
 * link would have to carry if ranks were connected by a ring. It is the algorithm bandwidth times a
 * factor. With n ranks, this factor is (n - 1) / n for an all-gather and a reduce-scatter, 2 (n -
 * 1) / n for an all-reduce, and 1 for a broadcast and for memcpy.
 *
 * The "shared" collectives use a shared buffer in the same way as units:
 *
 * - all_gather: each rank copies its rows into the shared buffer. All ranks may then read the rows
 *   of all ranks there. Units do this when they cast parameters.
 * - reduce_scatter: each rank has a part of the shared buffer, its lane, for the gradients of all
 *   rows. The gradients are there before the call, because backward writes them there. Each rank
 *   then sums its own rows over all lanes.
 * - all_reduce: each rank copies its whole input into its lane, and then sums all rows over all
 *   lanes. Units do this between replicas. */
#pragma once
#include <fsdp/comm.h>
#include <fsdp/tensor.h>

typedef struct fsdp_bench_collectives_config {
    /* The smallest and the largest size, > 0. Each size is rounded down to a multiple of 64 bytes
     * per rank. A size below 64 bytes per rank becomes 64 bytes per rank. */
    int64_t min_bytes, max_bytes;
    int factor;      /* > 1; each size is the previous one times this factor */
    double seconds;  /* > 0; each collective is measured for about this long per size */
    const char *isa; /* NULL: the best instruction set */
} fsdp_bench_collectives_config;

typedef struct fsdp_bench_collective {
    const char *collective; /* "memcpy", "all_gather", ...; static string */
    const char *how;        /* "shared" or "copied"; static string */
    const char *redop;      /* "sum" or "none"; static string */
    int root;               /* the root of a broadcast; -1: no root */
    int64_t bytes, count;   /* see Note [Bytes of a collective] */
    double seconds;         /* duration of one call on the slowest rank; median over rounds */
    double memcpy_seconds;  /* duration of a memcpy of `bytes` bytes */
    double algbw, busbw;    /* bytes per second */
    int64_t wrong;          /* elements of the first call's result that are wrong, on all ranks */
} fsdp_bench_collective;

typedef fsdp_status fsdp_bench_collective_fn(void *arg, const fsdp_bench_collective *measured);

/* The number of measurements for each size: memcpy, three collectives in two ways each, and
 * broadcast. */
enum {
    FSDP_BENCH_COLLECTIVES = 8,
    FSDP_BENCH_MAX_SIZES = 64
};
/* Return the name of the collective that is measured by measurement i: "memcpy" if i is 0. */
const char *fsdp_bench_collective_name(int i);
/* Return the way in which measurement i is done: "shared" or "copied". */
const char *fsdp_bench_collective_method(int i);

/* Run all measurements in the order of their numbers, each for all sizes in ascending order.
 * Collective. Rank 0 calls `each` after every measurement of a size. Return FSDP_ERR_NOMEM on all
 * ranks if buffers of max_bytes do not fit into the memory of the host. Return FSDP_ERR_STATE on
 * all ranks, after all measurements, if the result of a collective is wrong. */
FSDP_MUST_CHECK fsdp_status fsdp_bench_collectives(const fsdp_bench_collectives_config *config,
                                                   fsdp_group *group,
                                                   fsdp_bench_collective_fn *each, void *arg);
