/* A block of 64-byte aligned memory that grows and is kept: what one worker computes in. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

typedef struct fsdp_scratch_block { /* zero-filled: empty */
    void *allocation;               /* owned; the block starts at its first aligned address */
    size_t bytes;                   /* usable from there */
} fsdp_scratch_block;

/* At least `bytes`; the contents are lost if the block has to grow. NULL with an error message
 * when out of memory; the block is then as it was. */
void *fsdp_scratch_reserve(fsdp_scratch_block *block, size_t bytes);
void fsdp_scratch_free(fsdp_scratch_block *block);

/* Lays out parts of one block: returns where a part of `bytes` begins and moves *end past it. */
size_t fsdp_scratch_part(size_t *end, size_t bytes);
