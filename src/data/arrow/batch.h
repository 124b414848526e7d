/* A batch whose buffers can be read. Uncompressed buffers are used in place, in the mapped file;
 * compressed buffers are decompressed to memory. A cache keeps the batches that were decompressed
 * last, since the rows of a batch are often read one after the other. */
#pragma once
#include "src/data/arrow/file.h"
#include "src/data/arrow/layout.h"

typedef struct fsdp_arrow_cache fsdp_arrow_cache;

/* Create a cache of at most `max_bytes` bytes of decompressed buffers. Several threads and several
 * files may use a cache. */
FSDP_MUST_CHECK fsdp_status fsdp_arrow_cache_create(size_t max_bytes, fsdp_arrow_cache **out);
/* Destroy the cache. All batches must have been put back. Accepts NULL. */
void fsdp_arrow_cache_destroy(fsdp_arrow_cache *cache);

typedef struct fsdp_arrow_batch {
    fsdp_arrow_layout layout;
    int64_t rows;

    /* Only batch.c uses the fields below. */
    void **owned; /* [n_owned], the memory of decompressed buffers */
    size_t n_owned, owned_cap, owned_bytes;
    const fsdp_arrow_file *file;
    uint64_t offset; /* offset of the message in the file */
    int64_t root;
    int users;         /* number of callers that have the batch */
    uint64_t last_use; /* fsdp_arrow_cache.time when a caller last got the batch */
    bool is_cached;
} fsdp_arrow_batch;

/* Get the batch that `found` describes. The caller still owns `found`. `root` is as in
 * fsdp_arrow_layout_find(). The caller puts the batch back with fsdp_arrow_batch_put(). */
FSDP_MUST_CHECK fsdp_status fsdp_arrow_batch_get(fsdp_arrow_cache *cache,
                                                 const fsdp_arrow_file *file, int64_t root,
                                                 const fsdp_arrow_located *found,
                                                 fsdp_arrow_batch **out);
void fsdp_arrow_batch_put(fsdp_arrow_cache *cache, fsdp_arrow_batch *batch); /* accepts NULL */
