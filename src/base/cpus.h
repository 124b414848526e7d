/* The processors that this process may keep busy, and the memory that it may use. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

/* The affinity mask of a thread. A cpu_set_t has 1024 processors; Linux has up to 8192. */
typedef struct fsdp_cpu_mask {
    uint64_t words[8192 / 64]; /* bit i % 64 of word i / 64: processor i may be used */
} fsdp_cpu_mask;

/* Set *mask to the processors that the calling thread may use. If the kernel does not say, set it
 * to processor 0. */
void fsdp_cpu_mask_get(fsdp_cpu_mask *mask);
int fsdp_cpu_mask_count(const fsdp_cpu_mask *mask);

/* Return the number of processors that this process may use: the number of processors in its
 * affinity mask, or its CPU quota if that is smaller. The result is at least 1. */
int fsdp_available_cpus(void);
/* Return the CPU quota in processors, rounded up, or 0 if there is no quota. The process's cgroup
 * and its ancestors may each have a quota, in either version of cgroups. The result is the smallest
 * of these quotas. `root` is prepended to paths in /proc and /sys; it is "" except in tests. */
int fsdp_cpu_quota(const char *root);
/* Return the smallest memory limit, in bytes, of this process's cgroup and its ancestors, or 0 if
 * there is no limit. The kernel kills a process of a cgroup that would exceed the limit. `root` is
 * as in fsdp_cpu_quota(). */
int64_t fsdp_memory_quota(const char *root);
