/* Runs one optimizer step, or the validation. See Note [Loss of a step] in step.h. */
#include <math.h>
#include <stdio.h>

#include <fsdp/float8.h>
#include <fsdp/models.h>
#include <fsdp/train.h>

#include "src/base/alloc.h"
#include "src/base/clock.h"
#include "src/comm/comm.h"
#include "src/optim/clip_grad.h"
#include "src/report/human.h"
#include "src/tensor/tensor.h"
#include "src/trace/trace.h"
#include "src/train/forward_backward.h"
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
 * already. The caller must have set result->rows to the number of rows that come before the first
 * of these micro-batches. */
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

/* Return the options for the forward of a micro-batch, whose loss is multiplied by `scale`. */
static fsdp_forward_backward_options micro_batch_options(const fsdp_train_loop *loop,
                                                         const fsdp_batch *batch, double scale)
{
    return (fsdp_forward_backward_options){.tape = loop->tape,
                                           .factor = (double)factor_of(loop, batch) * scale,
                                           .label_smoothing = loop->label_smoothing,
                                           .n_micro_steps = loop->micro_steps};
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

/* --- losses --- */

/* A step that is being computed. */
typedef struct running_step {
    fsdp_train_loop *loop;
    double lr;
    int64_t step;
    micro_batch_sum *mine; /* [micro_steps] of this rank */
    micro_batch_sum *all;  /* [micro_steps * W] of all ranks */
    fsdp_tensor *losses;   /* [micro_steps] float32, on the device: scaled losses of this rank */
    double scale;          /* factor of the losses in backward: Note [Loss scale] in step.h */
    double unscale;        /* factor by which a scaled loss is multiplied to get the unscaled
                            * loss */
    double divide;         /* the loss of the step is the sum of all losses divided by this
                            * number */
    fsdp_step_result *result;
} running_step;

/* Return true if the step may read its losses from the device after it has started the update. This
 * is not possible if the update depends on the losses, as it does with a loss scaler, or if ranks
 * exchange their losses before the update. */
static bool reads_late(const running_step *r)
{
    const fsdp_train_loop *loop = r->loop;
    return fsdp_group_world_size(loop->group) == 1 && !loop->scaler &&
           loop->device->traits->joins_kernels;
}

static fsdp_status read_losses(const running_step *r, bool late, float *values)
{
    const size_t bytes = (size_t)r->loop->micro_steps * sizeof *values;
    return late ? fsdp_device_peek(r->loop->device, values, fsdp_tensor_ptr(r->losses), bytes)
                : fsdp_tensor_copy_to_host(r->losses, values, bytes);
}

/* Set the losses in r->mine to those that were computed on the device. If `late` is true, the
 * kernels that compute the losses must have ended already. Otherwise wait for these kernels. On the
 * meta device, the losses stay 0. */
static fsdp_status take_own_losses(const running_step *r, bool late)
{
    if (fsdp_device_is_meta(r->loop->device))
        return FSDP_OK;
    float *values = fsdp_calloc((size_t)r->loop->micro_steps, sizeof *values);
    fsdp_status status = values ? read_losses(r, late, values) : FSDP_ERR_NOMEM;
    for (int a = 0; a < r->loop->micro_steps && status == FSDP_OK; a++)
        r->mine[a].loss = (double)values[a] * r->unscale;
    fsdp_free(values);
    return status;
}

/* Set the loss and the counts in r->result from the losses of all ranks. `late`: see
 * take_own_losses(). Collective. */
static fsdp_status take_losses(running_step *r, bool late)
{
    const fsdp_train_loop *loop = r->loop;
    const int n = loop->micro_steps * fsdp_group_world_size(loop->group);
    FSDP_TRY(take_own_losses(r, late));
    fsdp_group_at(loop->group, (uint32_t)r->step + 1, "", "gathering losses");
    FSDP_TRY(gather_micro_batches(loop, r->mine, loop->micro_steps, r->all));
    (void)add_micro_batches(r->all, n, r->result);
    r->result->loss /= r->divide;
    fsdp_group_at(loop->group, (uint32_t)r->step + 1, "", "optimizer step");
    return FSDP_OK;
}

static fsdp_status check_loss(const running_step *r)
{
    const double loss = r->result->loss;
    char what[64];
    snprintf(what, sizeof what, "the loss is %s", fsdp_human_not_finite(loss));
    return isfinite(loss) ? FSDP_OK : fsdp_not_finite(r->loop, what, r->step, r->lr);
}

/* --- steps that are skipped --- */

/* Return true if the loss was not finite even before it was multiplied by the loss scale.
 * result->loss was computed from the scaled loss. There are two cases. If result->loss is NaN, the
 * unscaled loss was not finite, because a finite loss times the scale is never NaN. If result->loss
 * is infinite, the unscaled loss was infinite, too. This conclusion is wrong only for a huge scale,
 * with which a finite loss times the scale may be infinite. */
static bool forward_overflowed(const fsdp_step_result *result)
{
    return isnan(result->loss) || (isinf(result->loss) && result->loss_scale < 1e30);
}

/* Skip a step whose loss is not finite, since the loss of the next batch may be finite. If a
 * parameter is not finite, return an error instead, since no later update can repair the parameter.
 * Also return an error if this is the MOST_IN_A_ROW-th such step in a row, since these steps train
 * nothing. An error ends the run. */
static fsdp_status skip_forward(const running_step *r)
{
    enum {
        MOST_IN_A_ROW = 4
    };
    fsdp_train_loop *loop = r->loop;
    const fsdp_named_parameter *bad = NULL;
    char what[96];
    FSDP_TRY(fsdp_find_not_finite(loop, &bad));
    if (bad)
        return check_loss(r);
    r->result->forward_overflowed = true;
    if (++loop->overflowed_forwards < MOST_IN_A_ROW)
        return FSDP_OK;
    snprintf(what, sizeof what, "the loss is %s in %d steps in a row, whatever its scale",
             fsdp_human_not_finite(r->result->loss), loop->overflowed_forwards);
    return fsdp_not_finite(loop, what, r->step, r->lr);
}

/* Skip a step whose gradients or loss overflowed. Return an error if the gradients overflow with a
 * loss scale below 1, since a smaller scale would not help. */
static fsdp_status skip_step(const running_step *r)
{
    fsdp_step_result *result = r->result;
    result->skipped = true;
    result->grad_norm = (double)NAN;
    if (forward_overflowed(result))
        return skip_forward(r);
    r->loop->overflowed_forwards = 0;
    if (result->loss_scale >= 1.0)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_NUMERIC,
                      "step %lld: gradients overflow with a loss scale of %g: even unscaled they "
                      "exceed float16's range; bfloat16 has float32's range",
                      (long long)r->step + 1, result->loss_scale);
}

