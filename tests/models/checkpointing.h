/* For tests of activation checkpointing: rows, a training step, and a comparison of two models'
 * gradients. */
#pragma once
#include "tests/models/model_checks.h"

typedef fsdp_activation_checkpointing_options ac_options;

/* The modules that are checkpointed. */
typedef enum ac_scope {
    BLOCKS,
    NESTED_IN_BLOCKS, /* blocks, and the modules directly below them */
    LAYERS,           /* modules without children, including the head with its loss */
    ALL_MODULES
} ac_scope;

/* Reads the configuration of golden/`name` and sets its dropout to 0.2. The second function also
 * sets the number of layers to n. */
void ac_read_config(fsdp_test *t, const char *name, fsdp_model_config *config);
void ac_set_layers(fsdp_model_config *config, const char *name, int64_t n);
fsdp_status ac_checkpoint_blocks(fsdp_module *model, const ac_options *options, ac_scope which);
/* Rows are long enough for activations inside of blocks to dominate. masked: there are no labels
 * before the last third. */
void ac_make_rows(fsdp_test *t, const fsdp_model_config *config, bool masked, fsdp_batch **batch);
/* A training step, with dropout. */
void ac_train_step(fsdp_test *t, model_case *c, int step, double *loss);
/* Checks that the gradients of all parameters that have one are bit for bit the same. */
void ac_compare(fsdp_test *t, const model_case *a, const model_case *b);
