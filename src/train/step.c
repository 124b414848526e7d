/* Runs one optimizer step, or the validation. See Note [Loss of a step] in step.h. */
#include <math.h>
#include <stdio.h>

#include <fsdp/models.h>
#include <fsdp/train.h>

#include "src/base/alloc.h"
#include "src/comm/comm.h"
#include "src/report/human.h"
#include "src/trace/trace.h"
#include "src/train/classification.h"
#include "src/train/not_finite.h"

/* What one micro-batch adds to the loss and the counts of a step. Ranks exchange these structs as
 * raw bytes. */
typedef struct micro_batch_sum {
    double loss; /* sum of the micro-batch's label losses; with mean_of_means, their mean */
    int64_t labels, tokens, rows;
} micro_batch_sum;

static void add_batch(micro_batch_sum *micro_batch, const fsdp_batch *batch)
{
    micro_batch->labels = batch->label_tokens;
    micro_batch->tokens = (int64_t)batch->source_tokens + batch->target_tokens;
    micro_batch->rows = batch->rows;
}

static float factor_of(const fsdp_train_loop *loop, const fsdp_batch *batch)
{
    return loop->mean_of_means && batch->label_tokens ? 1.0f / (float)batch->label_tokens : 1.0f;
}

/* Gather the sums of all ranks' micro-batches into `all` [micro_steps * W], where W is the number
 * of ranks. Element `a * W + r` is the micro-batch of rank r in micro-step a. Collective. */
static fsdp_status gather_micro_batches(const fsdp_train_loop *loop, const micro_batch_sum *mine,
                                        int micro_steps, micro_batch_sum *all)
{
    int world_size = fsdp_group_world_size(loop->group);
    fsdp_status status = FSDP_OK;
    fsdp_trace_begin(FSDP_TRACE_SHARDING, "gather losses", NULL);
    for (int a = 0; a < micro_steps && status == FSDP_OK; a++)
        status = fsdp_all_gather(loop->group, &mine[a], sizeof *mine, &all[a * world_size]);
    fsdp_trace_end();
    return status;
}

/* Add the loss and the counts of the n micro-batches in `all` to `result`, from the first to the
 * last. The loss in `result` remains a sum, which the caller divides later. Return the number of
 * micro-batches that have labels. */
static int64_t add_micro_batches(const micro_batch_sum *all, int n, fsdp_step_result *result)
{
    int64_t micro_batches = 0;
    for (int m = 0; m < n; m++) {
        result->loss += all[m].loss;
        result->tokens += all[m].tokens;
        result->labels += all[m].labels;
        result->rows += all[m].rows;
        micro_batches += all[m].labels > 0;
    }
    return micro_batches;
}

static double divisor(const fsdp_train_loop *loop, const fsdp_step_result *sum,
                      int64_t micro_batches)
{
    int64_t n = loop->mean_of_means ? micro_batches : sum->labels;
    return n > 0 ? (double)n : 1.0;
}

/* Find the first of the n micro-batches in `all` whose loss is not finite, and set
 * result->not_finite to the rows of this micro-batch. No effect if result->not_finite is set
 * already. result->rows must be the number of rows before all[0]. */
static void find_not_finite_rows(const micro_batch_sum *all, int n, fsdp_step_result *result)
{
    int64_t first = result->rows;
    for (int m = 0; m < n && !result->not_finite.n; m++) {
        if (!isfinite(all[m].loss)) {
            result->not_finite.first = first;
            result->not_finite.n = all[m].rows;
        }
        first += all[m].rows;
    }
}

/* Run the forward of a micro-batch, and also its backward if `backward`. *loss is set to the loss
 * of the micro-batch times `scale`. */
static fsdp_status run_leaf(fsdp_train_loop *loop, const fsdp_batch *batch, int micro_step,
                            bool backward, double scale, double *loss)
{
    const fsdp_forward_backward_options options = {.training = backward,
                                                   .tape = loop->tape,
                                                   .factor = (double)factor_of(loop, batch) * scale,
                                                   .micro_step = micro_step,
                                                   .label_smoothing = loop->label_smoothing,
                                                   .n_micro_steps = loop->micro_steps};
    return fsdp_forward_backward(loop->module, loop->device, batch, &options, loss);
}

/* --- training --- */

static fsdp_status take_batches(const fsdp_train_loop *loop, fsdp_loader *loader,
                                fsdp_batch **batches)
{
    for (int a = 0; a < loop->micro_steps; a++) {
        FSDP_TRY(fsdp_loader_next(loader, &batches[a]));
        if (!batches[a])
            return fsdp_error(FSDP_ERR_STATE, "the loader ended in the middle of a step");
    }
    return FSDP_OK;
}

