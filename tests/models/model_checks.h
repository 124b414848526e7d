/* What every model promises, checked for a shape and rows that a test chooses. */
#pragma once
#include "tests/models/model_case.h"

typedef struct model_rows {
    const fsdp_batch_row *rows;
    int32_t n;
} model_rows;

/* `model` has modules (path, class). */
void model_check_classes(fsdp_test *t, fsdp_module *model, const char *const (*expected)[2],
                         size_t n);

/* A batch as the model of `config` wants it. */
void model_make_batch(fsdp_test *t, const fsdp_model_config *config, model_rows rows,
                      fsdp_batch **batch);

/* Two steps in training, with the configuration's dropout, give the loss and the gradients of a
 * model that is not sharded; to the last bit but on 3 ranks, where the mean of equal numbers may
 * round. `options` may be NULL. */
void model_check_sharding(fsdp_test *t, const fsdp_model_config *config,
                          const fsdp_fully_shard_options *options, model_rows rows);
/* The same for a model of `config` that is sharded already and has no batch; closes it. */
void model_check_sharded(fsdp_test *t, const fsdp_model_config *config, model_rows rows,
                         model_case *sharded);
/* That for each of `n` shapes, with dropout too; the first one also without reshard_after_forward
 * and with no_shard. */
void model_check_shapes(fsdp_test *t, const fsdp_model_config *configs, size_t n, model_rows rows);
/* A step in sections in which each rank has a batch of its own, of rows[rank], gives the mean of
 * the gradients that a model that is not sharded has of each. */
void model_check_batches_of_ranks(fsdp_test *t, const fsdp_model_config *config,
                                  const model_rows *rows);
/* Batches without rows or labels have loss 0 and gradients of 0. `unlabelled` have no labels. */
void model_check_nothing_to_learn(fsdp_test *t, const fsdp_model_config *config,
                                  model_rows unlabelled);
/* A first row of other ids changes no bit of the second one's logits; both firsts are as long. */
void model_check_rows_are_apart(fsdp_test *t, const fsdp_model_config *config,
                                const fsdp_batch_row *first, const fsdp_batch_row *other,
                                const fsdp_batch_row *second);
/* Dropout, at every rate 0.3, is drawn by step and leaf, and off outside of training. */
void model_check_dropout(fsdp_test *t, const fsdp_model_config *config, model_rows rows);
/* Two steps of training, without and with dropout, ask for the same bytes, by purpose, on the meta
 * device as on the CPU. */
void model_check_meta(fsdp_test *t, const fsdp_model_config *config, model_rows rows);
/* In bfloat16 the loss is within `tolerance` of float32's, in float16 within a quarter of that, and
 * not the same. */
void model_check_halves(fsdp_test *t, const fsdp_model_config *config, model_rows rows,
                        double tolerance);
/* The loss of a batch of which few rows are read, and its gradients, are those of logits of all
 * tokens, with at most so many percent of their activations. */
void model_check_rows_read(fsdp_test *t, const fsdp_model_config *config, model_rows rows,
                           int percent);
