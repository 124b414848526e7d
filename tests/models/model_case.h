/* Shared by tests of all models: a model, sharded or not, and a batch. */
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

/* Loads the model of tests/golden/<name> and the batch of its <inputs>.safetensors. Blocks and root
 * are units with `options` (may be NULL) over t->group, unless t has none. */
void model_case_open(fsdp_test *t, const char *name, const char *inputs,
                     const fsdp_fully_shard_options *options, model_case *c);
/* Makes a model with initial values from seed 1, without a batch. */
void model_case_create(fsdp_test *t, const fsdp_model_config *config, model_case *c);
/* The same, with units that have `options`. */
void model_case_shard(fsdp_test *t, const fsdp_model_config *config,
                      const fsdp_fully_shard_options *options, model_case *c);
void model_case_close(model_case *c);

/* Computes the mean loss of c->batch and its gradients, which stay in the parameters. */
void model_case_step(fsdp_test *t, model_case *c, double *loss);
/* The whole gradient of parameter `name` as floats [numel]; freed with fsdp_free(). */
void model_case_gradient(fsdp_test *t, const model_case *c, const char *name, float **gradient);
/* How far a sharded model may be from the same model without units, relative to the largest element
 * of a tensor. 0, but on a device that joins the products of a unit (src/autograd/joined_linear.h):
 * one product then adds what three products round first. */
float model_case_spread(const model_case *sharded);
/* Checks that the gradients of `a` and `b` differ by at most `relative` times the largest value of
 * a parameter plus `absolute`. */
void model_case_compare_gradients(fsdp_test *t, const model_case *a, const model_case *b,
                                  float relative, float absolute);
/* Peak bytes of activations so far. */
int64_t model_case_activations(const model_case *c);
/* Logits of c->batch; freed with fsdp_free(). */
void model_case_logits(fsdp_test *t, model_case *c, float **logits);

/* Opens tests/golden/<name>/<file>.safetensors. */
void model_case_expected(fsdp_test *t, const char *name, const char *file,
                         fsdp_checkpoint_reader **reader);
