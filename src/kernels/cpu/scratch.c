/* See scratch.h. */
#include "src/kernels/cpu/scratch.h"

#include <stdint.h>

#include "src/base/alloc.h"

enum {
    ALIGNMENT = 64
};

void *fsdp_scratch_reserve(fsdp_scratch_block *block, size_t bytes)
{
    if (bytes > block->bytes || !block->allocation) {
        void *allocation = fsdp_calloc(1, bytes + ALIGNMENT);
        if (!allocation)
            return NULL;
        fsdp_free(block->allocation);
        block->allocation = allocation;
        block->bytes = bytes;
    }
    return (char *)block->allocation + (-(uintptr_t)block->allocation & (ALIGNMENT - 1));
}

void fsdp_scratch_free(fsdp_scratch_block *block)
{
    fsdp_free(block->allocation);
    *block = (fsdp_scratch_block){0};
}

size_t fsdp_scratch_part(size_t *end, size_t bytes)
{
    size_t begin = *end;
    *end += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return begin;
}