/* Unscale the gradients. If any of them overflowed, mark the step as skipped; otherwise check the
 * loss. */
static fsdp_status unscale_gradients(const running_step *r)
{
    fsdp_train_loop *loop = r->loop;
    FSDP_TRY(fsdp_grad_scaler_unscale(loop->scaler, loop->optimizer));
    if (fsdp_grad_scaler_found_inf(loop->scaler))
        return skip_step(r);
    loop->overflowed_forwards = 0;
    return check_loss(r);
}

/* --- the update --- */

static fsdp_status show_gradients(const running_step *r)
{
    const fsdp_train_loop *loop = r->loop;
    return loop->with_gradients ? loop->with_gradients(loop->gradients_context, r->step) : FSDP_OK;
}

static fsdp_status begin_clip(const running_step *r, fsdp_clip **clip)
{
    const fsdp_train_loop *loop = r->loop;
    const fsdp_clip_grad_options options = {.norm_type = loop->grad_norm_type,
                                            .error_if_nonfinite = !loop->ignore_nonfinite};
    const double max_norm = loop->max_grad_norm > 0.0 ? loop->max_grad_norm : (double)INFINITY;
    return fsdp_clip_begin(&loop->parameters, max_norm, &options, clip);
}

/* Set the gradient norm in r->result, and *scale to the factor of clipping; `scale` may be NULL if
 * the optimizer applies the factor itself. */
static fsdp_status end_clip(const running_step *r, fsdp_clip *clip, float *scale)
{
    const fsdp_status status = fsdp_clip_end(clip, &r->result->grad_norm, scale);
    if (status == FSDP_ERR_NUMERIC)
        return fsdp_not_finite(r->loop, fsdp_last_error(), r->step, r->lr);
    return status;
}

static fsdp_status clip_values(const fsdp_train_loop *loop)
{
    return loop->clip_value > 0.0 ? fsdp_clip_grad_value(&loop->parameters, loop->clip_value)
                                  : FSDP_OK;
}

/* Update the parameters without a loss scaler. If reads_late(), start the update before the losses
 * and the norm are known: see Note [Late norm] in src/optim/clip_grad.h. */
static fsdp_status update_with(running_step *r, fsdp_clip *clip)
{
    const fsdp_train_loop *loop = r->loop;
    const bool late = reads_late(r);
    if (!late) {
        FSDP_TRY(take_losses(r, false));
        FSDP_TRY(check_loss(r));
    }
    FSDP_TRY(fsdp_clip_compute(clip, late ? r->losses : NULL));
    FSDP_TRY(clip_values(loop));
    FSDP_TRY(fsdp_optimizer_step_clipped(loop->optimizer, clip));
    if (late) {
        FSDP_TRY(fsdp_clip_wait(clip));
        FSDP_TRY(take_losses(r, true));
        FSDP_TRY(check_loss(r));
    }
    return end_clip(r, clip, NULL);
}

