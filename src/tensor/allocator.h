/* The caching allocator of one device: best fit with coalescing over a range of addresses, counted
 * by tag. Each rank has its own device, so there is no lock.
 *
 * Memory grows at the end of the range whose free block leaves less to add, and is never given
 * back. The allocations of a step repeat, so after the first step there are no page faults. Blocks
 * of all sizes share the range. PyTorch's allocators have segments by size; since batches differ in
 * length, such segments keep holes from one step that the next cannot use. Fine-tuning T5 on texts
 * of 10 to 512 tokens, segments reserved 123 MiB for a peak of 80.7 MiB allocated, and this
 * allocator 81 MiB (30 steps, batch 16). Under AddressSanitizer each block is an allocation of its
 * own, so that it detects overruns.
 *
 * Note [What lasts]. Optimizer state and the pools' private buffers are allocated within the first
 * step and then stay. If they took the place of that step's activations, the second step would have
 * to put its activations in new memory, at the cost of one page fault for each page of state. So
 * lasting allocations have a range of their own, and every step finds the other range as the first
 * step did. Both ranges together are no larger than one would be, since the state exists when
 * activations peak. Gradients last until the optimizer has read them, while backward drops the
 * activations that were allocated before them. They are placed as high as they fit, so that the
 * freed activations below them coalesce. */
#pragma once
#include <fsdp/tensor.h>

typedef struct fsdp_allocator fsdp_allocator;
typedef struct fsdp_block fsdp_block;

/* meta: allocates no memory and counts what it would; `reserved` equals that of a real run too. */
FSDP_MUST_CHECK fsdp_status fsdp_allocator_create(bool meta, fsdp_allocator **allocator);
void fsdp_allocator_destroy(fsdp_allocator *allocator);
/* Set a function that is called before memory goes back to the system while the allocator lives,
 * because kernels may still use that memory. */
void fsdp_allocator_set_barrier(fsdp_allocator *allocator, void (*wait)(void *arg), void *arg);

/* The address is aligned to 64 bytes; bytes may be 0. *data is NULL on meta. */
FSDP_MUST_CHECK fsdp_status fsdp_allocator_alloc(fsdp_allocator *allocator, size_t bytes,
                                                 fsdp_tag tag, fsdp_block **block, void **data);
/* The same for memory that is allocated within a step and stays: Note [What lasts]. */
FSDP_MUST_CHECK fsdp_status fsdp_allocator_alloc_lasting(fsdp_allocator *allocator, size_t bytes,
                                                         fsdp_tag tag, fsdp_block **block,
                                                         void **data);
void fsdp_allocator_free(fsdp_allocator *allocator, fsdp_block *block);

/* Count memory that is not the allocator's (shared buffers); bytes may be negative. */
void fsdp_allocator_account(fsdp_allocator *allocator, fsdp_tag tag, int64_t bytes);
/* Requests that would raise the total beyond `bytes` fail with FSDP_ERR_NOMEM; 0: no limit. */
void fsdp_allocator_set_limit(fsdp_allocator *allocator, int64_t bytes);
const fsdp_memory_stats *fsdp_allocator_stats(const fsdp_allocator *allocator);
void fsdp_allocator_reset_peak(fsdp_allocator *allocator);
