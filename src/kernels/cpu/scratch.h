/* A block of 64-byte aligned memory that grows and is kept: the scratch memory of one worker. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

typedef struct fsdp_scratch_block { /* zero-filled: empty */
    void *allocation;               /* owned; the block starts at the first aligned address in it */
    size_t bytes;                   /* bytes that are usable from that address */
} fsdp_scratch_block;

/* Return the block after making it at least `bytes` large. Its contents are lost if it has to grow.
 * Return NULL with an error message when out of memory; the block is then unchanged. */
void *fsdp_scratch_reserve(fsdp_scratch_block *block, size_t bytes);
void fsdp_scratch_free(fsdp_scratch_block *block);

/* Reserve `bytes` bytes at the end of a block's layout: return their offset, which is *end, and
 * move *end past them. */
size_t fsdp_scratch_part(size_t *end, size_t bytes);
