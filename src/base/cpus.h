/* The processors that this process may keep busy, and the memory that it may use. */
#pragma once
#include <stdint.h>

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
