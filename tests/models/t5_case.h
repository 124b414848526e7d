/* What tests of T5 share: a model of a golden folder, sharded or not, and its batch. */
#pragma once
#include <fsdp/fsdp.h>
#include <fsdp/models.h>

#include "tests/test.h"

typedef struct t5_case {
    fsdp_device *device;
    fsdp_module *model;
    fsdp_tape *tape;
    fsdp_batch *batch;
} t5_case;

/* The model of tests/golden/<name>, loaded; and the batch of its inputs.safetensors. Blocks and
 * root are units over t->group, unless t has none. `options` may be NULL. */
void t5_case_open(fsdp_test *t, const char *name, const fsdp_fully_shard_options *options,
                  t5_case *c);
/* The same for a shape that is no golden one, drawn from seed 1; without a batch. */
void t5_case_create(fsdp_test *t, const fsdp_t5_config *config,
                    const fsdp_fully_shard_options *options, t5_case *c);
void t5_case_close(t5_case *c);

/* fully_shard of each block and of the root over t->group; without one, memory for all. */
void t5_case_shard(fsdp_test *t, const fsdp_fully_shard_options *options, t5_case *c);

/* Mean loss of c->batch and its gradients, which stay in the parameters. */
void t5_case_step(fsdp_test *t, t5_case *c, double *loss);
/* The whole gradient of parameter `name` as floats [numel]; freed with fsdp_free(). */
void t5_case_gradient(fsdp_test *t, const t5_case *c, const char *name, float **gradient);
