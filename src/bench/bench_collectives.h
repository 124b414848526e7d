/* `fsdp bench collectives`: what one rank does. Each collective runs for a while at each size, the
 * way that units take (`shared`: the result is in memory that all ranks see) and the way of
 * <fsdp/comm.h> (`copied`: the result is in the rank's own memory), and beside them memcpy, by all
 * ranks at the same time.
 *
 * Note [Bytes of a collective]. As nccl-tests count them: of the larger of the two buffers that a
 * rank gives or gets. All-gather: of the whole result; reduce-scatter: of what a rank has to give;
 * all-reduce and broadcast: of the buffer. Elements are float32.
 *
 * all_gather, shared: own rows are copied into the shared buffer, which all may then read, as where
 * units are cast. reduce_scatter, shared: gradients lie in the shared slots already, since backward
 * writes them there; own rows are summed over them. all_reduce, shared: as between replicas, the
 * whole is copied into an own lane, then summed over all. */
#pragma once
#include <fsdp/comm.h>
#include <fsdp/tensor.h>

typedef struct fsdp_bench_collectives_config {
    int64_t min_bytes, max_bytes; /* > 0; rounded to 64 bytes for each rank */
    int factor;                   /* > 1, from one size to the next */
    double seconds;               /* > 0, for each collective and size, at least */
    const char *isa;              /* NULL: the best */
} fsdp_bench_collectives_config;

typedef struct fsdp_bench_collective {
    const char *collective; /* "memcpy", "all_gather", ...; static */
    const char *how;        /* "shared", "copied"; static */
    int64_t bytes;
    double seconds;        /* of one, the slowest rank's; median of rounds */
    double memcpy_seconds; /* of as many bytes */
} fsdp_bench_collective;

typedef fsdp_status fsdp_bench_collective_fn(void *arg, const fsdp_bench_collective *measured);

/* How many measurements each size gives, and which: for headings. */
enum {
    FSDP_BENCH_COLLECTIVES = 8
};
const char *fsdp_bench_collective_name(int i); /* "memcpy" first */
const char *fsdp_bench_collective_how(int i);

/* Collective. `each` hears of all of them on rank 0, by size, then in that order. FSDP_ERR_NOMEM,
 * on all ranks, if buffers of max_bytes do not fit into the host's memory; FSDP_ERR_STATE if a
 * collective gave a wrong result. */
FSDP_MUST_CHECK fsdp_status fsdp_bench_collectives(const fsdp_bench_collectives_config *config,
                                                   fsdp_group *group,
                                                   fsdp_bench_collective_fn *each, void *arg);
