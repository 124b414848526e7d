/* `fsdp bench collectives`: the work of one rank. Each collective runs for a while at each size in
 * two ways: as units use it (`shared`: the result is in memory that all ranks see) and as in
 * <fsdp/comm.h> (`copied`: the result is in the rank's own memory). For comparison, all ranks run
 * memcpy at the same time.
 *
 * Note [Bytes of a collective]. Counted as in nccl-tests: the size of the larger of the two buffers
 * that a rank passes or receives. All-gather: the whole result. Reduce-scatter: the whole input of
 * a rank. All-reduce and broadcast: the buffer. Elements are float32.
 *
 * all_gather, shared: each rank copies its rows into the shared buffer, which all ranks may then
 * read, as units do when they cast. reduce_scatter, shared: the gradients are in the shared
 * gradient buffers already, since backward writes them there; each rank sums its own rows over all
 * buffers. all_reduce, shared: as between replicas, each rank copies the whole input into its own
 * lane, then sums over all lanes. */
#pragma once
#include <fsdp/comm.h>
#include <fsdp/tensor.h>

typedef struct fsdp_bench_collectives_config {
    int64_t min_bytes, max_bytes; /* > 0; rounded up to a multiple of 64 bytes per rank */
    int factor;                   /* > 1; ratio of one size to the previous one */
    double seconds;               /* > 0; least time for each collective and size */
    const char *isa;              /* NULL: the best */
} fsdp_bench_collectives_config;

typedef struct fsdp_bench_collective {
    const char *collective; /* "memcpy", "all_gather", ...; static */
    const char *how;        /* "shared", "copied"; static */
    int64_t bytes;
    double seconds;        /* of one call on the slowest rank; median of rounds */
    double memcpy_seconds; /* for a memcpy of as many bytes */
} fsdp_bench_collective;

typedef fsdp_status fsdp_bench_collective_fn(void *arg, const fsdp_bench_collective *measured);

/* Number and indices of the measurements of each size, for headings. */
enum {
    FSDP_BENCH_COLLECTIVES = 8
};
const char *fsdp_bench_collective_name(int i); /* "memcpy" first */
const char *fsdp_bench_collective_how(int i);

/* Collective. On rank 0 `each` is called for every measurement, ordered by size and then as above.
 * FSDP_ERR_NOMEM on all ranks if buffers of max_bytes do not fit into the host's memory;
 * FSDP_ERR_STATE if a collective gave a wrong result. */
FSDP_MUST_CHECK fsdp_status fsdp_bench_collectives(const fsdp_bench_collectives_config *config,
                                                   fsdp_group *group,
                                                   fsdp_bench_collective_fn *each, void *arg);
