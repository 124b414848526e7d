/* Buffers for the parameters and gradients of units, and pools of buffers that units use in turn. A
 * buffer is private to the rank, or all ranks of a group share it.
 *
 * Every rank takes and returns buffers in the same program order. Which buffer is taken depends
 * only on this order and on sizes, so all ranks use the same buffer for the same unit without any
 * communication. A pool grows when the program needs more buffers at once than before, or buffers
 * of another size. A free buffer that has more than twice the requested size is not taken, because
 * a larger unit may need it soon. A pool that rotates does not reuse a buffer directly after it was
 * returned, and therefore has one more buffer. Peers that are late may still read such a buffer,
 * and a rank that prefetches would have to wait for them before it writes to the buffer.
 *
 * Note [Idle memory]. The buffers of a pool are not needed between steps. But if their memory were
 * returned to the system, the next step would get it back page by page, with a page fault for each
 * page. So at the end of a step's backward, the pools together keep at most as much memory as the
 * largest shards of all trained parameters. (The marks of halved masters count against this limit,
 * so that values, marks and pools together have at most twice the size of the values.) Once the
 * gradients have been dropped, a rank has at most four shards between steps: the pools, its rows,
 * and the two moments of the optimizer. With two ranks the limit is not reached, and there are no
 * page faults after the first step, unless an embedding is most of the model. With more ranks, a
 * shard may be smaller than the buffers that backward needs at the same time, which are the
 * gradient buffers of the largest unit and two sections of a block. Then only the excess is
 * discarded, and its pages fault again in each step. Every rank's part of a shared buffer loses the
 * same number of pages. All memory of a private buffer is discarded, because this costs nothing:
 * the allocator keeps its pages. */
#pragma once
#include "src/comm/comm.h"
#include "src/tensor/tensor.h"

typedef struct fsdp_buffer fsdp_buffer;

/* Create a buffer. If `group` is NULL, the buffer is private to this rank, and its phases cost
 * nothing. On meta a buffer has no data, but its bytes are counted. Each of the L ranks of a host
 * counts 1/L of the bytes of a shared buffer; L is the same on all hosts. */
FSDP_MUST_CHECK fsdp_status fsdp_buffer_create(fsdp_device *device, fsdp_group *group, size_t bytes,
                                               fsdp_tag tag, fsdp_buffer **buffer);
void fsdp_buffer_destroy(fsdp_buffer *buffer); /* accepts NULL */
void *fsdp_buffer_data(const fsdp_buffer *buffer);
FSDP_MUST_CHECK fsdp_status fsdp_buffer_begin(fsdp_buffer *buffer, fsdp_phase phase,
                                              const fsdp_phase_info *info);
void fsdp_buffer_end(fsdp_buffer *buffer); /* no effect if no phase has begun */

typedef struct fsdp_pool {
    fsdp_device *device;
    fsdp_group *group; /* NULL: the buffers are private */
    fsdp_tag tag;
    bool rotates;      /* fsdp_pool_acquire() does not take the buffer `last` */
    fsdp_buffer *last; /* the buffer returned last; NULL if one was taken since */
    struct {
        fsdp_buffer *buffer;
        bool taken;
    } * items;
    size_t n, cap;
} fsdp_pool;

/* Take a free buffer that has at least `bytes` bytes and at most twice as many. Prefer buffers that
 * still have all their memory, and among these the smallest one. If no buffer fits, create one.
 * Collective if the pool has a group. */
FSDP_MUST_CHECK fsdp_status fsdp_pool_acquire(fsdp_pool *pool, size_t bytes, fsdp_buffer **buffer);
void fsdp_pool_release(fsdp_pool *pool, fsdp_buffer *buffer);
/* Discard memory of free buffers until all buffers of the `n` pools, including taken ones, together
 * have at most `keep` bytes on this rank, or until no free buffer has memory left. Collective;
 * `keep` is the same on all ranks. */
FSDP_MUST_CHECK fsdp_status fsdp_pools_trim(fsdp_pool *const *pools, size_t n, int64_t keep);
/* Destroy the buffers of the pool and create later ones on `device`. No effect if the pool is on
 * `device` already. FSDP_ERR_STATE if a buffer is taken. */
FSDP_MUST_CHECK fsdp_status fsdp_pool_move(fsdp_pool *pool, fsdp_device *device);
void fsdp_pool_fini(fsdp_pool *pool);
