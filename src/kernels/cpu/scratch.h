/* The scratch memory of one worker: a block of 64-byte aligned memory, which grows on request and
 * never shrinks. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

typedef struct fsdp_scratch_block { /* zero-filled: empty */
    void *allocation;               /* owned; the block starts at the first aligned address in it */
    size_t bytes;                   /* usable size of the block */
} fsdp_scratch_block;

/* Make the block at least `bytes` bytes large and return its address. Its contents are lost if
 * it has to grow. When out of memory, return NULL with an error message and leave the block
 * unchanged. */
void *fsdp_scratch_reserve(fsdp_scratch_block *block, size_t bytes);
void fsdp_scratch_free(fsdp_scratch_block *block);

/* Give several parts their places in one block. Call this once for each part, with the same *end,
 * which must be 0 before the first call. Return the offset of a new part of `bytes` bytes, and move
 * *end to the end of this part. */
size_t fsdp_scratch_part(size_t *end, size_t bytes);