/* --- the update --- */

static fsdp_status check_loss(const fsdp_train_loop *loop, double loss, int64_t step, double lr)
{
    char what[64];
    snprintf(what, sizeof what, "the loss is %s", fsdp_human_not_finite(loss));
    return isfinite(loss) ? FSDP_OK : fsdp_not_finite(loop, what, step, lr);
}

static fsdp_status clip(const fsdp_train_loop *loop, int64_t step, double lr,
                        fsdp_step_result *result, float *scale)
{
    const fsdp_clip_grad_options options = {.norm_type = loop->grad_norm_type,
                                            .error_if_nonfinite = !loop->ignore_nonfinite};
    double max_norm = loop->max_grad_norm > 0.0 ? loop->max_grad_norm : (double)INFINITY;
    fsdp_status status =
        fsdp_clip_grad_norm(&loop->parameters, max_norm, &options, &result->grad_norm, scale);
    if (status == FSDP_ERR_NUMERIC)
        return fsdp_not_finite(loop, fsdp_last_error(), step, lr);
    FSDP_TRY(status);
    return loop->clip_value > 0.0 ? fsdp_clip_grad_value(&loop->parameters, loop->clip_value)
                                  : FSDP_OK;
}

/* Return true if the loss was not finite even before it was multiplied by the loss scale.
 * result->loss was computed from the scaled loss. There are two cases. If result->loss is NaN, the
 * unscaled loss was not finite, because a finite loss times the scale is never NaN. If result->loss
 * is infinite, the unscaled loss was infinite, too, unless the scale is so huge that even a finite
 * loss times the scale is infinite. */
static bool forward_overflowed(const fsdp_step_result *result)
{
    return isnan(result->loss) || (isinf(result->loss) && result->loss_scale < 1e30);
}

/* Skip a step whose loss is not finite, since the loss of the next batch may be finite. If a
 * parameter is not finite, return an error instead, since no later update can repair the parameter.
 * Also return an error if this is the MOST_IN_A_ROW-th such step in a row, since these steps train
 * nothing. An error ends the run. */
static fsdp_status skip_forward(fsdp_train_loop *loop, int64_t step, double lr,
                                fsdp_step_result *result)
{
    enum {
        MOST_IN_A_ROW = 4
    };
    const fsdp_named_parameter *bad = NULL;
    char what[96];
    FSDP_TRY(fsdp_find_not_finite(loop, &bad));
    if (bad)
        return check_loss(loop, result->loss, step, lr);
    result->forward_overflowed = true;
    if (++loop->overflowed_forwards < MOST_IN_A_ROW)
        return FSDP_OK;
    snprintf(what, sizeof what, "the loss is %s in %d steps in a row, whatever its scale",
             fsdp_human_not_finite(result->loss), loop->overflowed_forwards);
    return fsdp_not_finite(loop, what, step, lr);
}

/* Skip a step whose gradients or loss overflowed. Return an error if the gradients overflow with a
 * loss scale below 1, since a smaller scale would not help. */
static fsdp_status skip_step(fsdp_train_loop *loop, int64_t step, double lr,
                             fsdp_step_result *result)
{
    result->skipped = true;
    result->grad_norm = (double)NAN;
    if (forward_overflowed(result))
        return skip_forward(loop, step, lr, result);
    loop->overflowed_forwards = 0;
    if (result->loss_scale >= 1.0)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_NUMERIC,
                      "step %lld: gradients overflow with a loss scale of %g: even unscaled they "
                      "exceed float16's range; bfloat16 has float32's range",
                      (long long)step + 1, result->loss_scale);
}

/* Unscale the gradients, and decide whether to skip the update. */
static fsdp_status unscale_gradients(fsdp_train_loop *loop, int64_t step, double lr,
                                     fsdp_step_result *result)
{
    if (loop->scaler)
        FSDP_TRY(fsdp_grad_scaler_unscale(loop->scaler, loop->optimizer));
    if (loop->scaler && fsdp_grad_scaler_found_inf(loop->scaler))
        return skip_step(loop, step, lr, result);
    loop->overflowed_forwards = 0;
    return check_loss(loop, result->loss, step, lr);
}

static fsdp_status optimize(fsdp_train_loop *loop, double lr, float grad_scale)
{
    fsdp_optimizer_set_lr(loop->optimizer, lr);
    if (!loop->scaler)
        return fsdp_optimizer_step(loop->optimizer, grad_scale);
    FSDP_TRY(fsdp_grad_scaler_step(loop->scaler, loop->optimizer, grad_scale));
    return fsdp_grad_scaler_update(loop->scaler);
}

