/* See batch.h. */
#include "src/data/arrow/batch.h"

#include <pthread.h>

#include "src/base/alloc.h"
#include "src/data/arrow/decompress.h"

enum {
    MAX_CACHED = 64 /* maximum number of batches in a cache, which is searched linearly */
};

/* Limits of what a damaged or hostile file can make a reader allocate. */
static const size_t max_buffer_bytes = (size_t)1 << 31, max_batch_bytes = (size_t)1 << 32;

struct fsdp_arrow_cache {
    pthread_mutex_t mutex; /* protects all fields, and `users` and `last_use` of cached batches */
    fsdp_arrow_batch *batches[MAX_CACHED];
    size_t n, bytes, max_bytes;
    uint64_t time; /* number of calls of fsdp_arrow_batch_get() so far */
};

fsdp_status fsdp_arrow_cache_create(size_t max_bytes, fsdp_arrow_cache **out)
{
    fsdp_arrow_cache *cache = fsdp_calloc(1, sizeof *cache);
    if (!cache)
        return FSDP_ERR_NOMEM;
    cache->max_bytes = max_bytes;
    pthread_mutex_init(&cache->mutex, NULL);
    *out = cache;
    return FSDP_OK;
}

static void free_batch(fsdp_arrow_batch *batch)
{
    for (size_t i = 0; i < batch->n_owned; i++)
        fsdp_free(batch->owned[i]);
    fsdp_free(batch->owned);
    fsdp_arrow_layout_fini(&batch->layout);
    fsdp_free(batch);
}

void fsdp_arrow_cache_destroy(fsdp_arrow_cache *cache)
{
    if (!cache)
        return;
    for (size_t i = 0; i < cache->n; i++)
        free_batch(cache->batches[i]);
    pthread_mutex_destroy(&cache->mutex);
    fsdp_free(cache);
}

/* ---- loading ---- */

static fsdp_status decompress_buffer(fsdp_arrow_batch *batch, fsdp_arrow_codec codec,
                                     fsdp_arrow_buffer *buffer)
{
    void *memory = NULL;
    const size_t left = max_batch_bytes - batch->owned_bytes;
    const size_t limit = left < max_buffer_bytes ? left : max_buffer_bytes;
    if (!FSDP_GROW(batch->owned, batch->owned_cap, batch->n_owned + 1))
        return FSDP_ERR_NOMEM;
    FSDP_TRY(fsdp_arrow_decompress(codec, *buffer, limit, buffer, &memory));
    if (!memory)
        return FSDP_OK;
    batch->owned[batch->n_owned++] = memory;
    batch->owned_bytes += buffer->bytes;
    return FSDP_OK;
}

static fsdp_status decompress_batch(fsdp_arrow_batch *batch, const fsdp_arrow_schema *schema,
                                    fsdp_arrow_codec codec)
{
    const size_t first = batch->layout.first_field;
    for (size_t i = 0; i < batch->layout.n_arrays; i++) {
        fsdp_arrow_array *array = &batch->layout.arrays[i];
        for (size_t k = 0; k < array->n_buffers; k++) {
            const fsdp_status status = decompress_buffer(batch, codec, &array->buffers[k]);
            fsdp_error_context(status, "column '%.60s'", schema->fields[first + i].name);
            FSDP_TRY(status);
        }
    }
    for (size_t i = 0; i < batch->layout.n_data; i++)
        FSDP_TRY(decompress_buffer(batch, codec, &batch->layout.data[i]));
    return FSDP_OK;
}

