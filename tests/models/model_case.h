/* What tests of any model share: a model, sharded or not, and a batch. */
#pragma once
#include <fsdp/ckpt.h>
#include <fsdp/fsdp.h>
#include <fsdp/models.h>

#include "tests/test.h"

typedef struct model_case {
    fsdp_device *device;
    fsdp_module *model;
    fsdp_tape *tape;
    fsdp_batch *batch;
} model_case;

/* The model of tests/golden/<name>, loaded; and the batch of its <inputs>.safetensors. Blocks and
 * root are units over t->group, unless t has none. */
void model_case_open(fsdp_test *t, const char *name, const char *inputs, model_case *c);
/* A model drawn from seed 1, without a batch. */
void model_case_create(fsdp_test *t, const fsdp_model_config *config, model_case *c);
/* The same, its units with `options`. */
void model_case_shard(fsdp_test *t, const fsdp_model_config *config,
                      const fsdp_fully_shard_options *options, model_case *c);
void model_case_close(model_case *c);

/* Mean loss of c->batch and its gradients, which stay in the parameters. */
void model_case_step(fsdp_test *t, model_case *c, double *loss);
/* The whole gradient of parameter `name` as floats [numel]; freed with fsdp_free(). */
void model_case_gradient(fsdp_test *t, const model_case *c, const char *name, float **gradient);
/* Logits of c->batch; freed with fsdp_free(). */
void model_case_logits(fsdp_test *t, model_case *c, float **logits);

/* tests/golden/<name>/<file>.safetensors. */
void model_case_expected(fsdp_test *t, const char *name, const char *file,
                         fsdp_checkpoint_reader **reader);
/* Loss, and the gradient of every parameter, of c->batch are those of `expected`. */
void model_case_check_gradients(fsdp_test *t, model_case *c,
                                const fsdp_checkpoint_reader *expected);
/* Packed rows [tokens, width] stand at c->batch's positions of the padded rows of `name`. */
void model_case_check_rows(fsdp_test *t, const model_case *c,
                           const fsdp_checkpoint_reader *expected, const char *name,
                           const fsdp_tensor *actual);
