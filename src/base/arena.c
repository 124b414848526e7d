/* Implements arenas. An arena is a list of blocks of memory. Each allocation takes a piece of the
 * newest block. A new block is as large as all allocations so far together, but at least
 * MIN_BLOCK_BYTES and at most MAX_BLOCK_BYTES. If the allocation for which the block is added is
 * larger than this size, the block is as large as the allocation. */
#include <stdint.h>

#include "src/base/alloc.h"
#include "src/base/arena.h"

enum {
    MIN_BLOCK_BYTES = 1 << 12,
    MAX_BLOCK_BYTES = 1 << 20,
    ALIGNMENT = 16
};

struct fsdp_arena_block {
    struct fsdp_arena_block *older;
    size_t bytes;
    _Alignas(ALIGNMENT) unsigned char data[];
};

static bool add_block(fsdp_arena *arena, size_t at_least)
{
    size_t bytes = arena->taken < MIN_BLOCK_BYTES   ? MIN_BLOCK_BYTES
                   : arena->taken > MAX_BLOCK_BYTES ? MAX_BLOCK_BYTES
                                                    : arena->taken;
    if (bytes < at_least)
        bytes = at_least;
    struct fsdp_arena_block *block = fsdp_calloc(1, sizeof *block + bytes);
    if (!block)
        return false;
    block->older = arena->newest;
    block->bytes = bytes;
    arena->newest = block;
    arena->used = 0;
    return true;
}

void *fsdp_arena_alloc(fsdp_arena *arena, size_t bytes)
{
    if (bytes > SIZE_MAX / 2) {
        (void)fsdp_error_nomem();
        return NULL;
    }
    bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if ((!arena->newest || arena->newest->bytes - arena->used < bytes) && !add_block(arena, bytes))
        return NULL;
    void *piece = arena->newest->data + arena->used;
    arena->used += bytes;
    arena->taken += bytes;
    return piece;
}

void fsdp_arena_fini(fsdp_arena *arena)
{
    while (arena->newest) {
        struct fsdp_arena_block *older = arena->newest->older;
        fsdp_free(arena->newest);
        arena->newest = older;
    }
    *arena = (fsdp_arena){0};
}
