/* How many processors this process may keep busy. */
#pragma once

/* The minimum of the number of processors in its affinity mask and the CPU quota of its cgroups,
 * rounded up; at least 1. */
int fsdp_available_cpus(void);
/* The quota alone: the smallest of the process's own cgroup and its ancestors, in version 2 or 1.
 * `root` is prepended to /proc and /sys; "" is this machine. 0: no quota. */
int fsdp_cpu_quota(const char *root);
