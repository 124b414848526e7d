/* One optimizer step: forward and backward of micro-batches, the global loss, clipping and the
 * update.
 *
 * Note [Loss of a step]. A step has one micro-batch for each micro-step of each rank: micro-batch
 * m = a * W + r is that of rank r in micro-step a, and W is the number of ranks. A micro-batch
 * yields the sum of the losses of its labels, and the number of its labels. With token-mean, the
 * loss is the sum over all micro-batches divided by the number of all labels. The gradients of all
 * micro-batches are added first and then divided once by this number. With mean-of-means, the sum
 * of each micro-batch is first divided by the number of its labels, and the sum over all
 * micro-batches is then divided by the number of micro-batches that have labels, as in PyTorch's
 * scripts. Losses of micro-batches are gathered and added in the order of micro-batches, so the
 * printed loss does not depend on the number of ranks.
 *
 * Note [Loss scale]. float16 needs gradients of a certain magnitude, so the loss is multiplied by
 * the scaler's scale. PyTorch scales the mean loss. Here, backward computes the gradients of a sum
 * of losses. They are divided by the number n of labels or micro-batches only at the end of the
 * step. So the loss of each micro-batch is multiplied by scale / P, and the gradients are divided
 * by n / P, where P is the smallest power of two that is at least n. If the scale is a power of
 * two, the scale and P change only exponents, so the result has the same bits as without them.
 *
 * A step whose gradients overflow updates nothing: neither the parameters nor the moments nor the
 * optimizer's own count of steps. It counts as a step of the run, and the schedule advances, as in
 * scripts that call scaler.step(optimizer), scaler.update(), scheduler.step(). If the loss is not
 * finite even before it is scaled, the scale is not the cause. As with GradScaler, such a step is
 * skipped, too, since the next batch may not overflow. It is reported as an overflow of the
 * forward, and several such steps in a row end the run. */
#pragma once
#include <fsdp/data.h>
#include <fsdp/fsdp.h>
#include <fsdp/optim.h>

#include "src/train_config/config.h"

typedef struct fsdp_train_loop {
    fsdp_group *group; /* borrowed, as are all pointers below */
    fsdp_device *device;
    fsdp_module *module; /* from fsdp_model_create(), sharded */
    fsdp_tape *tape;
    fsdp_optimizer *optimizer;
    fsdp_parameter_list parameters;
    int64_t num_labels; /* classes; 0: not a classifier */
    bool mean_of_means;
    int micro_steps;
    fsdp_accumulation_mode accumulation_mode;
    bool unshard_first; /* start gathering the root at the beginning of a step */
    /* keep parameters gathered between the micro-steps of a step */
    bool keep_between_micro_steps;
    /* call fsdp_set_is_last_backward() with true in the last micro-step and false in the others */
    bool set_is_last_backward;
    /* divisor of the gradients, which are sums over all micro-batches; 0: the divisor of the loss
     */
    double gradient_divide_factor;
    double max_grad_norm;  /* 0: no clipping, but the norm is still reported */
    double grad_norm_type; /* p of the gradient norm; 0 means 2 */
    double clip_value;     /* limit of each element of the gradients; 0: no clipping */
    /* if the gradient norm is not finite, clip with it anyway instead of ending the run */
    bool ignore_nonfinite;
    fsdp_grad_scaler *scaler; /* NULL: losses are not scaled */
    bool in_float16;          /* a part of the forward is computed in float16 */
    /* consecutive steps whose loss was not finite: see skip_forward() in step.c */
    int overflowed_forwards;
} fsdp_train_loop;

typedef struct fsdp_step_result {
    double loss;      /* loss of the global batch */
    double grad_norm; /* norm before clipping; NAN if the step was skipped */
    bool skipped;     /* nothing was updated, because the gradients or the loss overflowed */
    /* the step was skipped because the loss was not finite even before it was scaled */
    bool forward_overflowed;
    double loss_scale; /* loss scale in this step; 1 without a scaler */
    int64_t tokens;    /* number of source and target tokens on all ranks */
    int64_t labels;    /* number of labels that count in the loss, on all ranks */
    int64_t rows;      /* number of sequences on all ranks */
    /* measures of a classifier (classification.h); set only by fsdp_validate() */
    double accuracy, f1;
    /* validation: the rows of the first micro-batch whose loss is not finite */
    struct {
        /* first row, counted from 0, and number of rows; n is 0 if there are none */
        int64_t first, n;
    } not_finite;
} fsdp_step_result;

/* Return FSDP_ERR_INVALID if the rows have no labels (`labels` is 0), since the loss would be
 * undefined. The message names `data`. */
FSDP_MUST_CHECK fsdp_status fsdp_check_any_label(const char *data, int64_t labels);

/* Take micro_steps batches from the loader and do one step with learning rate lr. `step` counts
 * from 0 and is used in messages only. If the loss or the gradient norm is not finite, update
 * nothing, and return FSDP_ERR_NUMERIC. With a scaler, such a step may be skipped without an error:
 * see Note [Loss scale]. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_train_step(fsdp_train_loop *loop, fsdp_loader *loader, double lr,
                                            int64_t step, fsdp_step_result *result);

/* Do one step like fsdp_train_step(), but with `batches` [micro_steps] instead of a loader. On the
 * meta device nothing is computed and the loss is 0; the step still allocates its memory and calls
 * its collectives. */
FSDP_MUST_CHECK fsdp_status fsdp_train_step_on(fsdp_train_loop *loop, fsdp_batch *const *batches,
                                               double lr, int64_t step, fsdp_step_result *result);

/* Run the forward of one batch as fsdp_validate() does, and discard the results. */
FSDP_MUST_CHECK fsdp_status fsdp_validate_on(fsdp_train_loop *loop, const fsdp_batch *batch);

/* Compute the loss over all rows of the loader on all ranks, without gradients: a mean over label
 * tokens, or a mean of means. For a classifier, also compute accuracy and F1 from the same forward.
 * `each` is called after each batch on every rank, for example to show progress; it may be NULL.
 * Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_validate(fsdp_train_loop *loop, fsdp_loader *loader,
                                          void (*each)(void *arg), void *arg,
                                          fsdp_step_result *result);
