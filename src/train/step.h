/* Runs one optimizer step: forward and backward of micro-batches, the loss of the step, clipping
 * and the update. Also runs the validation.
 *
 * Note [Loss of a step]. A step has one micro-batch for each micro-step of each rank. In micro-step
 * a, rank r computes micro-batch number `a * W + r`, where W is the number of ranks. A micro-batch
 * yields the sum of the losses of its labels, and the number of its labels.
 *
 * With --loss-reduction token-mean, the loss of the step is the sum over all micro-batches, divided
 * by the number of all labels. The gradients of all micro-batches are added first and then divided
 * once by this number.
 *
 * With mean-of-means, the sum of each micro-batch is divided by the number of its own labels. The
 * loss of the step is the mean of these quotients over all micro-batches that have labels.
 * PyTorch's scripts compute this loss.
 *
 * The losses of all micro-batches are gathered and added in the order of micro-batches, so the
 * printed loss does not depend on the number of ranks.
 *
 * Note [Loss scale]. float16 needs gradients of a certain magnitude, so the loss is multiplied by
 * the scaler's scale. PyTorch scales the mean loss. Here, backward computes the gradients of a sum
 * of losses. These gradients are divided only at the end of the step, by a number n. With
 * token-mean, n is the number of labels. With mean-of-means, n is the number of micro-batches. So
 * the loss of each micro-batch is multiplied by `scale / P`, and the gradients are divided by
 * `n / P`. P is the smallest power of two that is at least n. If the scale is a power of two, the
 * scale and P change only exponents, so the result has the same bits as without a scaler.
 *
 * A step whose gradients overflow updates nothing: neither the parameters nor the moments nor the
 * optimizer's own count of steps. The step counts as a step of the run, and the schedule advances.
 * Scripts that call scaler.step(optimizer), scaler.update() and scheduler.step() do the same.
 *
 * A step is also skipped if its loss is not finite even before it is scaled. A smaller scale would
 * not help, because the scale is not the cause. But the loss of the next batch may be finite.
 * GradScaler skips such a step, too. The step is reported as an overflow of the forward, and
 * several such steps in a row end the run. */
#pragma once
#include <fsdp/data.h>
#include <fsdp/fsdp.h>
#include <fsdp/optim.h>

#include "src/train/measures.h"
#include "src/train_config/config.h"

typedef struct fsdp_train_loop {
    fsdp_group *group; /* borrowed, like all pointers in this struct */
    fsdp_device *device;
    fsdp_module *module; /* from fsdp_model_create(), sharded */
    fsdp_tape *tape;
    fsdp_optimizer *optimizer;
    fsdp_parameter_list parameters;
    int64_t num_labels;             /* number of classes; 0: not a classifier */
    fsdp_problem_type problem_type; /* kind of a classifier's labels */
    double label_smoothing; /* in [0, 1); also used in validation, as transformers' Trainer does */
    int64_t eval_iters;     /* largest number of batches of a rank in a validation; 0: all */
    bool mean_of_means;
    int micro_steps;
    fsdp_accumulation_mode accumulation_mode;
    bool unshard_first; /* start to gather the parameters of the root at the beginning of a step */
    /* keep parameters gathered between the micro-steps of a step */
    bool keep_between_micro_steps;
    /* call fsdp_set_is_last_backward() with true in the last micro-step and false in the others */
    bool set_is_last_backward;
    /* The number by which the sum of the gradients of all micro-batches is divided. 0: the sum of
     * the gradients is divided by the same number as the sum of the losses (Note [Loss of a
     * step]). */
    double gradient_divide_factor;
    double max_grad_norm;  /* 0: no clipping, but the norm is still reported */
    double grad_norm_type; /* p of the p-norm of the gradients; 0 means that p is 2 */
    double clip_value;     /* largest absolute value of a gradient's element; 0: no clipping */
    /* True: if the norm of the gradients is not finite, clip them nevertheless. False: a norm that
     * is not finite ends the run. */
    bool ignore_nonfinite;
    fsdp_grad_scaler *scaler; /* NULL: losses are not scaled */
    bool in_float16;          /* true if a part of the forward is computed in float16 */
    /* Number of the latest steps in a row whose loss was not finite; 0 if the loss of the latest
     * step was finite. skip_forward() ends the run if this number is too large. */
    int overflowed_forwards;
    /* Called in each step that updates parameters, after all gradients have been computed and
     * before they are clipped. `step` counts from 0. All ranks call it, so it may be collective.
     * NULL: not called. */
    fsdp_status (*with_gradients)(void *context, int64_t step);
    void *gradients_context;
} fsdp_train_loop;

typedef struct fsdp_step_result {
    double loss;      /* loss of the global batch */
    double grad_norm; /* norm before clipping; NAN if the step was skipped */
    bool skipped;     /* nothing was updated, because the gradients or the loss overflowed */
    /* the step was skipped because the loss was not finite even before it was scaled */
    bool forward_overflowed;
    double loss_scale;      /* loss scale in this step; 1 without a scaler */
    int64_t tokens;         /* number of source and target tokens on all ranks */
    int64_t labels;         /* number of labels that count in the loss, on all ranks */
    int64_t rows;           /* number of sequences on all ranks */
    double data_s;          /* seconds in which this rank waited for the batches of the loader; set
                               only by fsdp_train_step() */
    fsdp_measures measures; /* measures of a classifier; set only by fsdp_validate() */
    /* validation: the rows of the first micro-batch whose loss is not finite */
    struct {
        /* index of the first row, and number of rows; n is 0 if all losses are finite */
        int64_t first, n;
    } not_finite;
} fsdp_step_result;

/* Return FSDP_ERR_INVALID if `labels` is 0. `labels` is the number of labels in the rows that were
 * read from the path `data`; without labels the loss is undefined. The message contains `data`. */
FSDP_MUST_CHECK fsdp_status fsdp_check_any_label(const char *data, int64_t labels);

/* Take loop->micro_steps batches from the loader and do one step with learning rate lr. `step`
 * counts from 0 and is used in messages only. Collective.
 *
 * If the loss is not finite, update nothing and return FSDP_ERR_NUMERIC. Do the same if the
 * gradient norm is not finite, unless loop->ignore_nonfinite is true. With a scaler, such a step
 * may be skipped without an error: see Note [Loss scale]. */
FSDP_MUST_CHECK fsdp_status fsdp_train_step(fsdp_train_loop *loop, fsdp_loader *loader, double lr,
                                            int64_t step, fsdp_step_result *result);

/* Do one step like fsdp_train_step(), but with `batches` [loop->micro_steps] instead of a loader.
 * On the meta device nothing is computed and the loss is 0; the step still allocates its memory and
 * calls its collectives. */
FSDP_MUST_CHECK fsdp_status fsdp_train_step_on(fsdp_train_loop *loop, fsdp_batch *const *batches,
                                               double lr, int64_t step, fsdp_step_result *result);

/* Run the forward of one batch as fsdp_validate() does, and discard the results. */
FSDP_MUST_CHECK fsdp_status fsdp_validate_on(fsdp_train_loop *loop, const fsdp_batch *batch);

/* Compute the loss of the rows of all ranks' loaders, without gradients. If loop->eval_iters is
 * set, use only the first loop->eval_iters batches of each rank. Like the loss of a step, it is a
 * mean over label tokens, or a mean of means. For a classifier, also compute its measures from the
 * same forward. `each` is called after each batch on every rank, for example to show progress; it
 * may be NULL. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_validate(fsdp_train_loop *loop, fsdp_loader *loader,
                                          void (*each)(void *arg), void *arg,
                                          fsdp_step_result *result);
