/* The caching allocator of one device. It uses best fit with coalescing in a range of addresses,
 * and counts memory by tag. Each rank has its own device, so there is no lock.
 *
 * When no free block is large enough, memory is added at the low or the high end of the range. The
 * end with the larger free block is chosen, because this block needs less additional memory. Memory
 * is never returned to the system. Steps repeat their allocations, so after the first step there
 * are no page faults.
 *
 * Blocks of all sizes share the range. PyTorch's allocators instead have a segment for each class
 * of sizes. If batches differ in length, a step leaves holes in such segments that the next step
 * cannot use. An example is fine-tuning T5 on texts of 10 to 512 tokens (30 steps, batch 16), where
 * at most 80.7 MiB were allocated at one time. For this, an allocator with segments reserved 123
 * MiB, while this allocator reserved 81 MiB.
 *
 * Under AddressSanitizer each block is an allocation of its own, so that overruns are detected.
 *
 * Note [What lasts]. Optimizer state and the pools' private buffers are first allocated during the
 * first step and are kept from then on. Suppose that they took memory that the activations of the
 * first step have freed. Then the activations of the second step would need the same amount of new
 * memory, with page faults. So lasting allocations have a range of their own. Then each later step
 * begins with the same free space in the range for the activations as the first step. The two
 * ranges together are no larger than a single range would be. In later steps, a single range would
 * have to contain the lasting allocations and the peak of the activations at the same time.
 *
 * Gradients are kept until the optimizer has read them. Before that, backward frees the activations
 * that forward allocated before the gradients. So each gradient is placed at the highest free
 * address at which there is enough space. The freed activations below the gradients can then
 * coalesce. The exception is a gradient that is computed in forward (a head with a fused loss),
 * when all activations are in memory and the logits are still to be allocated. If the free memory
 * at the high end is a little too small for the logits, the range grows there, and the free and the
 * new memory together are one block. A gradient between the two would prevent this. So such a
 * gradient is placed by best fit, like an activation. */
#pragma once
#include <fsdp/tensor.h>

typedef struct fsdp_allocator fsdp_allocator;
typedef struct fsdp_block fsdp_block;

/* Where an allocator gets its memory from. The first argument of each function is `self`. */
typedef struct fsdp_memory_source {
    /* Reserve `bytes` bytes of addresses, without memory. */
    fsdp_status (*reserve)(void *self, size_t bytes, void **base);
    /* Back the addresses [at, at + bytes) with memory. They are inside a reserved range. `bytes`
     * and the distance from the beginning of this range to `at` are multiples of growth_bytes. */
    fsdp_status (*commit)(void *self, void *at, size_t bytes);
    /* Give a reserved range back to the system, with its memory. */
    void (*release)(void *self, void *base, size_t bytes);
    /* Allocate or free a single block of memory, aligned to 64 bytes, outside the reserved ranges.
     * Used only if blocks_are_alone. @{ */
    fsdp_status (*alloc)(void *self, size_t bytes, void **data);
    void (*free)(void *self, void *data);
    /* @} */
    size_t growth_bytes; /* arenas grow by multiples of this number of bytes; a power of 2 */
    bool
        blocks_are_alone; /* each block is an allocation of its own, for tools that find overruns */
    bool meta;            /* true: there is no memory, and the functions above are not called */
    void *self;
} fsdp_memory_source;

/* Return the functions that give an allocator host memory. */
fsdp_memory_source fsdp_host_memory_source(void);
/* Create an allocator. If `meta` is true, it allocates no memory, but its statistics, including
 * `reserved`, are the same as in a real run. Otherwise its memory is host memory. */
FSDP_MUST_CHECK fsdp_status fsdp_allocator_create(bool meta, fsdp_allocator **allocator);
/* Create an allocator that gets its memory from `source`. The struct is copied. */
FSDP_MUST_CHECK fsdp_status fsdp_allocator_create_from(const fsdp_memory_source *source,
                                                       fsdp_allocator **allocator);
void fsdp_allocator_destroy(fsdp_allocator *allocator);
/* Set a function that waits until no kernel uses memory any more. The allocator calls it before it
 * returns a block to the system, which it does only if each block is an allocation of its own. */
void fsdp_allocator_set_barrier(fsdp_allocator *allocator, void (*wait)(void *arg), void *arg);

/* Allocate `bytes` bytes; 0 is allowed. *data is aligned to 64 bytes. On the meta device, *data is
 * NULL. */
FSDP_MUST_CHECK fsdp_status fsdp_allocator_alloc(fsdp_allocator *allocator, size_t bytes,
                                                 fsdp_tag tag, fsdp_block **block, void **data);
/* Allocate memory for a tensor that is computed in forward and is not an activation: see Note [What
 * lasts]. */
FSDP_MUST_CHECK fsdp_status fsdp_allocator_alloc_in_forward(fsdp_allocator *allocator, size_t bytes,
                                                            fsdp_tag tag, fsdp_block **block,
                                                            void **data);
/* Allocate memory that is first needed during a step and kept after it: see Note [What lasts]. */
FSDP_MUST_CHECK fsdp_status fsdp_allocator_alloc_lasting(fsdp_allocator *allocator, size_t bytes,
                                                         fsdp_tag tag, fsdp_block **block,
                                                         void **data);
void fsdp_allocator_free(fsdp_allocator *allocator, fsdp_block *block);

/* Add `bytes` to the statistics of `tag`. Call this for memory that this allocator has not
 * allocated itself (shared buffers). When such memory is freed, call this with a negative
 * `bytes`. */
void fsdp_allocator_account(fsdp_allocator *allocator, fsdp_tag tag, int64_t bytes);
/* Set a limit. An allocation then fails with FSDP_ERR_NOMEM if it would raise the allocated memory
 * of all tags together above `bytes`. If `bytes` is 0, there is no limit. */
void fsdp_allocator_set_limit(fsdp_allocator *allocator, int64_t bytes);
const fsdp_memory_stats *fsdp_allocator_stats(const fsdp_allocator *allocator);
void fsdp_allocator_reset_peak(fsdp_allocator *allocator);
