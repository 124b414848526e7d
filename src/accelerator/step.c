/* Implements the calls of a training step: accumulation, forward and backward, clipping, optimizers
 * and schedulers. */
#include <stdlib.h>

#include <fsdp/train.h>

#include "src/accelerator/accelerator.h"
#include "src/base/alloc.h"
#include "src/comm/agree.h"
#include "src/optim/optimizer.h"

/* ---- accumulation ---- */

fsdp_status fsdp_accelerator_accumulate_begin(fsdp_accelerator *a)
{
    if (a->accumulating)
        return fsdp_error(FSDP_ERR_STATE, "accelerator: accumulate_begin was called twice without "
                                          "accumulate_end");
    if (a->next_micro_step == 0)
        a->planned = a->settings.gradient_accumulation_steps;
    /* The last batch of a loader ends the accumulation, even if the accumulation has had fewer
     * micro-steps than usual. */
    if (a->settings.sync_with_dataloader && fsdp_accelerator_end_of_dataloader(a))
        a->planned = a->next_micro_step + 1;
    a->micro_step = a->next_micro_step;
    a->n_micro_steps = a->planned;
    a->sync_gradients = a->micro_step + 1 >= a->planned;
    a->accumulating = true;
    return FSDP_OK;
}

fsdp_status fsdp_accelerator_accumulate_end(fsdp_accelerator *a)
{
    if (!a->accumulating)
        return fsdp_error(FSDP_ERR_STATE,
                          "accelerator: accumulate_end was called without accumulate_begin");
    a->next_micro_step = a->sync_gradients ? 0 : a->micro_step + 1;
    a->accumulating = false;
    a->sync_gradients = true;
    a->micro_step = 0;
    a->n_micro_steps = 1;
    return FSDP_OK;
}

bool fsdp_accelerator_sync_gradients(const fsdp_accelerator *a)
{
    return a->sync_gradients;
}

/* ---- the scale of fp16 ---- */

fsdp_status fsdp_accelerator_update_scale(fsdp_accelerator *a)
{
    if (!a->update_pending)
        return FSDP_OK;
    FSDP_TRY(fsdp_grad_scaler_update(a->scaler));
    fsdp_accelerator_forget_unscaled(a);
    return FSDP_OK;
}

void fsdp_accelerator_forget_unscaled(fsdp_accelerator *a)
{
    if (a->scaler)
        fsdp_grad_scaler_forget(a->scaler);
    a->update_pending = false;
    for (size_t i = 0; i < a->n_optimizers; i++)
        a->optimizers[i].unscaled = a->optimizers[i].stepped = false;
}

double fsdp_accelerator_loss_factor(const fsdp_accelerator *a)
{
    return fsdp_grad_scaler_scale(a->scaler) / a->settings.gradient_accumulation_steps;
}

/* ---- forward and backward ---- */

fsdp_status fsdp_accelerator_forward_backward(fsdp_accelerator *a, fsdp_module *model,
                                              const fsdp_batch *batch, double *loss)
{
    const int steps = a->settings.gradient_accumulation_steps;
    const int32_t labels = batch->label_tokens ? batch->label_tokens : 1;
    double divided;
    FSDP_TRY(fsdp_accelerator_know_model(a, model));
    FSDP_TRY(fsdp_accelerator_update_scale(a));
    const fsdp_forward_backward_options options = {.training = true,
                                                   .factor = 1.0 / labels / steps,
                                                   .scaler = a->scaler,
                                                   .micro_step = a->micro_step,
                                                   .n_micro_steps = a->n_micro_steps};
    a->backwards++;
    FSDP_TRY(fsdp_forward_backward(model, a->device, batch, &options, &divided));
    if (loss)
        *loss = divided * steps;
    return FSDP_OK;
}

fsdp_status fsdp_accelerator_scope_open(fsdp_accelerator *a, bool training, const fsdp_batch *batch,
                                        fsdp_scope **scope)
{
    const int rank = fsdp_group_rank(a->group), world_size = fsdp_group_world_size(a->group);
    fsdp_scope_options options = {.training = training,
                                  .seed = a->seed,
                                  .step = a->forwards,
                                  .micro_batch = (uint32_t)(a->micro_step * world_size + rank),
                                  .micro_step = a->micro_step,
                                  .n_micro_steps = a->n_micro_steps,
                                  .batch = batch};
    if (batch) {
        options.seed = batch->seed;
        options.step = batch->step;
        options.micro_batch = batch->micro_batch;
    }
    if (training)
        FSDP_TRY(fsdp_accelerator_update_scale(a));
    FSDP_TRY(fsdp_scope_open(a->device, training ? a->tape : NULL, &options, scope));
    a->forwards += training && !batch;
    return FSDP_OK;
}

