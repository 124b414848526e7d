/* For tests of models whose modules run again in backward: rows, a step, and whether two models
 * have the same gradients. */
#pragma once
#include "tests/models/model_checks.h"

typedef fsdp_activation_checkpointing_options ac_options;

/* Modules that are checkpointed. */
typedef enum ac_scope {
    BLOCKS,
    NESTED_IN_BLOCKS, /* and what is directly below them */
    LAYERS,           /* what has no modules below it, the head with its loss among them */
    ALL_MODULES
} ac_scope;

/* The configuration of golden/`name`, with dropout of 0.2; and with n layers. */
void ac_read_config(fsdp_test *t, const char *name, fsdp_model_config *config);
void ac_set_layers(fsdp_model_config *config, const char *name, int64_t n);
fsdp_status ac_checkpoint_blocks(fsdp_module *model, const ac_options *options, ac_scope which);
/* Rows long enough for the blocks' insides to be most of the activations. masked: no label before
 * the last third. */
void ac_make_rows(fsdp_test *t, const fsdp_model_config *config, bool masked, fsdp_batch **batch);
/* A training step: dropout is on. */
void ac_train_step(fsdp_test *t, model_case *c, int step, double *loss);
/* The gradients of all parameters that have one are the same in every bit. */
void ac_compare(fsdp_test *t, const model_case *a, const model_case *b);
