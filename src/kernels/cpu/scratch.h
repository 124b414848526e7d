/* A block of 64-byte aligned memory that grows and is kept: the scratch memory of one worker. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

typedef struct fsdp_scratch_block { /* zero-filled: empty */
    void *allocation;               /* owned; the block starts at its first aligned address */
    size_t bytes;                   /* bytes that are usable from that address */
} fsdp_scratch_block;

/* Return the block after making it at least `bytes` large. Its contents are lost if it has to grow.
 * Returns NULL with an error message when out of memory; the block is then unchanged. */
void *fsdp_scratch_reserve(fsdp_scratch_block *block, size_t bytes);
void fsdp_scratch_free(fsdp_scratch_block *block);

/* Allocates part of a block: returns the offset of a part of `bytes` and moves *end past it. */
size_t fsdp_scratch_part(size_t *end, size_t bytes);