static fsdp_status update_unscaled(running_step *r)
{
    fsdp_clip *clip;
    FSDP_TRY(show_gradients(r));
    FSDP_TRY(begin_clip(r, &clip));
    const fsdp_status status = update_with(r, clip);
    fsdp_clip_destroy(clip);
    return status;
}

static fsdp_status clip_scaled(const running_step *r, float *scale)
{
    fsdp_clip *clip;
    FSDP_TRY(show_gradients(r));
    FSDP_TRY(begin_clip(r, &clip));
    fsdp_status status = fsdp_clip_compute(clip, NULL);
    if (status == FSDP_OK)
        status = end_clip(r, clip, scale);
    if (status == FSDP_OK)
        status = clip_values(r->loop);
    fsdp_clip_destroy(clip);
    return status;
}

/* Update the parameters with a loss scaler. No parameter is updated if the scaler finds that
 * gradients overflowed. */
static fsdp_status update_scaled(running_step *r)
{
    fsdp_train_loop *loop = r->loop;
    float scale = 1.0f;
    FSDP_TRY(take_losses(r, false));
    FSDP_TRY(unscale_gradients(r));
    if (!r->result->skipped)
        FSDP_TRY(clip_scaled(r, &scale));
    FSDP_TRY(fsdp_grad_scaler_step(loop->scaler, loop->optimizer, scale));
    return fsdp_grad_scaler_update(loop->scaler);
}

static fsdp_status update(running_step *r)
{
    fsdp_group_at(r->loop->group, (uint32_t)r->step + 1, "", "optimizer step");
    fsdp_optimizer_set_lr(r->loop->optimizer, r->lr);
    FSDP_TRY(r->loop->scaler ? update_scaled(r) : update_unscaled(r));
    fsdp_module_zero_grad(r->loop->module);
    return fsdp_precompute_float8_dynamic_scale_for_fsdp(r->loop->module);
}

/* --- a step --- */

/* Return the smallest power of two that is at least x. */
static double power_above(double x)
{
    int exponent;
    double fraction = frexp(x, &exponent);
    return ldexp(1.0, fraction == 0.5 ? exponent - 1 : exponent);
}

/* Set which gradients the backward of this micro-step communicates. The backward of the last
 * micro-step of a step also communicates all gradients that earlier micro-steps have accumulated.
 * So no uncommunicated gradients are left after the step. */
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

/* Run the forward and the backward of a micro-batch. Store its loss in r->losses. */
static fsdp_status run_micro_step(const running_step *r, const fsdp_batch *batch, int micro_step)
{
    fsdp_train_loop *loop = r->loop;
    fsdp_device *device = loop->device;
    fsdp_forward_backward_options options = micro_batch_options(loop, batch, r->scale);
    fsdp_tensor *loss;
    options.training = true;
    options.micro_step = micro_step;
    FSDP_TRY(set_communication(loop, micro_step));
    FSDP_TRY(fsdp_start_forward_backward(loop->module, device, batch, &options, &loss));
    if (device->kernels)
        device->kernels->cast(device->context, (float *)fsdp_tensor_ptr(r->losses) + micro_step,
                              FSDP_DTYPE_F32, fsdp_tensor_ptr(loss), loss->dtype, 1);
    fsdp_tensor_release(loss);
    return FSDP_OK;
}

static fsdp_status step_on(running_step *r, fsdp_batch *const *batches)
{
    fsdp_train_loop *loop = r->loop;
    int n = loop->micro_steps * fsdp_group_world_size(loop->group);
    if (loop->unshard_first)
        FSDP_TRY(fsdp_unit_unshard_async(loop->module, NULL));
    FSDP_TRY(gather_micro_batches(loop, r->mine, loop->micro_steps, r->all));
    fsdp_step_result counts = {0};
    int64_t micro_batches = add_micro_batches(r->all, n, &counts);
    r->divide = divisor(loop, &counts, micro_batches);
    double loss_scale = loop->scaler ? fsdp_grad_scaler_scale(loop->scaler) : 1.0;
    double power = loop->scaler ? power_above(r->divide) : 1.0;
    const double given = loop->gradient_divide_factor;
    FSDP_TRY(
        fsdp_set_gradient_divide_factor(loop->module, (given > 0.0 ? given : r->divide) / power));
    r->scale = loss_scale / power;
    r->unscale = power / loss_scale;
    *r->result = (fsdp_step_result){.loss_scale = loss_scale};
    for (int a = 0; a < loop->micro_steps; a++)
        FSDP_TRY(run_micro_step(r, batches[a], a));
    return update(r);
}