/* Create the gradient of the loss: a tensor with the shape and dtype of `loss` and with the value
 * `value`. */
static fsdp_status make_gradient(fsdp_accelerator *a, const fsdp_tensor *loss, double value,
                                 fsdp_tensor **gradient)
{
    const float element = (float)value;
    fsdp_tensor *exact;
    if (fsdp_tensor_numel(loss) != 1)
        return fsdp_error(FSDP_ERR_INVALID, "accelerator: a loss with %lld elements, not 1",
                          (long long)fsdp_tensor_numel(loss));
    FSDP_TRY(fsdp_tensor_from_data(a->device, FSDP_DTYPE_F32, fsdp_tensor_ndim(loss),
                                   fsdp_tensor_shape(loss), &element, FSDP_TAG_ACTIVATION, &exact));
    const fsdp_status status =
        fsdp_tensor_to(exact, fsdp_tensor_dtype(loss), FSDP_TAG_ACTIVATION, gradient);
    fsdp_tensor_release(exact);
    return status;
}

static fsdp_status run_backward(fsdp_accelerator *a, const fsdp_scope *scope, fsdp_tensor *loss,
                                double factor)
{
    fsdp_tensor *gradient = NULL;
    fsdp_status status = fsdp_scope_status(scope);
    a->backwards++;
    if (status == FSDP_OK && !loss)
        status = fsdp_error(FSDP_ERR_INVALID, "accelerator: there is no loss");
    if (status == FSDP_OK && factor != 1.0)
        status = make_gradient(a, loss, factor, &gradient);
    if (status == FSDP_OK)
        status = fsdp_backward(a->tape, &loss, gradient ? &gradient : NULL, 1);
    else
        fsdp_tape_reset(a->tape);
    fsdp_tensor_release(gradient);
    return status;
}

fsdp_status fsdp_accelerator_backward(fsdp_accelerator *a, fsdp_scope *scope, fsdp_tensor *loss)
{
    return run_backward(a, scope, loss, fsdp_accelerator_loss_factor(a));
}

fsdp_status fsdp_accelerator_backward_scaled(fsdp_accelerator *a, fsdp_scope *scope,
                                             fsdp_tensor *loss)
{
    return run_backward(a, scope, loss, 1.0);
}

/* ---- clipping ---- */

/* Unscale the gradients of the optimizer, unless this was done already. */
static fsdp_status unscale(fsdp_accelerator *a, fsdp_prepared_optimizer *o)
{
    if (o->stepped || !fsdp_grad_scaler_is_enabled(a->scaler))
        return FSDP_OK;
    /* The program may have called fsdp_grad_scaler_update() itself. */
    o->unscaled = o->unscaled && fsdp_grad_scaler_was_used(a->scaler, o->optimizer);
    if (o->unscaled && o->unscaled_after != a->backwards)
        return fsdp_error(FSDP_ERR_STATE,
                          "accelerator: a backward in fp16 added to gradients that were clipped "
                          "before; after clipping, call fsdp_accelerator_optimizer_step(), or "
                          "fsdp_accelerator_zero_grad() to leave the step out");
    if (o->unscaled)
        return FSDP_OK;
    FSDP_TRY(fsdp_grad_scaler_unscale(a->scaler, o->optimizer));
    o->unscaled = true;
    o->unscaled_after = a->backwards;
    return FSDP_OK;
}

/* Check that the gradients of `model` are complete, and unscale them. */
static fsdp_status begin_clip(fsdp_accelerator *a, const fsdp_module *model)
{
    FSDP_TRY(fsdp_accelerator_know_model(a, model));
    if (!a->sync_gradients)
        return fsdp_error(FSDP_ERR_STATE,
                          "accelerator: gradients are still being accumulated (micro-step %d of "
                          "%d); clip only if fsdp_accelerator_sync_gradients() is true",
                          a->micro_step + 1, a->n_micro_steps);
    for (size_t i = 0; i < a->n_optimizers; i++) {
        fsdp_prepared_optimizer *o = &a->optimizers[i];
        if (a->models[o->model] == model)
            FSDP_TRY(unscale(a, o));
    }
    return FSDP_OK;
}

fsdp_status fsdp_accelerator_clip_grad_norm(fsdp_accelerator *a, fsdp_module *model,
                                            double max_norm, const fsdp_clip_grad_options *options,
                                            double *total_norm)
{
    fsdp_parameter_list list = {0};
    fsdp_status status = begin_clip(a, model);
    if (status == FSDP_OK)
        status = fsdp_module_parameters(model, false, &list);
    status = fsdp_agree(a->group, status);
    if (status == FSDP_OK)
        status = fsdp_clip_grad_norm(&list, max_norm, options, total_norm, NULL);
    fsdp_parameter_list_free(&list);
    return status;
}

