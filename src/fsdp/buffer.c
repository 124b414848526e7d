/* See buffer.h. */
#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/comm/cards/cards.h"
#include "src/comm/group.h"
#include "src/fsdp/buffer.h"

struct fsdp_buffer {
    fsdp_device *device;
    size_t bytes;
    fsdp_tag tag;
    int64_t held;      /* bytes that this rank accounts for; less than part_of_rank() after a
                          discard */
    fsdp_group *group; /* NULL: the buffer is private, and its memory is `block` */
    fsdp_shared_buffer *shared; /* NULL: the buffer is private or is on meta */
    fsdp_block *block; /* memory of a private buffer; NULL: the buffer is shared, or its memory was
                          discarded */
    void *data;        /* NULL on meta */
    bool in_phase;
};

/* Return the number of bytes that this rank accounts for while nothing is discarded: its share of a
 * shared buffer, or all bytes of a private buffer. */
static int64_t part_of_rank(const fsdp_buffer *b)
{
    if (!b->group)
        return (int64_t)b->bytes;
    const size_t unit = b->device->traits->shared_bytes;
    return (int64_t)((b->bytes + unit - 1) / unit * unit) /
           fsdp_group_memory_ranks(b->group, b->device);
}

static bool is_whole(const fsdp_buffer *b)
{
    return b->held == part_of_rank(b);
}

/* Allocate the memory of a private buffer. A shared buffer gets its pages when ranks write to it,
 * so only account for its bytes. */
static fsdp_status acquire_memory(fsdp_buffer *b)
{
    fsdp_allocator *allocator = b->device->allocator;
    const int64_t part = part_of_rank(b);
    if (!b->group)
        FSDP_TRY(fsdp_allocator_alloc_lasting(allocator, b->bytes, b->tag, &b->block, &b->data));
    if (b->group)
        fsdp_allocator_account(allocator, b->tag, part - b->held);
    b->held = part;
    return FSDP_OK;
}

/* For a shared buffer: from now on, account for only `keep` bytes. For a private buffer: free its
 * memory; `keep` must be 0. */
static void release_memory(fsdp_buffer *b, int64_t keep)
{
    fsdp_allocator *allocator = b->device->allocator;
    if (b->group)
        fsdp_allocator_account(allocator, b->tag, keep - b->held);
    fsdp_allocator_free(allocator, b->block);
    b->block = NULL;
    b->held = keep;
}

fsdp_status fsdp_buffer_create(fsdp_device *device, fsdp_group *group, size_t bytes, fsdp_tag tag,
                               fsdp_buffer **buffer)
{
    fsdp_buffer *b = fsdp_calloc(1, sizeof *b);
    if (!b)
        return FSDP_ERR_NOMEM;
    b->device = device;
    b->bytes = bytes;
    b->tag = tag;
    b->group = group;
    fsdp_status status = group && device->kernels
                             ? fsdp_shared_buffer_create_on(group, device, bytes, &b->shared)
                             : FSDP_OK;
    if (status == FSDP_OK)
        status = acquire_memory(b);
    if (status != FSDP_OK) {
        fsdp_shared_buffer_destroy(b->shared);
        fsdp_free(b);
        return status;
    }
    if (b->shared)
        b->data = fsdp_shared_buffer_data(b->shared);
    *buffer = b;
    return FSDP_OK;
}

/* Wait until no kernel of this rank uses the buffer. Call this before peers may use it. If a kernel
 * has failed, the buffer's contents are wrong, so abort the group. */
static void wait_for_kernels(const fsdp_buffer *b)
{
    fsdp_status status = fsdp_device_synchronize(b->device);
    if (status != FSDP_OK)
        fsdp_group_abort(b->group, status);
}

void fsdp_buffer_destroy(fsdp_buffer *b)
{
    if (!b)
        return;
    if (b->shared) /* even if no phase is open, kernels may still be using this rank's rows */
        wait_for_kernels(b);
    release_memory(b, 0);
    fsdp_shared_buffer_destroy(b->shared);
    fsdp_free(b);
}

