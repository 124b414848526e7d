/* Buffers for the parameters and gradients of units, and pools of buffers that units use in turn. A
 * buffer is private to one rank, or all ranks of a group share it.
 *
 * All ranks take and return buffers in the same order: the order of the program's calls. Which
 * buffer is taken depends only on this order and on sizes. So all ranks use the same buffer for the
 * same unit without any communication. A pool grows when the program needs more buffers at once
 * than before, or buffers of another size. A free buffer that has more than twice the requested
 * size is not taken, because a larger unit may need it soon. Late peers may still be reading the
 * buffer that was returned last. A rank that prefetches into this buffer would have to wait for
 * them. A pool with `rotates` avoids this wait: it has one more buffer, and does not take the
 * buffer that was returned last.
 *
 * Note [Idle memory]. Between steps, units do not need the buffers of the pools. If the pools
 * returned all this memory to the system, the next step would get it back page by page, with a page
 * fault for each page. So the pools keep a part of it. When the backward of a step ends, the pools
 * are trimmed to a limit, which applies to all pools together. The limit is the sum, over all
 * trained parameters, of the size of the parameter's largest shard. For master weights that are
 * stored as halves, the bytes of the marks (src/base/halves.h) are subtracted from this size. So
 * master weights, marks and pools together take at most twice as much memory as the master weights
 * alone.
 *
 * When a step has ended and its gradients are dropped, the memory of a rank consists of its rows,
 * the two moments of the optimizer, and the pools. Rows, moments and pools together take at most
 * four times as much memory as the rank's shards.
 *
 * With two ranks, the pools are smaller than the limit, and there are no page faults after the
 * first step. The exception is a model that consists mostly of an embedding. With more ranks,
 * shards are smaller, and so is the limit. Backward may then need more memory at one time than the
 * limit: the gradient buffers of the largest unit, and two sections of a block. In this case, only
 * the excess over the limit is discarded, and its pages fault again in each step.
 *
 * On a GPU nothing is trimmed (fsdp_device_traits.keeps_idle_memory).
 *
 * A trim removes the same number of pages from every rank's part of a shared buffer. It always
 * frees a private buffer as a whole. This causes no page faults, because the allocator keeps the
 * pages. */
#pragma once
#include "src/comm/comm.h"
#include "src/tensor/tensor.h"

typedef struct fsdp_buffer fsdp_buffer;

/* Create a buffer. If `group` is NULL, the buffer is private to this rank, and its phases cost
 * nothing. On meta a buffer has no data, but the allocator counts its bytes. If L ranks of the
 * group share the buffer's memory (fsdp_group_memory_ranks()), each of them counts 1/L of the
 * bytes. L is the same on all ranks. */
FSDP_MUST_CHECK fsdp_status fsdp_buffer_create(fsdp_device *device, fsdp_group *group, size_t bytes,
                                               fsdp_tag tag, fsdp_buffer **buffer);
void fsdp_buffer_destroy(fsdp_buffer *buffer); /* accepts NULL */
void *fsdp_buffer_data(const fsdp_buffer *buffer);
FSDP_MUST_CHECK fsdp_status fsdp_buffer_begin(fsdp_buffer *buffer, fsdp_phase phase,
                                              const fsdp_phase_info *info);
/* See fsdp_phase_wrote(). No effect if the buffer is private. */
void fsdp_buffer_wrote(fsdp_buffer *buffer, int reader, size_t offset, size_t bytes);
/* See fsdp_phase_wrote_for(). */
void fsdp_buffer_wrote_for(fsdp_buffer *buffer, int reader, size_t offset, size_t to, size_t bytes);
/* Call this in a READ phase of a buffer whose data is in memory that the host cannot read. Copy
 * `bytes` bytes from the address `src` in the buffer to `dst` in host memory. The ranks have
 * written these bytes in the WRITE phase. Wait for this rank's kernels only if
 * fsdp_phase_arrives_late() is true for the buffer. */
FSDP_MUST_CHECK fsdp_status fsdp_buffer_to_host(const fsdp_buffer *buffer, void *dst,
                                                const void *src, size_t bytes);
void fsdp_buffer_end(fsdp_buffer *buffer); /* no effect if no phase has begun */

typedef struct fsdp_pool {
    fsdp_device *device;
    fsdp_group *group; /* NULL: the buffers are private */
    fsdp_tag tag;
    bool rotates;      /* fsdp_pool_acquire() does not take the buffer `last` */
    fsdp_buffer *last; /* the buffer released last; NULL if a buffer was acquired since then */
    struct {
        fsdp_buffer *buffer;
        bool taken;
    } * items;
    size_t n, cap;
} fsdp_pool;

/* Take a free buffer that has at least `bytes` and at most 2 * `bytes` bytes. Prefer buffers that
 * have lost no memory to a trim, then smaller buffers. If no free buffer has such a size, create
 * one. Collective if the pool has a group. */
FSDP_MUST_CHECK fsdp_status fsdp_pool_acquire(fsdp_pool *pool, size_t bytes, fsdp_buffer **buffer);
void fsdp_pool_release(fsdp_pool *pool, fsdp_buffer *buffer);
/* Discard memory of free buffers until all buffers of the `n` pools, including those in use,
 * together have at most `keep` bytes on this rank. Stop earlier if no free buffer has memory left.
 * Collective; `keep` must be the same on all ranks. */
FSDP_MUST_CHECK fsdp_status fsdp_pools_trim(fsdp_pool *const *pools, size_t n, int64_t keep);
/* Destroy the buffers of the pool. Buffers that the pool creates from now on will be on `device`.
 * No effect if the pool is on `device` already. Return FSDP_ERR_STATE if a buffer of the pool is in
 * use. */
FSDP_MUST_CHECK fsdp_status fsdp_pool_move(fsdp_pool *pool, fsdp_device *device);
void fsdp_pool_fini(fsdp_pool *pool);
