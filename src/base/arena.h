/* Memory with one lifetime: allocated piece by piece, freed all at once. Initialize with {0}. */
#pragma once
#include <stddef.h>

typedef struct fsdp_arena {
    struct fsdp_arena_block *newest; /* owned; each block points to the next older one */
    size_t used;                     /* bytes of `newest` in use */
    size_t taken;                    /* bytes allocated in total */
} fsdp_arena;

/* Return `bytes` bytes, zero-filled and aligned for any type, or NULL with an error message when
 * out of memory. */
void *fsdp_arena_alloc(fsdp_arena *arena, size_t bytes);
void fsdp_arena_fini(fsdp_arena *arena); /* sets *arena to {0}; may be called again */