fsdp_status fsdp_accelerator_clip_grad_value(fsdp_accelerator *a, fsdp_module *model,
                                             double clip_value)
{
    fsdp_parameter_list list = {0};
    fsdp_status status = begin_clip(a, model);
    if (status == FSDP_OK)
        status = fsdp_module_parameters(model, false, &list);
    if (status == FSDP_OK)
        status = fsdp_clip_grad_value(&list, clip_value);
    fsdp_parameter_list_free(&list);
    return fsdp_agree(a->group, status);
}

/* ---- optimizers ---- */

/* Return a number that increases with every step of the optimizer that is not skipped. */
static int64_t updates_of(const fsdp_optimizer *optimizer)
{
    const fsdp_parameter_list *list = fsdp_optimizer_parameters(optimizer);
    int64_t sum = 0;
    for (size_t i = 0; i < list->n; i++)
        sum += fsdp_optimizer_steps(optimizer, list->items[i].parameter);
    return sum;
}

static fsdp_status step_scaled(fsdp_accelerator *a, fsdp_prepared_optimizer *o)
{
    if (o->stepped)
        FSDP_TRY(fsdp_accelerator_update_scale(a));
    const int64_t before = updates_of(o->optimizer);
    FSDP_TRY(fsdp_grad_scaler_step(a->scaler, o->optimizer, 1.0f));
    o->skipped = fsdp_grad_scaler_found_inf(a->scaler) && updates_of(o->optimizer) == before;
    o->stepped = a->update_pending = true;
    return FSDP_OK;
}

fsdp_status fsdp_accelerator_optimizer_step(fsdp_accelerator *a, fsdp_optimizer *optimizer)
{
    FSDP_TRY(fsdp_accelerator_know_optimizer(a, optimizer));
    if (!a->sync_gradients)
        return FSDP_OK;
    if (!fsdp_grad_scaler_is_enabled(a->scaler))
        return fsdp_optimizer_step(optimizer, 1.0f);
    return step_scaled(a, &a->optimizers[fsdp_accelerator_find_optimizer(a, optimizer)]);
}

bool fsdp_accelerator_optimizer_step_was_skipped(const fsdp_accelerator *a)
{
    for (size_t i = 0; i < a->n_optimizers; i++)
        if (a->optimizers[i].skipped)
            return true;
    return false;
}

fsdp_status fsdp_accelerator_zero_grad(fsdp_accelerator *a, fsdp_optimizer *optimizer)
{
    FSDP_TRY(fsdp_accelerator_know_optimizer(a, optimizer));
    if (!a->sync_gradients)
        return FSDP_OK;
    fsdp_optimizer_zero_grad(optimizer);
    /* The gradients may have been unscaled, and then released without a step. In that case, update
     * the scaler before the next gradients: they must be unscaled, too, and the scale must become
     * smaller if the released gradients were not finite. */
    if (fsdp_grad_scaler_was_used(a->scaler, optimizer))
        a->update_pending = true;
    return FSDP_OK;
}

/* ---- schedulers ---- */

void fsdp_accelerated_scheduler_apply(const fsdp_accelerated_scheduler *s)
{
    fsdp_optimizer_set_lr(s->optimizer, fsdp_lr_at(&s->schedule, s->last_epoch));
}

fsdp_status fsdp_accelerator_scheduler_step(fsdp_accelerator *a, fsdp_accelerated_scheduler *s)
{
    size_t i = 0;
    while (i < a->n_schedulers && a->schedulers[i] != s)
        i++;
    if (i == a->n_schedulers)
        return fsdp_error(FSDP_ERR_INVALID, "accelerator: this scheduler is not one of "
                                            "fsdp_accelerator_prepare_scheduler()");
    const bool linked = a->settings.step_scheduler_with_optimizer;
    if (linked && (!a->sync_gradients ||
                   a->optimizers[fsdp_accelerator_find_optimizer(a, s->optimizer)].skipped))
        return FSDP_OK;
    s->last_epoch += linked && !s->one_a_step ? fsdp_group_world_size(a->group) : 1;
    fsdp_accelerated_scheduler_apply(s);
    return FSDP_OK;
}

double fsdp_accelerated_scheduler_last_lr(const fsdp_accelerated_scheduler *s)
{
    return fsdp_optimizer_lr(s->optimizer, 0);
}

int64_t fsdp_accelerated_scheduler_last_epoch(const fsdp_accelerated_scheduler *s)
{
    return s->last_epoch;
}
