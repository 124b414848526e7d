/* Memory of a card, for the allocator of a device: see cuda_memory.c. */
#pragma once
#include <cuda_runtime_api.h>

#include "src/tensor/allocator.h"
#include "src/tensor/shared_memory.h"

typedef struct fsdp_cuda_memory fsdp_cuda_memory;

/* Create an allocator with memory of card `device`. Kernels of `stream` use the memory. So memory
 * is given back to the driver only after the kernels that were started before have run. Arenas grow
 * by multiples of growth_bytes, which must be a multiple of 2 MiB, the granularity of the driver's
 * mappings. */
FSDP_MUST_CHECK fsdp_status fsdp_cuda_memory_open(int device, cudaStream_t stream,
                                                  size_t growth_bytes, fsdp_cuda_memory **memory,
                                                  fsdp_allocator **allocator);
/* Free *memory. The allocator must have been destroyed before. Accepts NULL. */
void fsdp_cuda_memory_close(fsdp_cuda_memory *memory);

extern const fsdp_shared_memory_ops fsdp_cuda_shared_memory;
extern const fsdp_card_link_ops fsdp_cuda_links;
