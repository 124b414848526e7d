/* Host memory of a job, measured from outside (Linux): the sum of PSS over a process tree plus the
 * blocks of memfds that no process has mapped at that moment. A page mapped by N processes counts
 * once. The allocated blocks of a shared buffer count even while no process maps it.
 *
 * A sample walks the page tables of every process while holding its address space lock, some 10 ms
 * for a rank of 3 GiB, so sample outside timed steps. */
#pragma once
#include <sys/types.h>

#include <fsdp/base.h>

typedef struct fsdp_hostmem_usage {
    int64_t total_bytes; /* the figure to compare: pss_bytes + unmapped_bytes */
    int64_t pss_bytes;
    int64_t unmapped_bytes; /* of memfds: allocated blocks - mapped shared memory, >= 0 */
    int64_t rss_bytes;      /* plain sum: a shared page counts once for each process */
    int processes;          /* processes that could be read */
} fsdp_hostmem_usage;

typedef struct fsdp_hostmem fsdp_hostmem;

/* Measures `roots` [n] (copied) and all their descendants at the moment of a sample. n 0: this
 * process and its descendants. */
FSDP_MUST_CHECK fsdp_status fsdp_hostmem_create(const pid_t *roots, size_t n,
                                                fsdp_hostmem **hostmem);
void fsdp_hostmem_destroy(fsdp_hostmem *hostmem); /* stops it; accepts NULL */

/* Take a sample now; it counts for the peak. Processes that end meanwhile are left out. usage may
 * be NULL. FSDP_ERR_IO without /proc. May be called from any thread. */
FSDP_MUST_CHECK fsdp_status fsdp_hostmem_sample(fsdp_hostmem *hostmem, fsdp_hostmem_usage *usage);

/* Sample `hz` times a second (5 is customary) on a thread of its own, until stop, which returns
 * after the current sample. Both may be called again. FSDP_ERR_STATE if it is already running. */
FSDP_MUST_CHECK fsdp_status fsdp_hostmem_start(fsdp_hostmem *hostmem, double hz);
void fsdp_hostmem_stop(fsdp_hostmem *hostmem);

/* The sample with the largest total since create or reset (warm-up is excluded by a reset), and
 * the number of samples; all 0 before the first. */
fsdp_hostmem_usage fsdp_hostmem_peak(fsdp_hostmem *hostmem, int64_t *samples);
void fsdp_hostmem_reset(fsdp_hostmem *hostmem);
