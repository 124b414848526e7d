/* Memory of units: private to the rank, or a shared buffer that all ranks of a group see; and a
 * pool of such buffers that units take turns with.
 *
 * Every rank takes and gives back in the same program order and the choice depends on sizes alone,
 * so all ranks hold the same buffer for the same unit without a word exchanged. The pool grows
 * when the program holds more units at once than before, or units of another size: one of twice the
 * size is not taken, since the unit that needs it may come while it is. A pool that rotates has one
 * buffer more: what a rank writes ahead of time then does not wait for peers that still read what
 * it has just left, and prefetch hides that they are late.
 *
 * Note [Idle memory]. Between steps nothing in a pool is needed, but what is given to the system
 * comes back page by page, each a fault. So at the end of a step's backward pools keep what they
 * have, up to as much as this rank's rows of what trains take (less the marks of halved masters):
 * with those rows and two moments that is four shards at most, once gradients are dropped. With two
 * ranks that is all there is, and nothing faults after the first step, unless an embedding is most
 * of a model. With more a shard may be less than the gradient buffers of the largest unit and two
 * sections of a block, which backward needs at once; then as much is discarded as is too much and
 * no more, in equal parts for the ranks that write it, and faults when it is taken again: what is
 * beyond a shard, once a step. A private buffer is discarded whole, which costs nothing: the
 * allocator keeps its pages. */
#pragma once
#include "src/comm/comm.h"
#include "src/tensor/tensor.h"

typedef struct fsdp_buffer fsdp_buffer;

/* group NULL: private to this rank; phases cost nothing then. On meta there is no data, but the
 * bytes are counted. Shared bytes count 1/L on each of L local ranks: all hosts have as many. */
FSDP_MUST_CHECK fsdp_status fsdp_buffer_create(fsdp_device *device, fsdp_group *group, size_t bytes,
                                               fsdp_tag tag, fsdp_buffer **buffer);
void fsdp_buffer_destroy(fsdp_buffer *buffer); /* accepts NULL */
void *fsdp_buffer_data(const fsdp_buffer *buffer);
FSDP_MUST_CHECK fsdp_status fsdp_buffer_begin(fsdp_buffer *buffer, fsdp_phase phase,
                                              const fsdp_phase_info *info);
void fsdp_buffer_end(fsdp_buffer *buffer); /* no effect outside of a phase */

typedef struct fsdp_pool {
    fsdp_device *device;
    fsdp_group *group; /* NULL: private buffers */
    fsdp_tag tag;
    bool rotates;      /* the buffer given back last is taken again only after another one was */
    fsdp_buffer *last; /* given back since the last one was taken; NULL: none */
    struct {
        fsdp_buffer *buffer;
        bool taken;
    } * items;
    size_t n, cap;
} fsdp_pool;

/* The smallest free buffer of `bytes` to twice as many, one that has all its memory before one that
 * has not, or a new one. Collective if shared. */
FSDP_MUST_CHECK fsdp_status fsdp_pool_take(fsdp_pool *pool, size_t bytes, fsdp_buffer **buffer);
void fsdp_pool_give_back(fsdp_pool *pool, fsdp_buffer *buffer);
/* Discard free buffers until what all of the pools hold on this rank, taken or not, is at most
 * `keep` bytes, or none is left. Collective, and `keep` is the same on all ranks. */
FSDP_MUST_CHECK fsdp_status fsdp_pools_trim(fsdp_pool *const *pools, size_t n, int64_t keep);
/* Buffers are of `device` from here on. FSDP_ERR_STATE if one is taken. */
FSDP_MUST_CHECK fsdp_status fsdp_pool_move(fsdp_pool *pool, fsdp_device *device);
void fsdp_pool_fini(fsdp_pool *pool);
