/* The caching allocator of one device: best fit with coalescing over a range of addresses, counted
 * by tag. A device is one rank's, so there is no lock.
 *
 * Memory grows at that end of the range where a free block leaves less to be added, and stays: a
 * step's allocations repeat, so after the first step nothing faults. All sizes share it. Batches
 * differ in length, and segments by size, as PyTorch's allocators have, then keep holes of one step
 * that the next cannot use: fine-tuning T5 on texts of 10 to 512 tokens they reserved 123 MiB for a
 * peak of 80.7 allocated, this 81 (30 steps, batch 16). Under AddressSanitizer each block is an
 * allocation of its own, so that an overrun is seen.
 *
 * Note [What lasts]. Optimizer state and the pools' private buffers are made within the first step
 * and then stay. Where that step's activations were, they would leave the second no room for its
 * own, which would go where memory is new: a fault for each page of state. So what lasts is in a
 * range of its own, and every step finds the other one as the first did. Together they are no
 * larger, since the state is there when activations are most. Gradients last until the optimizer
 * has read them, while backward drops the activations that are before them: they are put as high as
 * they fit, so that what is dropped joins below them. */
#pragma once
#include <fsdp/tensor.h>

typedef struct fsdp_allocator fsdp_allocator;
typedef struct fsdp_block fsdp_block;

/* meta: gives no memory, and counts what it would hold: `reserved` is as a real run's too. */
FSDP_MUST_CHECK fsdp_status fsdp_allocator_create(bool meta, fsdp_allocator **allocator);
void fsdp_allocator_destroy(fsdp_allocator *allocator);
/* Called before memory goes back to the system, while the allocator lives: kernels may be at it. */
void fsdp_allocator_set_barrier(fsdp_allocator *allocator, void (*wait)(void *arg), void *arg);

/* 64-byte aligned; bytes 0 is valid. *data is NULL on meta. */
FSDP_MUST_CHECK fsdp_status fsdp_allocator_alloc(fsdp_allocator *allocator, size_t bytes,
                                                 fsdp_tag tag, fsdp_block **block, void **data);
/* The same for what is made within a step and stays; Note [What lasts]. */
FSDP_MUST_CHECK fsdp_status fsdp_allocator_alloc_lasting(fsdp_allocator *allocator, size_t bytes,
                                                         fsdp_tag tag, fsdp_block **block,
                                                         void **data);
void fsdp_allocator_free(fsdp_allocator *allocator, fsdp_block *block);

/* Memory that is not the allocator's but counts (shared buffers): bytes may be negative. */
void fsdp_allocator_account(fsdp_allocator *allocator, fsdp_tag tag, int64_t bytes);
/* Requests beyond `bytes` in sum fail with FSDP_ERR_NOMEM; 0: no limit. */
void fsdp_allocator_set_limit(fsdp_allocator *allocator, int64_t bytes);
const fsdp_memory_stats *fsdp_allocator_stats(const fsdp_allocator *allocator);
void fsdp_allocator_reset_peak(fsdp_allocator *allocator);
