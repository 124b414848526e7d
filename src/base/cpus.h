/* The number of processors that this process may keep busy. */
#pragma once

/* Return the number of processors in the affinity mask. If there is a CPU quota and it is smaller,
 * return the quota. The result is at least 1. */
int fsdp_available_cpus(void);
/* Return the CPU quota in processors, rounded up, or 0 if there is none. The process's cgroup and
 * its ancestors may each have a quota, in either version of cgroups. The result is the smallest of
 * these quotas. `root` is prepended to paths in /proc and /sys; it is "" except in tests. */
int fsdp_cpu_quota(const char *root);
