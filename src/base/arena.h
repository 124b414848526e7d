/* An arena: memory that is allocated piece by piece and freed all at once. Initialize it with
 * {0}. */
#pragma once
#include <stddef.h>

typedef struct fsdp_arena {
    struct fsdp_arena_block *newest; /* owned; each block points to the next older one */
    size_t used;                     /* bytes of `newest` in use */
    size_t taken;                    /* bytes of all allocations from the arena */
} fsdp_arena;

/* Allocate `bytes` bytes, filled with zeros and aligned for any type. When out of memory, set the
 * error message and return NULL. */
void *fsdp_arena_alloc(fsdp_arena *arena, size_t bytes);
void fsdp_arena_fini(fsdp_arena *arena); /* sets *arena to {0}; may be called again */
