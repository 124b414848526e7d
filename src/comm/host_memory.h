/* How much memory this process may still take. Shared memory has no other limit: the kernel
 * allocates pages of a memfd until none is left, and then kills processes, possibly others than
 * this one. */
#pragma once
#include <stddef.h>

/* Bytes that can be allocated without running the host, or this container, out of memory: the
 * minimum of what the kernel reports as available (including swap) and what the cgroup's limit
 * leaves. */
size_t fsdp_host_memory_available(void);
