/* The scratch memory of one worker: a block of 64-byte aligned memory, which grows on request and
 * never shrinks. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

typedef struct fsdp_scratch_block { /* all bytes zero: an empty block */
    void *allocation;               /* owned; the block starts at the first aligned address in it */
    size_t bytes;                   /* usable size of the block */
} fsdp_scratch_block;

/* Make the block at least `bytes` bytes large and return its address. Its contents are lost if
 * it has to grow. When out of memory, return NULL with an error message and leave the block
 * unchanged. */
void *fsdp_scratch_reserve(fsdp_scratch_block *block, size_t bytes);
void fsdp_scratch_free(fsdp_scratch_block *block);

/* Reserve a part of `bytes` bytes of a block for one buffer. Several buffers may share one block.
 * Return the offset of the part in the block, and set *end to the end of the part. Call this once
 * for each buffer, always with the same `end`. Set *end to 0 before the first call. */
size_t fsdp_scratch_part(size_t *end, size_t bytes);
