/* `fsdp bench collectives`: the work of one rank. Each collective is timed for each size in two
 * ways (broadcast only in the second one). "shared" is what units do: the ranks exchange data in
 * memory that all of them see. "copied" is the function of <fsdp/comm.h>: the result is in the
 * rank's own memory. For comparison, all ranks run memcpy at the same time.
 *
 * Note [Bytes of a collective]. Bytes are counted as in nccl-tests: the size of a rank's input or
 * of its result, whichever is larger. This is the whole result of an all-gather, the whole input of
 * a rank in a reduce-scatter, and the buffer of an all-reduce or a broadcast. Elements are float32.
 *
 * In the shared all_gather, each rank copies its rows into the shared buffer, which all ranks may
 * then read. Units do this when they cast parameters. For the shared reduce_scatter, the gradients
 * are already in the shared gradient buffers, because backward writes them there, and each rank
 * sums its own rows over all buffers. In the shared all_reduce, which units use between replicas,
 * each rank copies the whole input into its own lane and then sums over all lanes. */
#pragma once
#include <fsdp/comm.h>
#include <fsdp/tensor.h>

typedef struct fsdp_bench_collectives_config {
    int64_t min_bytes, max_bytes; /* > 0; rounded down to a multiple of 64 bytes per rank, but not
                                     to 0 */
    int factor;                   /* > 1; ratio of each size to the previous one */
    double seconds;               /* > 0; minimum time for each collective and size */
    const char *isa;              /* NULL: the best instruction set */
} fsdp_bench_collectives_config;

typedef struct fsdp_bench_collective {
    const char *collective; /* "memcpy", "all_gather", ...; static */
    const char *how;        /* "shared", "copied"; static */
    int64_t bytes;
    double seconds;        /* time of one call on the slowest rank; median over rounds */
    double memcpy_seconds; /* time of a memcpy of the same number of bytes */
} fsdp_bench_collective;

typedef fsdp_status fsdp_bench_collective_fn(void *arg, const fsdp_bench_collective *measured);

/* The number of measurements for each size. */
enum {
    FSDP_BENCH_COLLECTIVES = 8
};
/* The name of measurement `i` and its method ("shared" or "copied"), for headings. */
const char *fsdp_bench_collective_name(int i); /* "memcpy" first */
const char *fsdp_bench_collective_method(int i);

/* Run all measurements. Collective. For each size, in ascending order, rank 0 calls `each` for
 * every measurement `i`. Returns FSDP_ERR_NOMEM on all ranks if buffers of max_bytes do not fit
 * into the host's memory, and FSDP_ERR_STATE if the result of a collective is wrong. */
FSDP_MUST_CHECK fsdp_status fsdp_bench_collectives(const fsdp_bench_collectives_config *config,
                                                   fsdp_group *group,
                                                   fsdp_bench_collective_fn *each, void *arg);