/* Discard at least `excess` bytes of the buffer, or all its bytes if it has fewer. See Note [Idle
 * memory] in buffer.h. */
static fsdp_status discard(fsdp_buffer *b, int64_t excess)
{
    int64_t keep = b->group && b->held > excess ? b->held - excess : 0;
    keep -= keep % FSDP_COMM_PAGE;
    if (b->shared) {
        /* A group of one rank does not wait at the end of a phase: see fsdp_buffer_end(). */
        wait_for_kernels(b);
        FSDP_TRY(fsdp_shared_buffer_discard(b->shared, (size_t)keep));
    }
    release_memory(b, keep);
    return FSDP_OK;
}

void *fsdp_buffer_data(const fsdp_buffer *b)
{
    return b->data;
}

fsdp_status fsdp_buffer_begin(fsdp_buffer *b, fsdp_phase phase, const fsdp_phase_info *info)
{
    if (b->shared)
        FSDP_TRY(fsdp_phase_begin(b->shared, phase, info));
    b->in_phase = true;
    return FSDP_OK;
}

void fsdp_buffer_wrote(fsdp_buffer *b, int reader, size_t offset, size_t bytes)
{
    if (b->shared && b->in_phase)
        fsdp_phase_wrote(b->shared, reader, offset, bytes);
}

void fsdp_buffer_wrote_for(fsdp_buffer *b, int reader, size_t offset, size_t to, size_t bytes)
{
    if (b->shared && b->in_phase)
        fsdp_phase_wrote_for(b->shared, reader, offset, to, bytes);
}

fsdp_status fsdp_buffer_to_host(const fsdp_buffer *b, void *dst, const void *src, size_t bytes)
{
    return b->shared && fsdp_phase_arrives_late(b->shared)
               ? fsdp_device_to_host(b->device, dst, src, bytes)
               : fsdp_device_peek(b->device, dst, src, bytes);
}

void fsdp_buffer_end(fsdp_buffer *b)
{
    if (b->shared && b->in_phase) {
        if (fsdp_phase_send(b->shared))
            wait_for_kernels(b);
        fsdp_phase_end(b->shared);
    }
    b->in_phase = false;
}

/* --- pools --- */

static bool can_take(const fsdp_pool *pool, size_t i, size_t bytes)
{
    const fsdp_buffer *b = pool->items[i].buffer;
    const bool is_free = !pool->items[i].taken && !(pool->rotates && b == pool->last);
    return is_free && b->bytes >= bytes && b->bytes / 2 <= bytes;
}

static bool is_better(const fsdp_buffer *a, const fsdp_buffer *b)
{
    return is_whole(a) != is_whole(b) ? is_whole(a) : a->bytes < b->bytes;
}

/* Round a size up by at most 1/64 of it, or to a multiple of 64 bytes if the size is small. Then
 * units whose sizes differ only by a small parameter use the same buffers. */
static size_t round_up(size_t bytes)
{
    size_t step = 64;
    while (step <= bytes / 128)
        step *= 2;
    return (bytes + step - 1) / step * step;
}

static fsdp_status acquire_buffer(fsdp_pool *pool, size_t bytes, fsdp_buffer **buffer)
{
    size_t best = pool->n;
    for (size_t i = 0; i < pool->n; i++)
        if (can_take(pool, i, bytes) &&
            (best == pool->n || is_better(pool->items[i].buffer, pool->items[best].buffer)))
            best = i;
    if (best == pool->n) {
        if (!FSDP_GROW(pool->items, pool->cap, pool->n + 1))
            return FSDP_ERR_NOMEM;
        FSDP_TRY(fsdp_buffer_create(pool->device, pool->group, round_up(bytes), pool->tag,
                                    &pool->items[best].buffer));
        pool->n++;
    } else if (!is_whole(pool->items[best].buffer)) {
        FSDP_TRY(acquire_memory(pool->items[best].buffer));
    }
    pool->items[best].taken = true;
    pool->last = NULL;
    *buffer = pool->items[best].buffer;
    return FSDP_OK;
}

