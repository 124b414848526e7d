/* Losses for a classification head: softmax cross-entropy for class labels, and mean squared error
 * or binary cross-entropy for targets that are numbers. There are few classes, so all logits fit in
 * memory. Backward computes d_logits from the saved logits, so the loss may have any gradient. This
 * is different from the loss over a vocabulary (ops_loss.c), whose gradient must be 1. Legend: T
 * rows, V classes or labels. */
#include "src/autograd/ops.h"

#include <string.h>

#include "src/base/alloc.h"

typedef struct cross_entropy_options {
    float factor, smoothing;
} cross_entropy_options;

void fsdp_run_cross_entropy(fsdp_scope *s, const fsdp_kernels *k, const fsdp_cross_entropy_args *a)
{
    fsdp_kernel_context *context = fsdp_scope_context(s);
    if (a->smoothing <= 0)
        k->cross_entropy(context, a->losses, a->logits, a->dtype, a->labels, a->rows, a->vocab,
                         a->ld, a->gradient, a->factor);
    else
        k->smoothed_cross_entropy(context, a->losses, a->logits, a->dtype, a->labels, a->rows,
                                  a->vocab, a->ld, a->gradient, a->factor, a->smoothing);
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

/* --- targets that are numbers --- */

typedef struct target_loss_options {
    float factor;
    bool binary;
} target_loss_options;

static void run_kernel(fsdp_scope *s, const fsdp_kernels *k, const fsdp_tensor *losses,
                       const fsdp_tensor *logits, const float *targets,
                       const target_loss_options *o, bool gradient, float factor)
{
    k->target_loss(fsdp_scope_context(s), fsdp_tensor_ptr(losses), fsdp_tensor_ptr(logits), targets,
                   logits->shape[0], logits->shape[1], o->binary, gradient, factor);
}

static void target_loss_backward(fsdp_scope *s, const fsdp_node *n, fsdp_tensor *const *grad_out,
                                 fsdp_tensor **grad_in)
{
    const target_loss_options *o = (const target_loss_options *)n->options;
    const fsdp_tensor *logits = n->saved[0];
    double grad = 1.0;
    fsdp_tensor *dx = fsdp_input_grad_like(s, n, 0, logits, grad_in);
    fsdp_tensor *losses = fsdp_new(s, FSDP_DTYPE_F32, 1, logits->shape);
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    if (!k || !fsdp_grad_scalar(s, grad_out[0], &grad))
        return;
    k->copy(fsdp_scope_context(s), fsdp_tensor_ptr(dx), fsdp_tensor_ptr(logits),
            (size_t)fsdp_tensor_numel(logits) * sizeof(float));
    run_kernel(s, k, losses, dx, n->host, o, true, (float)((double)o->factor * grad));
}

static const fsdp_op target_loss_op = {.name = "target_loss", .backward = target_loss_backward};

static float *copy_targets(fsdp_scope *s, const float *targets, size_t n)
{
    float *copy = fsdp_calloc(n, sizeof *copy);
    if (!copy)
        fsdp_scope_fail(s, FSDP_ERR_NOMEM);
    else if (n)
        memcpy(copy, targets, n * sizeof *copy);
    return copy;
}

static bool check_logits(fsdp_scope *s, const char *op, fsdp_tensor *logits)
{
    char text[FSDP_SHAPE_TEXT];
    if (!fsdp_check_floats(s, op, &logits, (const char *const[]){"logits"}, 1))
        return false;
    if (logits->ndim != 2 || logits->shape[1] < 1)
        fsdp_scope_error(s, op, "logits is %s, not [T, V]",
                         fsdp_shape_text(logits->ndim, logits->shape, text));
    else if (logits->dtype != FSDP_DTYPE_F32)
        fsdp_scope_error(s, op, "logits is not float32");
    return fsdp_scope_ok(s);
}

static fsdp_tensor *target_loss(fsdp_scope *s, const char *op, fsdp_tensor *logits,
                                const float *targets, const target_loss_options *o)
{
    if (!check_logits(s, op, logits))
        return NULL;
    fsdp_tensor *loss = fsdp_new(s, FSDP_DTYPE_F32, 0, NULL);
    fsdp_tensor *losses = fsdp_new(s, FSDP_DTYPE_F32, 1, logits->shape);
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    if (k) {
        run_kernel(s, k, losses, logits, targets, o, false, o->factor);
        k->sum(fsdp_scope_context(s), fsdp_tensor_ptr(loss), fsdp_tensor_ptr(losses),
               logits->shape[0], o->factor);
    }
    fsdp_drop(s, losses);
    if (!fsdp_scope_ok(s) || !fsdp_is_recorded(s, logits))
        return loss;
    float *copy = copy_targets(s, targets, (size_t)fsdp_tensor_numel(logits));
    if (!copy)
        return NULL;
    fsdp_record(s, &(fsdp_record_args){.op = &target_loss_op,
                                       .in = {logits},
                                       .n_in = 1,
                                       .saved = {logits},
                                       .n_saved = 1,
                                       .out = {loss},
                                       .n_out = 1,
                                       .options = o,
                                       .options_bytes = sizeof *o,
                                       .host = copy});
    return loss;
}

fsdp_tensor *fsdp_mse_loss(fsdp_scope *s, fsdp_tensor *logits, const float *targets, float factor)
{
    return target_loss(s, "mse_loss", logits, targets, &(target_loss_options){factor, false});
}

fsdp_tensor *fsdp_binary_cross_entropy_with_logits(fsdp_scope *s, fsdp_tensor *logits,
                                                   const float *targets, float factor)
{
    return target_loss(s, "binary_cross_entropy_with_logits", logits, targets,
                       &(target_loss_options){factor, true});
}
