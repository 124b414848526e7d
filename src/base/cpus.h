/* How many processors this process may keep busy. */
#pragma once

/* The least of the processors in its affinity mask and the CPU quota of its cgroups, rounded up; at
 * least 1. */
int fsdp_available_cpus(void);
/* The quota alone: the smallest in the process's own cgroup and those above it, in version 2 or 1.
 * `root` goes before /proc and /sys; "" is this machine. 0: there is none. */
int fsdp_cpu_quota(const char *root);
