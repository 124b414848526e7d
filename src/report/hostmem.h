/* Host memory of a job, measured from outside (Linux): the sum of PSS over a process tree plus the
 * blocks of memfds that no process has mapped at that moment. A page that several processes map
 * counts once. The allocated blocks of a shared buffer count even while no process maps the buffer.
 *
 * A sample walks the page tables of every process of the tree. This locks the address space of the
 * process, for about 10 ms if a rank has 3 GiB. So do not sample during timed steps. */
#pragma once
#include <sys/types.h>

#include <fsdp/base.h>

typedef struct fsdp_hostmem_usage {
    int64_t total_bytes; /* pss_bytes + unmapped_bytes: the figure for comparisons */
    int64_t pss_bytes;
    int64_t unmapped_bytes; /* allocated blocks of memfds minus mapped shared memory, at least 0 */
    int64_t rss_bytes;      /* sum over processes: a shared page counts once for each of them */
    int processes;          /* number of processes that could be read */
} fsdp_hostmem_usage;

typedef struct fsdp_hostmem fsdp_hostmem;

/* Create a sampler for the processes `roots` [n] and the descendants that they have at the time of
 * a sample. If n is 0, it samples this process and its descendants. The array is copied. */
FSDP_MUST_CHECK fsdp_status fsdp_hostmem_create(const pid_t *roots, size_t n,
                                                fsdp_hostmem **hostmem);
void fsdp_hostmem_destroy(fsdp_hostmem *hostmem); /* also stops sampling; accepts NULL */

/* Take a sample now. It is also considered for the peak. A process that ends while the sample is
 * taken is left out. `usage` may be NULL. Returns FSDP_ERR_IO if /proc cannot be read. May be
 * called from any thread. */
FSDP_MUST_CHECK fsdp_status fsdp_hostmem_sample(fsdp_hostmem *hostmem, fsdp_hostmem_usage *usage);

/* Start sampling `hz` times per second (usually 5) on a new thread. Returns FSDP_ERR_STATE if
 * sampling has already been started. */
FSDP_MUST_CHECK fsdp_status fsdp_hostmem_start(fsdp_hostmem *hostmem, double hz);
/* Stop sampling. If a sample is being taken, wait until it is complete. Sampling may be started
 * again. */
void fsdp_hostmem_stop(fsdp_hostmem *hostmem);

/* Return the sample with the largest total since create or reset, and set *samples to the number of
 * samples. All values are 0 before the first sample. */
fsdp_hostmem_usage fsdp_hostmem_peak(fsdp_hostmem *hostmem, int64_t *samples);
/* Forget all samples, for example those of a warm-up. */
void fsdp_hostmem_reset(fsdp_hostmem *hostmem);
