/* One optimizer step: micro-batches forward and backward, the global loss, clipping, the update.
 *
 * Note [Loss of a step]. Each micro-batch (leaf m = a * W + r) gives the sum of its labels' losses
 * and their count. With token-mean the loss is sum / count over all leaves of all ranks, and the
 * gradient of the sums is divided by the count once, after everything was added. With
 * mean-of-means each leaf is divided by its own count first, and the sum of leaves by their number:
 * what PyTorch's scripts do. Leaf losses are gathered and added in leaf order, so that the printed
 * loss does not depend on the world size. */
#pragma once
#include <fsdp/data.h>
#include <fsdp/fsdp.h>
#include <fsdp/optim.h>

#include "src/train/config.h"

typedef struct fsdp_train_loop {
    fsdp_group *group; /* borrowed, as all below */
    fsdp_device *device;
    fsdp_module *module; /* T5ForConditionalGeneration, sharded */
    fsdp_tape *tape;
    fsdp_optimizer *optimizer;
    fsdp_parameter_list parameters;
    bool mean_of_means, training_dropout;
    int micro_steps;
    double max_grad_norm; /* 0: no clipping; the norm is reported all the same */
} fsdp_train_loop;

typedef struct fsdp_step_result {
    double loss;      /* of the global batch */
    double grad_norm; /* before clipping */
    int64_t tokens;   /* source + target, all ranks */
    int64_t labels;   /* that counted, all ranks */
    int64_t rows;     /* all ranks */
} fsdp_step_result;

/* Take micro_steps batches from the loader and do one step with learning rate lr. `step` counts
 * from 0 and is only for messages. FSDP_ERR_NUMERIC if the loss or the norm is not finite: nothing
 * was updated then. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_train_step(fsdp_train_loop *loop, fsdp_loader *loader, double lr,
                                            int64_t step, fsdp_step_result *result);

/* Loss over everything the loader has, without gradients: (sum, count) over ranks, or the mean of
 * means. `each` is called after each batch on every rank (progress); may be NULL. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_validate(fsdp_train_loop *loop, fsdp_loader *loader,
                                          void (*each)(void *arg), void *arg,
                                          fsdp_step_result *result);