static fsdp_status update(fsdp_train_loop *loop, double lr, int64_t step, fsdp_step_result *result)
{
    float grad_scale = 1.0f;
    FSDP_TRY(unscale_gradients(loop, step, lr, result));
    if (!result->skipped)
        FSDP_TRY(clip(loop, step, lr, result, &grad_scale));
    FSDP_TRY(optimize(loop, lr, grad_scale));
    fsdp_module_zero_grad(loop->module);
    return FSDP_OK;
}

/* Return the smallest power of two that is at least x. */
static double power_above(double x)
{
    int exponent;
    double fraction = frexp(x, &exponent);
    return ldexp(1.0, fraction == 0.5 ? exponent - 1 : exponent);
}

/* Set what the backward of this micro-step communicates. The backward of the last micro-step of a
 * step also communicates all gradients that earlier micro-steps have accumulated. So no
 * uncommunicated gradients are left after the step. */
static fsdp_status set_communication(const fsdp_train_loop *loop, int micro_step)
{
    const bool last = micro_step + 1 == loop->micro_steps;
    if (loop->keep_between_micro_steps)
        FSDP_TRY(fsdp_set_reshard_after_backward(loop->module, last, true));
    if (loop->set_is_last_backward)
        FSDP_TRY(fsdp_set_is_last_backward(loop->module, last));
    switch (loop->accumulation_mode) {
    case FSDP_ACCUMULATION_NO_SYNC:
        return fsdp_set_requires_gradient_sync(loop->module, last, true);
    case FSDP_ACCUMULATION_REDUCE_SCATTER:
        return fsdp_set_requires_all_reduce(loop->module, last, true);
    case FSDP_ACCUMULATION_REDUCE:
        break;
    }
    return FSDP_OK;
}

static fsdp_status step_on(fsdp_train_loop *loop, fsdp_batch *const *batches, micro_batch_sum *mine,
                           micro_batch_sum *all, double lr, int64_t step, fsdp_step_result *result)
{
    int n = loop->micro_steps * fsdp_group_world_size(loop->group);
    if (loop->unshard_first)
        FSDP_TRY(fsdp_unit_unshard_async(loop->module, NULL));
    FSDP_TRY(gather_micro_batches(loop, mine, loop->micro_steps, all));
    fsdp_step_result counts = {0};
    int64_t micro_batches = add_micro_batches(all, n, &counts);
    double divide = divisor(loop, &counts, micro_batches);
    double loss_scale = loop->scaler ? fsdp_grad_scaler_scale(loop->scaler) : 1.0;
    double power = loop->scaler ? power_above(divide) : 1.0;
    const double given = loop->gradient_divide_factor;
    FSDP_TRY(fsdp_set_gradient_divide_factor(loop->module, (given > 0.0 ? given : divide) / power));
    for (int a = 0; a < loop->micro_steps; a++) {
        FSDP_TRY(set_communication(loop, a));
        FSDP_TRY(run_leaf(loop, batches[a], a, true, loss_scale / power, &mine[a].loss));
        mine[a].loss *= power / loss_scale;
    }
    fsdp_group_at(loop->group, (uint32_t)step + 1, "", "gathering losses");
    FSDP_TRY(gather_micro_batches(loop, mine, loop->micro_steps, all));
    *result = (fsdp_step_result){.loss_scale = loss_scale};
    (void)add_micro_batches(all, n, result);
    result->loss /= divide;
    fsdp_group_at(loop->group, (uint32_t)step + 1, "", "optimizer step");
    return update(loop, lr, step, result);
}

fsdp_status fsdp_train_step_on(fsdp_train_loop *loop, fsdp_batch *const *batches, double lr,
                               int64_t step, fsdp_step_result *result)
{
    size_t a = (size_t)loop->micro_steps;
    micro_batch_sum *mine = fsdp_calloc(a, sizeof *mine);
    micro_batch_sum *all = fsdp_calloc(a * (size_t)fsdp_group_world_size(loop->group), sizeof *all);
    fsdp_status status = mine && all ? FSDP_OK : FSDP_ERR_NOMEM;
    for (size_t i = 0; i < a && status == FSDP_OK; i++)
        add_batch(&mine[i], batches[i]);
    if (status == FSDP_OK)
        status = step_on(loop, batches, mine, all, lr, step, result);
    fsdp_free(mine);
    fsdp_free(all);
    return status;
}

