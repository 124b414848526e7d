/* The properties that every model must have, checked for a shape and rows that the test chooses. */
#pragma once
#include "tests/models/model_case.h"

typedef struct model_rows {
    const fsdp_batch_row *rows;
    int32_t n;
} model_rows;

/* Checks that `model` has modules (path, class). */
void model_check_classes(fsdp_test *t, fsdp_module *model, const char *const (*expected)[2],
                         size_t n);

/* Makes a batch of the kind that the model of `config` takes. */
void model_make_batch(fsdp_test *t, const fsdp_model_config *config, model_rows rows,
                      fsdp_batch **batch);

/* Checks that two training steps, with the configuration's dropout, give the loss and the gradients
 * of an unsharded model. They must be bit for bit the same, except on 3 ranks, where the mean of
 * equal numbers may be rounded. `options` may be NULL. */
void model_check_sharding(fsdp_test *t, const fsdp_model_config *config,
                          const fsdp_fully_shard_options *options, model_rows rows);
/* The same for a model of `config` that is sharded already and has no batch; closes it. */
void model_check_sharded(fsdp_test *t, const fsdp_model_config *config, model_rows rows,
                         model_case *sharded);
/* The same for each of `n` shapes, with dropout too; the first one also without
 * reshard_after_forward and with no_shard. */
void model_check_shapes(fsdp_test *t, const fsdp_model_config *configs, size_t n, model_rows rows);
/* Checks that a step in sections, in which each rank has its own batch rows[rank], gives the mean
 * of the gradients of an unsharded model for each batch. */
void model_check_batches_of_ranks(fsdp_test *t, const fsdp_model_config *config,
                                  const model_rows *rows);
/* Checks that batches without rows or without labels have loss 0 and gradients of 0. `unlabelled`
 * have no labels. */
void model_check_nothing_to_learn(fsdp_test *t, const fsdp_model_config *config,
                                  model_rows unlabelled);
/* Checks that a forward is refused as long as the model has no batch. */
void model_check_needs_batch(fsdp_test *t, const fsdp_model_config *config);
/* Checks that a first row with other ids (of the same length) changes no bit of the second row's
 * logits. */
void model_check_rows_are_apart(fsdp_test *t, const fsdp_model_config *config,
                                const fsdp_batch_row *first, const fsdp_batch_row *other,
                                const fsdp_batch_row *second);
/* Checks that dropout, with every rate at 0.3, depends on step and leaf, and is off outside of
 * training. */
void model_check_dropout(fsdp_test *t, const fsdp_model_config *config, model_rows rows);
/* Checks that two training steps, without and with dropout, request the same bytes by purpose on
 * the meta device and on the CPU. */
void model_check_meta(fsdp_test *t, const fsdp_model_config *config, model_rows rows);
/* Checks that the loss in bfloat16 is within `tolerance` of float32's and not equal to it, and in
 * float16 within a quarter of that. */
void model_check_halves(fsdp_test *t, const fsdp_model_config *config, model_rows rows,
                        double tolerance);
/* Checks that a batch of which few rows are read has the loss and gradients that logits of all
 * tokens give, with at most `percent` percent of their activations. */
void model_check_rows_read(fsdp_test *t, const fsdp_model_config *config, model_rows rows,
                           int percent);
