/* One optimizer step: forward and backward of micro-batches, the global loss, clipping, the update.
 *
 * Note [Loss of a step]. Each micro-batch (leaf m = a * W + r) yields the sum of its labels' losses
 * and their count. With token-mean the loss is sum / count over all leaves of all ranks, and the
 * gradient of the sums is divided by the count once, after everything has been added. With
 * mean-of-means each leaf is divided by its own count first, and the sum of leaves by their number,
 * as PyTorch's scripts do. Leaf losses are gathered and added in leaf order, so the printed loss
 * does not depend on the world size.
 *
 * Note [Loss scale]. float16 needs gradients of a certain magnitude, so the loss is multiplied by
 * the scaler's scale. PyTorch scales the mean loss. Here gradients are those of sums until the end:
 * each leaf is multiplied by scale / P, where P is the smallest power of two that is not below the
 * count, and the division is by count / P. If the scale is a power of two, neither changes a bit. A
 * step whose gradients overflow updates nothing: not the parameters, not the moments, not the
 * optimizer's own count of steps. It counts as a step of the run, and the schedule advances, as in
 * scripts that call scaler.step(optimizer), scaler.update(), scheduler.step(). A loss that is NaN
 * before scaling is not caused by the scale. Such a step is skipped too, as GradScaler does, since
 * another batch may not overflow. It is reported as an overflow of the forward, and several in a
 * row end the run. */
#pragma once
#include <fsdp/data.h>
#include <fsdp/fsdp.h>
#include <fsdp/optim.h>

#include "src/train/config.h"

typedef struct fsdp_train_loop {
    fsdp_group *group; /* borrowed, as are all pointers below */
    fsdp_device *device;
    fsdp_module *module; /* from fsdp_model_create(), sharded */
    fsdp_tape *tape;
    fsdp_optimizer *optimizer;
    fsdp_parameter_list parameters;
    int64_t num_labels; /* classes; 0: not a classifier */
    bool mean_of_means, training_dropout;
    int micro_steps;
    fsdp_accumulation_mode accumulation_mode;
    bool unshard_first; /* gather the root at the beginning of a step */
    /* keep gathered parameters from a backward to the next forward */
    bool keep_between_micro_steps;
    /* call fsdp_set_is_last_backward(), true at the last micro-step only */
    bool set_is_last_backward;
    /* divisor of the sum of all leaves; 0: the divisor of the loss */
    double gradient_divide_factor;
    double max_grad_norm;     /* 0: no clipping; the norm is reported all the same */
    double grad_norm_type;    /* p of that norm; 0: 2 */
    double clip_value;        /* limit of each element of the gradients; 0: no clipping */
    bool ignore_nonfinite;    /* a norm that is not finite scales gradients like any other */
    fsdp_grad_scaler *scaler; /* NULL: losses are not scaled */
    bool in_float16;          /* some of the forward is in float16 */
    int overflowed_forwards;  /* consecutive steps whose loss was not finite: see skip_step() */
} fsdp_train_loop;

typedef struct fsdp_step_result {
    double loss;      /* of the global batch */
    double grad_norm; /* before clipping; NAN if skipped */
    bool skipped;     /* gradients overflowed: nothing was updated */
    /* skipped because the loss itself is not finite, not because of the scale */
    bool forward_overflowed;
    double loss_scale;   /* of this step; 1 without a scaler */
    int64_t tokens;      /* source + target, all ranks */
    int64_t labels;      /* labels that counted, all ranks */
    int64_t rows;        /* sequences, all ranks */
    double accuracy, f1; /* validation of a classifier (classification.h); else not set */
    struct {
        int64_t first, n; /* rows, counted from 0; n 0: none */
    } not_finite;         /* validation: the first rows of one batch whose loss is not finite */
} fsdp_step_result;

/* FSDP_ERR_INVALID, naming `data`, if none of its rows had a label: the loss would be undefined. */
FSDP_MUST_CHECK fsdp_status fsdp_check_any_label(const char *data, int64_t labels);

/* Take micro_steps batches from the loader and do one step with learning rate lr. `step` counts
 * from 0 and is used in messages only. FSDP_ERR_NUMERIC if the loss or the norm is not finite; with
 * a scaler, only if a smaller scale cannot help. Nothing is updated then. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_train_step(fsdp_train_loop *loop, fsdp_loader *loader, double lr,
                                            int64_t step, fsdp_step_result *result);

/* The same for given batches, [micro_steps]. On the meta device nothing is computed and the loss is
 * 0; only the step's memory and collectives remain. */
FSDP_MUST_CHECK fsdp_status fsdp_train_step_on(fsdp_train_loop *loop, fsdp_batch *const *batches,
                                               double lr, int64_t step, fsdp_step_result *result);

/* Does for one batch what fsdp_validate() does, without computing results. */
FSDP_MUST_CHECK fsdp_status fsdp_validate_on(fsdp_train_loop *loop, const fsdp_batch *batch);

/* Loss over all rows of the loader, without gradients: (sum, count) over ranks, or the mean of
 * means. For a classifier also accuracy and F1, from the same forward. `each` is called after each
 * batch on every rank (progress) and may be NULL. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_validate(fsdp_train_loop *loop, fsdp_loader *loader,
                                          void (*each)(void *arg), void *arg,
                                          fsdp_step_result *result);
