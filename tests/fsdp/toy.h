/* A small model for sharding tests: an embedding, blocks of two linear layers around a norm with a
 * residual, a tied head. The test chooses its widths, so rows may divide unevenly or not at all. */
#pragma once
#include <fsdp/fsdp.h>

#include "src/nn/module.h"

typedef struct toy_shape {
    int64_t vocab, width, hidden;
    int blocks;
} toy_shape;

typedef struct toy_batch {
    const int32_t *ids, *labels;
    int64_t n;
    float factor;
} toy_batch;

FSDP_MUST_CHECK fsdp_status toy_create(const toy_shape *shape, fsdp_module **model);
/* Shard each block and the root over `group`. */
FSDP_MUST_CHECK fsdp_status toy_shard(fsdp_module *model, fsdp_group *group, fsdp_device *device,
                                      const fsdp_fully_shard_options *options);
/* Loss of a batch; the model's root is called through its hooks. Owned by s. */
fsdp_tensor *toy_loss(fsdp_scope *s, fsdp_module *model, const toy_batch *batch);