static fsdp_status load_batch(const fsdp_arrow_file *file, int64_t root,
                              const fsdp_arrow_located *found, fsdp_arrow_batch **out)
{
    const fsdp_arrow_schema *schema = fsdp_arrow_file_schema(file);
    const fsdp_arrow_message *m = &found->message;
    fsdp_arrow_batch *batch = fsdp_calloc(1, sizeof *batch);
    if (!batch)
        return FSDP_ERR_NOMEM;
    *batch = (fsdp_arrow_batch){
        .rows = m->rows, .file = file, .offset = found->offset, .root = root, .users = 1};
    fsdp_status status =
        fsdp_arrow_layout_find(schema, root, m, found->body, (size_t)m->body_bytes, &batch->layout);
    if (status == FSDP_OK && m->codec != FSDP_ARROW_UNCOMPRESSED)
        status = decompress_batch(batch, schema, m->codec);
    if (status == FSDP_OK)
        *out = batch;
    else
        free_batch(batch);
    return status;
}

/* ---- the cache; its mutex is held ---- */

static fsdp_arrow_batch *find_cached(const fsdp_arrow_cache *cache, const fsdp_arrow_file *file,
                                     int64_t root, uint64_t offset)
{
    for (size_t i = 0; i < cache->n; i++) {
        fsdp_arrow_batch *b = cache->batches[i];
        if (b->file == file && b->offset == offset && b->root == root)
            return b;
    }
    return NULL;
}

/* Free the batch that was used longest ago, among those that no caller uses. Return false if
 * callers use all batches. */
static bool drop_oldest(fsdp_arrow_cache *cache)
{
    size_t oldest = cache->n;
    for (size_t i = 0; i < cache->n; i++)
        if (cache->batches[i]->users == 0 &&
            (oldest == cache->n || cache->batches[i]->last_use < cache->batches[oldest]->last_use))
            oldest = i;
    if (oldest == cache->n)
        return false;
    cache->bytes -= cache->batches[oldest]->owned_bytes;
    free_batch(cache->batches[oldest]);
    cache->batches[oldest] = cache->batches[--cache->n];
    return true;
}

/* Add a batch to the cache. If the cache is full, free unused batches until the batch fits. If it
 * does not fit even then, do not add it. */
static void keep(fsdp_arrow_cache *cache, fsdp_arrow_batch *batch)
{
    const size_t bytes = batch->owned_bytes;
    if (bytes > cache->max_bytes)
        return;
    while (cache->n == MAX_CACHED || cache->bytes > cache->max_bytes - bytes)
        if (!drop_oldest(cache))
            return;
    batch->is_cached = true;
    batch->last_use = cache->time;
    cache->batches[cache->n++] = batch;
    cache->bytes += bytes;
}

/* ---- functions of the header ---- */

fsdp_status fsdp_arrow_batch_get(fsdp_arrow_cache *cache, const fsdp_arrow_file *file, int64_t root,
                                 const fsdp_arrow_located *found, fsdp_arrow_batch **out)
{
    if (found->message.codec == FSDP_ARROW_UNCOMPRESSED)
        return load_batch(file, root, found, out);
    pthread_mutex_lock(&cache->mutex);
    cache->time++;
    fsdp_arrow_batch *batch = find_cached(cache, file, root, found->offset);
    if (batch) {
        batch->users++;
        batch->last_use = cache->time;
    }
    pthread_mutex_unlock(&cache->mutex);
    if (batch) {
        *out = batch;
        return FSDP_OK;
    }
    FSDP_TRY(load_batch(file, root, found, &batch));
    pthread_mutex_lock(&cache->mutex);
    /* Another thread may have loaded the same batch in the meantime. In this case, do not add this
     * one to the cache as well. */
    if (!find_cached(cache, file, root, found->offset))
        keep(cache, batch);
    pthread_mutex_unlock(&cache->mutex);
    *out = batch;
    return FSDP_OK;
}

void fsdp_arrow_batch_put(fsdp_arrow_cache *cache, fsdp_arrow_batch *batch)
{
    if (!batch)
        return;
    if (!batch->is_cached) {
        free_batch(batch);
        return;
    }
    pthread_mutex_lock(&cache->mutex);
    batch->users--;
    pthread_mutex_unlock(&cache->mutex);
}
