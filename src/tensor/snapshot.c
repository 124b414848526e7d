/* Implements snapshot.h. A snapshot has one lock. A thread holds it only for a few instructions, or
 * while it copies one block. */
#include "src/tensor/snapshot.h"

#include <pthread.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/clock.h"
#include "src/tensor/halved.h"
#include "src/tensor/offload.h"

enum {
    BLOCK_BYTES = 4 << 20
};

typedef enum block_state {
    BLOCK_LIVE,    /* not completely read yet; the bytes are in the storage */
    BLOCK_READING, /* the reader is reading the block from the storage */
    BLOCK_COPIED,  /* not completely read yet; the bytes are in the copy */
    BLOCK_READ
} block_state;

typedef struct block {
    block_state state;
    unsigned char *copy; /* the copied bytes, in state BLOCK_COPIED */
} block;

typedef struct watch watch;

struct fsdp_snapshot_part {
    watch *watch;
    size_t offset, bytes; /* position and size in the storage */
    block *blocks; /* [n_blocks]; each block is BLOCK_BYTES bytes of the part; the last block may be
                      smaller */
    size_t n_blocks;
    fsdp_snapshot_part *next; /* next part of the same watched storage */
};

/* A watched storage. */
struct watch {
    fsdp_snapshot *snapshot;
    fsdp_storage *storage; /* the storage; the watch has a reference to it */
    /* The storage's data when the watch was created. The storage may free this memory once every
     * block is in state BLOCK_READ or BLOCK_COPIED; from then on, this pointer is not used. Unused
     * if the storage is staged or halved. */
    const char *data;
    fsdp_storage_guard guard;
    fsdp_snapshot_part *parts;
    watch *next;
};

struct fsdp_snapshot {
    watch *watches;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* signalled after a block was read or the snapshot was closed */
    /* The lock protects the following fields and the states of the blocks. */
    bool closed;
    uint64_t pool_bytes, used_bytes;
    fsdp_snapshot_stats stats;
};

/* --- blocks --- */

static size_t block_bytes(const fsdp_snapshot_part *part, size_t i)
{
    const size_t at = i * BLOCK_BYTES;
    return part->bytes - at < BLOCK_BYTES ? part->bytes - at : BLOCK_BYTES;
}

/* Read bytes of the part from its storage. */
static fsdp_status read_live(const fsdp_snapshot_part *part, size_t at, void *out, size_t bytes)
{
    const watch *w = part->watch;
    if (w->storage->staged)
        return fsdp_staged_read(w->storage->staged, part->offset + at, out, bytes);
    if (w->storage->halved)
        return fsdp_halved_read(w->storage, part->offset + at, out, bytes);
    return fsdp_device_peek(w->storage->device, out, w->data + part->offset + at, bytes);
}

static void drop_copy(fsdp_snapshot *s, block *b, size_t bytes)
{
    if (!b->copy)
        return;
    fsdp_free(b->copy);
    b->copy = NULL;
    s->used_bytes -= bytes;
}

/* Copy block i of the part. Return false if the pool has no space left for the copy, or if copying
 * fails. The thread that wants to write must then wait until the reader has read the block. */
static bool copy_block(fsdp_snapshot *s, const fsdp_snapshot_part *part, size_t i)
{
    block *b = &part->blocks[i];
    const size_t bytes = block_bytes(part, i);
    if (s->used_bytes + bytes > s->pool_bytes)
        return false;
    unsigned char *copy = fsdp_realloc(NULL, bytes, 1);
    if (!copy)
        return false;
    if (read_live(part, i * BLOCK_BYTES, copy, bytes) != FSDP_OK) {
        fsdp_free(copy);
        return false;
    }
    b->copy = copy;
    b->state = BLOCK_COPIED;
    s->used_bytes += bytes;
    s->stats.copied_bytes += bytes;
    return true;
}

/* --- writers --- */

/* Make it safe to overwrite block i of the part: copy the block, or wait until the reader has read
 * it. The caller must hold the lock. */