fsdp_status fsdp_train_step_on(fsdp_train_loop *loop, fsdp_batch *const *batches, double lr,
                               int64_t step, fsdp_step_result *result)
{
    size_t a = (size_t)loop->micro_steps;
    running_step r = {.loop = loop, .lr = lr, .step = step, .result = result};
    r.mine = fsdp_calloc(a, sizeof *r.mine);
    r.all = fsdp_calloc(a * (size_t)fsdp_group_world_size(loop->group), sizeof *r.all);
    fsdp_status status = r.mine && r.all ? FSDP_OK : FSDP_ERR_NOMEM;
    for (size_t i = 0; i < a && status == FSDP_OK; i++)
        add_batch(&r.mine[i], batches[i]);
    if (status == FSDP_OK)
        status = fsdp_tensor_create(loop->device, FSDP_DTYPE_F32, 1, (int64_t[]){(int64_t)a},
                                    FSDP_TAG_ACTIVATION, &r.losses);
    if (status == FSDP_OK)
        status = step_on(&r, batches);
    fsdp_tensor_release(r.losses);
    fsdp_free(r.mine);
    fsdp_free(r.all);
    return status;
}

fsdp_status fsdp_train_step(fsdp_train_loop *loop, fsdp_loader *loader, double lr, int64_t step,
                            fsdp_step_result *result)
{
    size_t a = (size_t)loop->micro_steps;
    fsdp_batch **batches = fsdp_calloc(a, sizeof(fsdp_batch *));
    const double begin = fsdp_clock_s();
    fsdp_status status = batches ? take_batches(loop, loader, batches) : FSDP_ERR_NOMEM;
    const double data_s = fsdp_clock_s() - begin;
    if (status == FSDP_OK)
        status = fsdp_train_step_on(loop, batches, lr, step, result);
    if (status == FSDP_OK)
        result->data_s = data_s;
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

/* Compute a classifier's loss from its logits, and add its predictions to `measurer`. */
static fsdp_status classify_leaf(const fsdp_train_loop *loop, const fsdp_batch *batch,
                                 fsdp_measurer *measurer, double *loss)
{
    fsdp_scope_options options = {.batch = batch};
    fsdp_scope *s;
    FSDP_TRY(fsdp_scope_open(loop->device, NULL, &options, &s));
    fsdp_tensor *logits = fsdp_model_logits(s, loop->module).logits;
    fsdp_status status = fsdp_scope_status(s);
    if (status == FSDP_OK && !fsdp_device_is_meta(loop->device))
        status = fsdp_measurer_add(measurer, logits, batch, loop->label_smoothing, loss);
    fsdp_scope_close(s);
    *loss *= (double)factor_of(loop, batch);
    return status;
}

static fsdp_status validate_batch(fsdp_train_loop *loop, const fsdp_batch *batch,
                                  fsdp_measurer *measurer, micro_batch_sum *mine)
{
    add_batch(mine, batch);
    if (loop->num_labels)
        return classify_leaf(loop, batch, measurer, &mine->loss);
    const fsdp_forward_backward_options options = micro_batch_options(loop, batch, 1.0);
    return fsdp_forward_backward(loop->module, loop->device, batch, &options, &mine->loss);
}

fsdp_status fsdp_validate_on(fsdp_train_loop *loop, const fsdp_batch *batch)
{
    fsdp_measurer measurer = {0};
    micro_batch_sum mine = {0};
    FSDP_TRY(fsdp_measurer_init(&measurer, loop->problem_type, loop->num_labels));
    fsdp_status status = validate_batch(loop, batch, &measurer, &mine);
    fsdp_measurer_fini(&measurer);
    return status;
}

/* Validate all batches of the loader. Add the losses and counts of all micro-batches to *sum; the
 * caller divides the loss later. Add the number of micro-batches that have labels to
 * *micro_batches. */
static fsdp_status validate_batches(fsdp_train_loop *loop, fsdp_loader *loader,
                                    void (*each)(void *arg), void *arg, fsdp_measurer *measurer,
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
        status = validate_batch(loop, batch, measurer, &mine);
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
    fsdp_measurer measurer = {0};
    int64_t micro_batches = 0;
    FSDP_TRY(fsdp_measurer_init(&measurer, loop->problem_type, loop->num_labels));
    fsdp_status status = validate_batches(loop, loader, each, arg, &measurer, &sum, &micro_batches);
    if (status == FSDP_OK && loop->num_labels)
        status = fsdp_measurer_finish(&measurer, loop->group, &sum.measures);
    fsdp_measurer_fini(&measurer);
    if (status != FSDP_OK)
        return status;
    sum.loss /= divisor(loop, &sum, micro_batches);
    *result = sum;
    return FSDP_OK;
}
