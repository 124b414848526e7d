/* How many processors this process may keep busy. */
#pragma once

/* Return the number of processors in the affinity mask or, if it is smaller, the CPU quota, but at
 * least 1. */
int fsdp_available_cpus(void);
/* Return the CPU quota in processors, rounded up, or 0 if there is no quota. It is the smallest
 * quota of the process's cgroup and that cgroup's ancestors. Both versions of cgroups are
 * supported. `root` is prepended to paths in /proc and /sys; it is "" except in tests. */
int fsdp_cpu_quota(const char *root);