static void save_block(fsdp_snapshot *s, const fsdp_snapshot_part *part, size_t i)
{
    const block *b = &part->blocks[i];
    for (;;) {
        if (b->state == BLOCK_READ || b->state == BLOCK_COPIED)
            return;
        if (b->state == BLOCK_LIVE && (s->closed || copy_block(s, part, i)))
            return;
        pthread_cond_wait(&s->changed, &s->lock);
    }
}

static void save_all(watch *w)
{
    fsdp_snapshot *s = w->snapshot;
    const double begin = fsdp_clock_s();
    pthread_mutex_lock(&s->lock);
    for (const fsdp_snapshot_part *part = w->parts; part; part = part->next)
        for (size_t i = 0; i < part->n_blocks; i++)
            save_block(s, part, i);
    s->stats.held_s += fsdp_clock_s() - begin;
    pthread_mutex_unlock(&s->lock);
}

static fsdp_status watch_begin_write(void *self)
{
    save_all(self);
    return FSDP_OK;
}

static void watch_leave(void *self)
{
    save_all(self);
}

/* --- the reader --- */

/* Read bytes [at, at + bytes) of block i into `out`. */
static fsdp_status read_block(fsdp_snapshot_part *part, size_t i, size_t at, void *out,
                              size_t bytes)
{
    fsdp_snapshot *s = part->watch->snapshot;
    block *b = &part->blocks[i];
    const bool last = at + bytes == block_bytes(part, i);
    fsdp_status status = FSDP_OK;
    pthread_mutex_lock(&s->lock);
    const bool closed = s->closed, live = !b->copy;
    if (!closed && live)
        b->state = BLOCK_READING;
    pthread_mutex_unlock(&s->lock);
    if (closed)
        return fsdp_error(FSDP_ERR_STATE, "the save was given up");
    if (live)
        status = read_live(part, i * BLOCK_BYTES + at, out, bytes);
    else
        memcpy(out, b->copy + at, bytes);
    pthread_mutex_lock(&s->lock);
    if (last)
        drop_copy(s, b, block_bytes(part, i));
    b->state = last ? BLOCK_READ : live ? BLOCK_LIVE : BLOCK_COPIED;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    return status;
}

fsdp_status fsdp_snapshot_read(fsdp_snapshot_part *part, uint64_t offset, void *out, size_t bytes)
{
    FSDP_ASSERT(offset <= part->bytes && bytes <= part->bytes - offset);
    for (size_t done = 0, n; done < bytes; done += n) {
        const size_t at = (size_t)offset + done, i = at / BLOCK_BYTES, within = at % BLOCK_BYTES;
        n = block_bytes(part, i) - within;
        if (n > bytes - done)
            n = bytes - done;
        FSDP_TRY(read_block(part, i, within, (char *)out + done, n));
    }
    return FSDP_OK;
}

