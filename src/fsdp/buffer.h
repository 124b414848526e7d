/* Memory of units: private to the rank, or a shared buffer that all ranks of a group see; and a
 * pool of such buffers that units take turns with.
 *
 * Every rank takes and gives back in the same program order and the choice depends on sizes alone,
 * so all ranks hold the same buffer for the same unit without a word exchanged. The pool grows
 * when the program holds more units at once than before. */
#pragma once
#include "src/comm/comm.h"
#include "src/tensor/tensor.h"

typedef struct fsdp_buffer fsdp_buffer;

/* group NULL: private to this rank; phases cost nothing then. On meta there is no data, but the
 * bytes are counted. Shared bytes count 1/L on each of L local ranks. */
FSDP_MUST_CHECK fsdp_status fsdp_buffer_create(fsdp_device *device, fsdp_group *group, size_t bytes,
                                               fsdp_tag tag, fsdp_buffer **buffer);
void fsdp_buffer_destroy(fsdp_buffer *buffer); /* accepts NULL */
void *fsdp_buffer_data(const fsdp_buffer *buffer);
size_t fsdp_buffer_bytes(const fsdp_buffer *buffer);
FSDP_MUST_CHECK fsdp_status fsdp_buffer_begin(fsdp_buffer *buffer, fsdp_phase phase,
                                              const fsdp_phase_info *info);
void fsdp_buffer_end(fsdp_buffer *buffer); /* no effect outside of a phase */

typedef struct fsdp_pool {
    fsdp_device *device;
    fsdp_group *group; /* NULL: private buffers */
    fsdp_tag tag;
    struct {
        fsdp_buffer *buffer;
        bool taken;
    } * items;
    size_t n, cap;
} fsdp_pool;

/* The smallest free buffer of at least `bytes`, or a new one. Collective if shared. */
FSDP_MUST_CHECK fsdp_status fsdp_pool_take(fsdp_pool *pool, size_t bytes, fsdp_buffer **buffer);
void fsdp_pool_give_back(fsdp_pool *pool, fsdp_buffer *buffer);
void fsdp_pool_fini(fsdp_pool *pool);
