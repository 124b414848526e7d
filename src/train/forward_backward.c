/* Runs the forward and the backward of one batch. */
#include "src/train/forward_backward.h"

/* Return the factor that turns the sum of the label losses of `batch` into their mean. The division
 * is done in float32, because factor_of() in step.c computes its factor in float32, too. */
static double mean_factor(const fsdp_batch *batch)
{
    return batch->label_tokens > 0 ? (double)(1.0f / (float)batch->label_tokens) : 1.0;
}

static double scale_of(const fsdp_forward_backward_options *o)
{
    return o->training && o->scaler ? fsdp_grad_scaler_scale(o->scaler) : 1.0;
}

fsdp_status fsdp_start_forward_backward(fsdp_module *model, fsdp_device *device,
                                        const fsdp_batch *batch,
                                        const fsdp_forward_backward_options *o, fsdp_tensor **loss)
{
    const fsdp_scope_options in = {.training = o->training,
                                   .seed = batch->seed,
                                   .step = batch->step,
                                   .micro_batch = batch->micro_batch,
                                   .micro_step = o->micro_step,
                                   .n_micro_steps = o->n_micro_steps,
                                   .label_smoothing = (float)o->label_smoothing,
                                   .batch = batch};
    const double factor = o->factor != 0.0 ? o->factor : mean_factor(batch);
    fsdp_scope *s;
    fsdp_tensor *out;
    FSDP_TRY(fsdp_scope_open(device, o->training ? o->tape : NULL, &in, &s));
    out = fsdp_model_loss(s, model, (float)(factor * scale_of(o)));
    fsdp_status status = fsdp_scope_status(s);
    if (status == FSDP_OK && o->training)
        status = fsdp_backward(o->tape, &out, NULL, 1);
    if (status == FSDP_OK)
        *loss = fsdp_tensor_retain(out);
    fsdp_scope_close(s);
    if (status != FSDP_OK && o->training)
        fsdp_tape_reset(o->tape);
    return status;
}

/* Do what fsdp_start_forward_backward() does, then wait for the loss and set *loss to its value
 * without the scaler's scale. */
static fsdp_status on_tape(fsdp_module *model, fsdp_device *device, const fsdp_batch *batch,
                           const fsdp_forward_backward_options *o, double *loss)
{
    const double scale = scale_of(o);
    double value = 0.0;
    fsdp_tensor *out;
    FSDP_TRY(fsdp_start_forward_backward(model, device, batch, o, &out));
    const fsdp_status status =
        fsdp_device_is_meta(device) ? FSDP_OK : fsdp_tensor_item(out, &value);
    fsdp_tensor_release(out);
    if (status == FSDP_OK && loss)
        *loss = value / scale;
    return status;
}

fsdp_status fsdp_forward_backward(fsdp_module *model, fsdp_device *device, const fsdp_batch *batch,
                                  const fsdp_forward_backward_options *options, double *loss)
{
    fsdp_forward_backward_options o = options ? *options : (fsdp_forward_backward_options){0};
    if (!o.training || o.tape)
        return on_tape(model, device, batch, &o, loss);
    FSDP_TRY(fsdp_tape_create(&o.tape));
    fsdp_status status = on_tape(model, device, batch, &o, loss);
    fsdp_tape_destroy(o.tape);
    return status;
}