void fsdp_snapshot_close(fsdp_snapshot *s)
{
    pthread_mutex_lock(&s->lock);
    s->closed = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

fsdp_snapshot_stats fsdp_snapshot_get_stats(fsdp_snapshot *s)
{
    pthread_mutex_lock(&s->lock);
    const fsdp_snapshot_stats stats = s->stats;
    pthread_mutex_unlock(&s->lock);
    return stats;
}

/* --- watches --- */

fsdp_status fsdp_snapshot_create(uint64_t pool_bytes, fsdp_snapshot **snapshot)
{
    fsdp_snapshot *s = fsdp_calloc(1, sizeof *s);
    if (!s)
        return FSDP_ERR_NOMEM;
    s->pool_bytes = pool_bytes;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    *snapshot = s;
    return FSDP_OK;
}

static void wait_until_closed(fsdp_snapshot *s)
{
    pthread_mutex_lock(&s->lock);
    while (!s->closed)
        pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

/* Return the watch that this snapshot has on the storage, or NULL if there is none. If other
 * snapshots watch the storage, wait until they are closed. */
static watch *find_watch(const fsdp_snapshot *s, const fsdp_storage *storage)
{
    watch *found = NULL;
    for (const fsdp_storage_guard *g = storage->guards; g; g = g->next) {
        if (g->begin_write != watch_begin_write)
            continue;
        watch *w = g->self;
        if (w->snapshot == s)
            found = w;
        else
            wait_until_closed(w->snapshot);
    }
    return found;
}

static fsdp_status add_watch(fsdp_snapshot *s, fsdp_storage *storage, watch **out)
{
    if (storage->staged)
        FSDP_TRY(fsdp_staged_flush(storage->staged));
    /* The guard does not see the writes of kernels that were started before the guard was added. So
     * wait until these kernels have run. */
    FSDP_TRY(fsdp_device_synchronize(storage->device));
    watch *w = fsdp_calloc(1, sizeof *w);
    if (!w)
        return FSDP_ERR_NOMEM;
    *w = (watch){.snapshot = s, .storage = storage, .data = storage->data, .next = s->watches};
    w->guard = (fsdp_storage_guard){
        .begin_write = watch_begin_write, .leave = watch_leave, .self = w, .next = storage->guards};
    storage->guards = &w->guard;
    storage->refs++;
    s->watches = w;
    *out = w;
    return FSDP_OK;
}

fsdp_status fsdp_snapshot_add(fsdp_snapshot *s, const fsdp_tensor *tensor, fsdp_snapshot_part **out)
{
    const size_t element = fsdp_dtype_size(tensor->dtype);
    const size_t bytes = (size_t)fsdp_tensor_numel(tensor) * element;
    const size_t n_blocks = (bytes + BLOCK_BYTES - 1) / BLOCK_BYTES;
    watch *w = find_watch(s, tensor->storage);
    FSDP_ASSERT(fsdp_tensor_is_contiguous(tensor));
    if (bytes && !fsdp_tensor_is_held_elsewhere(tensor) && !tensor->storage->data)
        return fsdp_error(FSDP_ERR_STATE, "the tensor has no memory");
    if (!w)
        FSDP_TRY(add_watch(s, tensor->storage, &w));
    fsdp_snapshot_part *part = fsdp_calloc(1, sizeof *part);
    block *blocks = fsdp_calloc(n_blocks, sizeof *blocks);
    if (!part || !blocks) {
        fsdp_free(blocks);
        fsdp_free(part);
        return FSDP_ERR_NOMEM;
    }
    *part = (fsdp_snapshot_part){.watch = w,
                                 .offset = (size_t)tensor->offset * element,
                                 .bytes = bytes,
                                 .blocks = blocks,
                                 .n_blocks = n_blocks,
                                 .next = w->parts};
    w->parts = part;
    *out = part;
    return FSDP_OK;
}

static void free_part(fsdp_snapshot *s, fsdp_snapshot_part *part)
{
    for (size_t i = 0; i < part->n_blocks; i++)
        drop_copy(s, &part->blocks[i], block_bytes(part, i));
    fsdp_free(part->blocks);
    fsdp_free(part);
}

/* Remove the watch's guard from the storage and free the watch. The guard has already been removed
 * if the storage has lost its memory. */
static void free_watch(fsdp_snapshot *s, watch *w)
{
    for (fsdp_snapshot_part *part = w->parts, *next; part; part = next) {
        next = part->next;
        free_part(s, part);
    }
    fsdp_storage_guard **at = &w->storage->guards;
    while (*at && *at != &w->guard)
        at = &(*at)->next;
    if (*at)
        *at = w->guard.next;
    fsdp_storage_release(w->storage);
    fsdp_free(w);
}

void fsdp_snapshot_destroy(fsdp_snapshot *s)
{
    if (!s)
        return;
    for (watch *w = s->watches, *next; w; w = next) {
        next = w->next;
        free_watch(s, w);
    }
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    fsdp_free(s);
}
