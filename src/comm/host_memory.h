/* Computes how much memory this process may still allocate. Callers check this before they allocate
 * shared memory, because the kernel reports no error when memory runs out. The kernel allocates
 * pages of a memfd until no page is left. Then it kills processes. A killed process may be one that
 * has not allocated any of this memory. */
#pragma once
#include <stddef.h>

/* Return the bytes that can be allocated before the host or this container runs out of memory. This
 * is the smaller of what the kernel reports as available (including swap) and what the cgroup's
 * limit still allows. */
size_t fsdp_host_memory_available(void);
