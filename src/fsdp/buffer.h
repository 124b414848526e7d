/* Memory of units: private to the rank, or a shared buffer that all ranks of a group see; and a
 * pool of such buffers that units take turns with.
 *
 * Every rank takes and gives back buffers in the same program order, and the choice depends on
 * sizes alone. So all ranks use the same buffer for the same unit without any communication. The
 * pool grows when the program holds more units at once than before, or units of another size. A
 * free buffer of more than twice the requested size is not taken, because a larger unit may need it
 * soon. A pool that rotates has one extra buffer. A rank that writes ahead of time then does not
 * wait for peers that still read the buffer it has just left, and prefetching hides that they are
 * late.
 *
 * Note [Idle memory]. No buffer of a pool is needed between steps. But memory that was returned to
 * the system comes back page by page, with a fault for each page. So at the end of a step's
 * backward, pools keep their memory up to a limit: the size of this rank's rows of the trained
 * parameters (without the marks of halved masters). With those rows and two moments that is four
 * shards at most, once gradients are dropped. With two ranks the limit is never reached, and
 * nothing faults after the first step, unless an embedding is most of the model. With more ranks a
 * shard may be smaller than what backward needs at once: the gradient buffers of the largest unit
 * and two sections of a block. Then only the excess is discarded, in equal parts for the ranks that
 * write it, and it faults again once a step. A private buffer is discarded whole. This costs
 * nothing, because the allocator keeps its pages. */
#pragma once
#include "src/comm/comm.h"
#include "src/tensor/tensor.h"

typedef struct fsdp_buffer fsdp_buffer;

/* group NULL: the buffer is private to this rank, and phases cost nothing. On meta there is no
 * data, but the bytes are counted. Each of L local ranks counts 1/L of the bytes of a shared
 * buffer; L is the same on all hosts. */
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
    bool rotates;      /* the buffer that was given back last is not the next one taken */
    fsdp_buffer *last; /* given back after the latest take; NULL: none */
    struct {
        fsdp_buffer *buffer;
        bool taken;
    } * items;
    size_t n, cap;
} fsdp_pool;

/* Take the smallest free buffer of `bytes` to twice as many bytes, or create one. Buffers of which
 * nothing was discarded are preferred. Collective if the pool is shared. */
FSDP_MUST_CHECK fsdp_status fsdp_pool_take(fsdp_pool *pool, size_t bytes, fsdp_buffer **buffer);
void fsdp_pool_give_back(fsdp_pool *pool, fsdp_buffer *buffer);
/* Discard memory of free buffers until all buffers of the pools, taken ones included, hold at most
 * `keep` bytes on this rank, or no free buffer is left. Collective; `keep` is the same on all
 * ranks. */
FSDP_MUST_CHECK fsdp_status fsdp_pools_trim(fsdp_pool *const *pools, size_t n, int64_t keep);
/* Create buffers on `device` from now on. FSDP_ERR_STATE if a buffer is taken. */
FSDP_MUST_CHECK fsdp_status fsdp_pool_move(fsdp_pool *pool, fsdp_device *device);
void fsdp_pool_fini(fsdp_pool *pool);
