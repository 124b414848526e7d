/* Memory with one lifetime: taken piece by piece, given back all at once. Start with {0}. */
#pragma once
#include <stddef.h>

typedef struct fsdp_arena {
    struct fsdp_arena_block *newest; /* owned; each knows the one before */
    size_t used;                     /* bytes of `newest` that are taken */
    size_t taken;                    /* bytes handed out in all */
} fsdp_arena;

/* Zero-filled and aligned for any type; NULL with an error message when out of memory. */
void *fsdp_arena_alloc(fsdp_arena *arena, size_t bytes);
void fsdp_arena_fini(fsdp_arena *arena); /* may be called again; all zero afterwards */