fsdp_status fsdp_train_step(fsdp_train_loop *loop, fsdp_loader *loader, double lr, int64_t step,
                            fsdp_step_result *result)
{
    size_t a = (size_t)loop->micro_steps;
    fsdp_batch **batches = fsdp_calloc(a, sizeof(fsdp_batch *));
    fsdp_status status = batches ? take_batches(loop, loader, batches) : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status = fsdp_train_step_on(loop, batches, lr, step, result);
    for (size_t i = 0; batches && i < a; i++)
        fsdp_batch_release(batches[i]);
    fsdp_free(batches);
    return status;
}

fsdp_status fsdp_check_any_label(const char *data, int64_t labels)
{
    if (labels > 0)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID,
                      "%s: not one token has a label, so there is no loss: prompts fill their rows "
                      "(after cutting), or all labels are %d",
                      data, FSDP_IGNORE_INDEX);
}

/* --- validation --- */

/* Compute a classifier's loss from its logits, and add its predictions to `counts`. */
static fsdp_status classify_leaf(const fsdp_train_loop *loop, const fsdp_batch *batch,
                                 fsdp_class_counts *counts, double *loss)
{
    fsdp_scope_options options = {.batch = batch};
    fsdp_scope *s;
    FSDP_TRY(fsdp_scope_open(loop->device, NULL, &options, &s));
    fsdp_tensor *logits = fsdp_model_logits(s, loop->module).logits;
    fsdp_status status = fsdp_scope_status(s);
    if (status == FSDP_OK && !fsdp_device_is_meta(loop->device))
        status = fsdp_class_counts_add_batch(counts, logits, batch, loop->label_smoothing, loss);
    fsdp_scope_close(s);
    *loss *= (double)factor_of(loop, batch);
    return status;
}

static fsdp_status validate_batch(fsdp_train_loop *loop, const fsdp_batch *batch,
                                  fsdp_class_counts *counts, micro_batch_sum *mine)
{
    add_batch(mine, batch);
    if (loop->num_labels)
        return classify_leaf(loop, batch, counts, &mine->loss);
    return run_leaf(loop, batch, 0, false, 1.0, &mine->loss);
}

fsdp_status fsdp_validate_on(fsdp_train_loop *loop, const fsdp_batch *batch)
{
    fsdp_class_counts counts = {0};
    micro_batch_sum mine = {0};
    FSDP_TRY(fsdp_class_counts_init(&counts, loop->num_labels));
    fsdp_status status = validate_batch(loop, batch, &counts, &mine);
    fsdp_class_counts_fini(&counts);
    return status;
}

/* Validate all batches of the loader. Add the losses and counts of all micro-batches to *sum; the
 * caller divides the loss later. Add the number of micro-batches that have labels to
 * *micro_batches. */
static fsdp_status validate_batches(fsdp_train_loop *loop, fsdp_loader *loader,
                                    void (*each)(void *arg), void *arg, fsdp_class_counts *counts,
                                    fsdp_step_result *sum, int64_t *micro_batches)
{
    int world_size = fsdp_group_world_size(loop->group);
    micro_batch_sum *all = fsdp_calloc((size_t)world_size, sizeof *all);
    fsdp_status status = all ? FSDP_OK : FSDP_ERR_NOMEM;
    for (int64_t i = 0; status == FSDP_OK && (!loop->eval_iters || i < loop->eval_iters); i++) {
        fsdp_batch *batch;
        micro_batch_sum mine = {0};
        status = fsdp_loader_next(loader, &batch);
        if (status != FSDP_OK || !batch)
            break;
        status = validate_batch(loop, batch, counts, &mine);
        fsdp_batch_release(batch);
        if (status == FSDP_OK)
            status = gather_micro_batches(loop, &mine, 1, all);
        if (status != FSDP_OK)
            break;
        find_not_finite_rows(all, world_size, sum);
        *micro_batches += add_micro_batches(all, world_size, sum);
        if (each)
            each(arg);
    }
    fsdp_free(all);
    return status;
}

fsdp_status fsdp_validate(fsdp_train_loop *loop, fsdp_loader *loader, void (*each)(void *arg),
                          void *arg, fsdp_step_result *result)
{
    fsdp_step_result sum = {0};
    fsdp_class_counts counts = {0};
    int64_t micro_batches = 0;
    FSDP_TRY(fsdp_class_counts_init(&counts, loop->num_labels));
    fsdp_status status = validate_batches(loop, loader, each, arg, &counts, &sum, &micro_batches);
    if (status == FSDP_OK && loop->num_labels)
        status = fsdp_class_counts_reduce(&counts, loop->group);
    sum.accuracy = fsdp_class_accuracy(&counts);
    sum.f1 = fsdp_class_f1(&counts);
    fsdp_class_counts_fini(&counts);
    if (status != FSDP_OK)
        return status;
    sum.loss /= divisor(loop, &sum, micro_batches);
    *result = sum;
    return FSDP_OK;
}
