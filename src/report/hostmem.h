/* Measures the host memory of a job from outside (Linux). The result is the sum of PSS over a
 * process tree, plus the blocks of memfds that no process has mapped at that moment. A page that
 * several processes map counts once. The blocks of a shared buffer also count while no process maps
 * the buffer.
 *
 * A sample walks the page tables of every process of the tree, one process after the other. The
 * address space of a process is locked while its page tables are walked, for about 10 ms if the
 * process has 3 GiB. So do not take samples during timed steps. */
#pragma once
#include <sys/types.h>

#include <fsdp/base.h>

typedef struct fsdp_hostmem_usage {
    int64_t total_bytes; /* pss_bytes + unmapped_bytes; use it to compare runs */
    int64_t pss_bytes;
    /* Bytes of all memfds that the processes have open, minus the bytes of shared memory that they
     * have mapped; at least 0. */
    int64_t unmapped_bytes;
    int64_t rss_bytes; /* sum of RSS over the processes: a shared page counts several times */
    int processes;     /* number of processes of the tree that could be read */
} fsdp_hostmem_usage;

typedef struct fsdp_hostmem fsdp_hostmem;

/* Create a sampler for a process tree: the processes with the pids roots [n], and all their
 * descendants. Each sample looks for the descendants again. If n is 0, the only root is the calling
 * process. The array `roots` is copied. */
FSDP_MUST_CHECK fsdp_status fsdp_hostmem_create(const pid_t *roots, size_t n,
                                                fsdp_hostmem **hostmem);
void fsdp_hostmem_destroy(fsdp_hostmem *hostmem); /* also stops sampling; accepts NULL */

/* Take a sample now, and set *usage to it. `usage` may be NULL. The sample counts for
 * fsdp_hostmem_peak(). A process that ends while the sample is taken is left out. Returns
 * FSDP_ERR_IO if /proc cannot be read. May be called from any thread. */
FSDP_MUST_CHECK fsdp_status fsdp_hostmem_sample(fsdp_hostmem *hostmem, fsdp_hostmem_usage *usage);

/* Start a thread that takes `hz` samples per second (usually 5; at most 100). Returns
 * FSDP_ERR_STATE if the thread is already running. */
FSDP_MUST_CHECK fsdp_status fsdp_hostmem_start(fsdp_hostmem *hostmem, double hz);
/* Stop the thread that takes samples. If it is taking one, wait until the sample is complete.
 * fsdp_hostmem_start() may be called again afterwards. */
void fsdp_hostmem_stop(fsdp_hostmem *hostmem);

/* Return the sample with the largest total_bytes since the sampler was created or reset. *samples
 * is set to the number of samples since then; `samples` may be NULL. All results are 0 before the
 * first sample. */
fsdp_hostmem_usage fsdp_hostmem_peak(fsdp_hostmem *hostmem, int64_t *samples);
/* Forget all samples, for example those of a warm-up. */
void fsdp_hostmem_reset(fsdp_hostmem *hostmem);
