/* Softmax cross-entropy of logits that are in memory, for a classification head with few classes.
 * Backward computes the softmax again from the logits, so the gradient of the loss may have any
 * value. The loss for a vocabulary, in ops_loss.c, requires that its gradient is 1.
 * Legend: T rows, V classes. */
#include "src/autograd/ops.h"

typedef struct cross_entropy_options {
    float factor, smoothing;
} cross_entropy_options;

void fsdp_run_cross_entropy(fsdp_scope *s, const fsdp_kernels *k, const fsdp_cross_entropy_args *a)
{
    fsdp_kernel_context *context = fsdp_scope_context(s);
    if (a->smoothing <= 0)
        k->cross_entropy(context, a->losses, a->logits, a->dtype, a->labels, a->rows, a->vocab,
                         a->ld, a->gradient, a->factor);
    else if (k->smoothed_cross_entropy)
        k->smoothed_cross_entropy(context, a->losses, a->logits, a->dtype, a->labels, a->rows,
                                  a->vocab, a->ld, a->gradient, a->factor, a->smoothing);
    else
        fsdp_scope_error(s, "cross_entropy",
                         "label smoothing is not available on this device; the "
                         "CPU has it");
}

static void cross_entropy_backward(fsdp_scope *s, const fsdp_node *n, fsdp_tensor *const *grad_out,
                                   fsdp_tensor **grad_in)
{
    const cross_entropy_options *o = (const cross_entropy_options *)n->options;
    const fsdp_tensor *logits = n->saved[0];
    const int64_t rows = logits->shape[0];
    double grad = 1.0;
    fsdp_tensor *dx = fsdp_input_grad_like(s, n, 0, logits, grad_in);
    fsdp_tensor *losses = fsdp_new(s, FSDP_DTYPE_F32, 1, &rows);
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    if (!k || !fsdp_grad_scalar(s, grad_out[0], &grad))
        return;
    k->copy(fsdp_scope_context(s), fsdp_tensor_ptr(dx), fsdp_tensor_ptr(logits),
            (size_t)fsdp_tensor_numel(logits) * fsdp_dtype_size(logits->dtype));
    fsdp_run_cross_entropy(s, k,
                           &(fsdp_cross_entropy_args){.losses = fsdp_tensor_ptr(losses),
                                                      .logits = fsdp_tensor_ptr(dx),
                                                      .dtype = dx->dtype,
                                                      .labels = n->host,
                                                      .rows = rows,
                                                      .vocab = logits->shape[1],
                                                      .ld = logits->shape[1],
                                                      .gradient = true,
                                                      .factor = (float)((double)o->factor * grad),
                                                      .smoothing = o->smoothing});
}

static const fsdp_op cross_entropy_op = {.name = "cross_entropy",
                                         .backward = cross_entropy_backward};

/* Compute the losses of all rows, and store `factor` times their sum in `loss`. */
static void sum_losses(fsdp_scope *s, const fsdp_kernels *k, const fsdp_tensor *logits,
                       const fsdp_tensor *losses, const int32_t *labels, float factor,
                       const fsdp_tensor *loss)
{
    const int64_t rows = logits->shape[0];
    fsdp_run_cross_entropy(
        s, k,
        &(fsdp_cross_entropy_args){.losses = fsdp_tensor_ptr(losses),
                                   .logits = fsdp_tensor_ptr(logits),
                                   .dtype = logits->dtype,
                                   .labels = labels,
                                   .rows = rows,
                                   .vocab = logits->shape[1],
                                   .ld = logits->shape[1],
                                   .factor = factor,
                                   .smoothing = s->run->options.label_smoothing});
    k->sum(fsdp_scope_context(s), fsdp_tensor_ptr(loss), fsdp_tensor_ptr(losses), rows, factor);
}

fsdp_tensor *fsdp_cross_entropy(fsdp_scope *s, fsdp_tensor *logits, const int32_t *labels,
                                float factor)
{
    char text[FSDP_SHAPE_TEXT];
    const char *op = cross_entropy_op.name;
    if (!fsdp_check_floats(s, op, &logits, (const char *const[]){"logits"}, 1))
        return NULL;
    if (logits->ndim != 2) {
        fsdp_scope_error(s, op, "logits is %s, not [T, V]",
                         fsdp_shape_text(logits->ndim, logits->shape, text));
        return NULL;
    }
    if (!fsdp_check_labels(s, op, labels, logits->shape[0], logits->shape[1]))
        return NULL;
    fsdp_tensor *loss = fsdp_new(s, FSDP_DTYPE_F32, 0, NULL);
    fsdp_tensor *losses = fsdp_new(s, FSDP_DTYPE_F32, 1, logits->shape);
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    if (k)
        sum_losses(s, k, logits, losses, labels, factor, loss);
    fsdp_drop(s, losses);
    if (!fsdp_scope_ok(s) || !fsdp_is_recorded(s, logits))
        return loss;
    int32_t *copy = fsdp_copy_ids(s, labels, logits->shape[0]);
    if (!copy)
        return NULL;
    fsdp_record(s, &(fsdp_record_args){
                       .op = &cross_entropy_op,
                       .in = {logits},
                       .n_in = 1,
                       .saved = {logits},
                       .n_saved = 1,
                       .out = {loss},
                       .n_out = 1,
                       .options = &(cross_entropy_options){factor, s->run->options.label_smoothing},
                       .options_bytes = sizeof(cross_entropy_options),
                       .host = copy});
    return loss;
}