fsdp_status fsdp_pool_acquire(fsdp_pool *pool, size_t bytes, fsdp_buffer **buffer)
{
    const fsdp_status status = acquire_buffer(pool, bytes, buffer);
    /* Peers would wait for this rank in the next phase of the buffer. */
    if (fsdp_group_world_size(pool->group) > 1)
        fsdp_group_abort(pool->group, status);
    return status;
}

void fsdp_pool_release(fsdp_pool *pool, fsdp_buffer *buffer)
{
    for (size_t i = 0; i < pool->n; i++) {
        if (pool->items[i].buffer != buffer)
            continue;
        FSDP_ASSERT(pool->items[i].taken);
        pool->items[i].taken = false;
        pool->last = buffer;
        return;
    }
    fsdp_assert_failed("the buffer is of this pool", __FILE__, __LINE__);
}

static int64_t held_by(fsdp_pool *const *pools, size_t n)
{
    int64_t held = 0;
    for (size_t p = 0; p < n; p++)
        for (size_t i = 0; i < pools[p]->n; i++)
            held += pools[p]->items[i].buffer->held;
    return held;
}

/* `excess` bytes must be discarded. Return true if `a` is a better choice for this than `b`. A
 * buffer that has at least `excess` bytes is a better choice than a buffer that has fewer. If both
 * have at least `excess` bytes, the smaller buffer is better. If both have fewer, the larger buffer
 * is better. This choice causes few page faults. */
static bool is_better_to_discard(const fsdp_buffer *a, const fsdp_buffer *b, int64_t excess)
{
    const bool enough = b->held >= excess;
    return enough ? a->held >= excess && a->held < b->held : a->held > b->held;
}

static fsdp_buffer *choose_to_discard(fsdp_pool *const *pools, size_t n, int64_t excess)
{
    fsdp_buffer *best = NULL;
    for (size_t p = 0; p < n; p++) {
        for (size_t i = 0; i < pools[p]->n; i++) {
            fsdp_buffer *b = pools[p]->items[i].buffer;
            if (!pools[p]->items[i].taken && b->held &&
                (!best || is_better_to_discard(b, best, excess)))
                best = b;
        }
    }
    return best;
}

fsdp_status fsdp_pools_trim(fsdp_pool *const *pools, size_t n, int64_t keep)
{
    int64_t excess;
    if (n && pools[0]->device->traits->keeps_idle_memory)
        return FSDP_OK;
    while ((excess = held_by(pools, n) - keep) > 0) {
        fsdp_buffer *b = choose_to_discard(pools, n, excess);
        if (!b)
            break;
        FSDP_TRY(discard(b, excess));
    }
    return FSDP_OK;
}

fsdp_status fsdp_pool_move(fsdp_pool *pool, fsdp_device *device)
{
    if (pool->device == device)
        return FSDP_OK;
    for (size_t i = 0; i < pool->n; i++)
        if (pool->items[i].taken)
            return fsdp_error(FSDP_ERR_STATE, "to_empty: another unit of the model is gathered, or "
                                              "has gradients that are not communicated yet");
    const fsdp_pool moved = {
        .device = device, .group = pool->group, .tag = pool->tag, .rotates = pool->rotates};
    fsdp_pool_fini(pool);
    *pool = moved;
    return FSDP_OK;
}

void fsdp_pool_fini(fsdp_pool *pool)
{
    for (size_t i = 0; i < pool->n; i++)
        fsdp_buffer_destroy(pool->items[i].buffer);
    fsdp_free(pool->items);
    *pool = (fsdp_pool){0};
}
