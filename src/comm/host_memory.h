/* Computes how much memory this process may still allocate. The kernel does not refuse shared
 * memory: it allocates pages of a memfd until no page is left. Then it kills processes, not
 * necessarily this one. */
#pragma once
#include <stddef.h>

/* Return the bytes that can be allocated before the host or this container runs out of memory. This
 * is the smaller of what the kernel reports as available (including swap) and what the cgroup's
 * limit still allows. */
size_t fsdp_host_memory_available(void);
