/* See buffer.h. */
#include "src/fsdp/buffer.h"
#include "src/base/alloc.h"
#include "src/base/assert.h"

struct fsdp_buffer {
    fsdp_device *device;
    size_t bytes;
    fsdp_tag tag;
    int64_t accounted;          /* what a shared buffer counts on this rank */
    fsdp_shared_buffer *shared; /* or */
    fsdp_block *block;          /* the allocator's */
    void *data;                 /* NULL on meta */
    bool in_phase;
};

fsdp_status fsdp_buffer_create(fsdp_device *device, fsdp_group *group, size_t bytes, fsdp_tag tag,
                               fsdp_buffer **buffer)
{
    fsdp_buffer *b = fsdp_calloc(1, sizeof *b);
    if (!b)
        return FSDP_ERR_NOMEM;
    b->device = device;
    b->bytes = bytes;
    b->tag = tag;
    fsdp_status status = FSDP_OK;
    if (!group) {
        status = fsdp_allocator_alloc(device->allocator, bytes, tag, &b->block, &b->data);
    } else {
        if (device->kernels)
            status = fsdp_shared_buffer_create(group, bytes, &b->shared);
        if (status == FSDP_OK) {
            b->data = b->shared ? fsdp_shared_buffer_data(b->shared) : NULL;
            b->accounted = (int64_t)bytes / fsdp_group_local_world_size(group);
            fsdp_allocator_account(device->allocator, tag, b->accounted);
        }
    }
    if (status != FSDP_OK) {
        fsdp_free(b);
        return status;
    }
    *buffer = b;
    return FSDP_OK;
}

void fsdp_buffer_destroy(fsdp_buffer *b)
{
    if (!b)
        return;
    fsdp_shared_buffer_destroy(b->shared);
    fsdp_allocator_free(b->device->allocator, b->block);
    if (b->accounted)
        fsdp_allocator_account(b->device->allocator, b->tag, -b->accounted);
    fsdp_free(b);
}

void *fsdp_buffer_data(const fsdp_buffer *b)
{
    return b->data;
}

size_t fsdp_buffer_bytes(const fsdp_buffer *b)
{
    return b->bytes;
}

fsdp_status fsdp_buffer_begin(fsdp_buffer *b, fsdp_phase phase, const fsdp_phase_info *info)
{
    if (b->shared)
        FSDP_TRY(fsdp_phase_begin(b->shared, phase, info));
    b->in_phase = true;
    return FSDP_OK;
}

void fsdp_buffer_end(fsdp_buffer *b)
{
    if (b->shared && b->in_phase)
        fsdp_phase_end(b->shared);
    b->in_phase = false;
}

fsdp_status fsdp_pool_take(fsdp_pool *pool, size_t bytes, fsdp_buffer **buffer)
{
    size_t best = pool->n;
    for (size_t i = 0; i < pool->n; i++)
        if (!pool->items[i].taken && pool->items[i].buffer->bytes >= bytes &&
            (best == pool->n || pool->items[i].buffer->bytes < pool->items[best].buffer->bytes))
            best = i;
    if (best == pool->n) {
        if (!FSDP_GROW(pool->items, pool->cap, pool->n + 1))
            return FSDP_ERR_NOMEM;
        FSDP_TRY(fsdp_buffer_create(pool->device, pool->group, bytes, pool->tag,
                                    &pool->items[best].buffer));
        pool->n++;
    }
    pool->items[best].taken = true;
    *buffer = pool->items[best].buffer;
    return FSDP_OK;
}

void fsdp_pool_give_back(fsdp_pool *pool, fsdp_buffer *buffer)
{
    for (size_t i = 0; i < pool->n; i++) {
        if (pool->items[i].buffer != buffer)
            continue;
        FSDP_ASSERT(pool->items[i].taken);
        pool->items[i].taken = false;
        return;
    }
    fsdp_assert_failed("the buffer is of this pool", __FILE__, __LINE__);
}

void fsdp_pool_fini(fsdp_pool *pool)
{
    for (size_t i = 0; i < pool->n; i++)
        fsdp_buffer_destroy(pool->items[i].buffer);
    fsdp_free(pool->items);
    *pool = (fsdp_pool){0};
}
