/* How much memory this process may still take. Shared memory has no other limit: the kernel gives a
 * memfd page after page until it has none left, and then kills processes, not only this one. */
#pragma once
#include <stddef.h>

/* Bytes that can be allocated without driving the host, or this container, out of memory: the
 * least of what the kernel calls available, with swap, and what the cgroup's limit leaves. */
size_t fsdp_host_memory_available(void);
