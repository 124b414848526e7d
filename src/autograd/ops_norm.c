/* RMSNorm over the last dimension (Zhang & Sennrich 2019; T5LayerNorm), and LayerNorm (Ba et al.
 * 2016). Backward may recompute their results instead of keeping them (Note [Derived results] in
 * derived.h). This may happen in the backward of another unit, while the weights of the norm are
 * not gathered. So a node saves copies of the weights. It saves no copies if another storage keeps
 * the same values until backward (fsdp_storage.lasting). */
#include "src/autograd/early_stop.h"
#include "src/autograd/ops.h"

enum {
    IN_X,
    IN_W,
    IN_BIAS /* only in layer_norm; may be NULL */
};
enum {
    SAVED_X,
    SAVED_W,    /* from lasting_of() */
    SAVED_RSTD, /* rms_norm: [vectors] float32, 1 / sqrt(mean(x^2) + eps)
                   layer_norm: [2, rows] float32, mean and 1 / sqrt(variance + eps) */
    SAVED_BIAS  /* the bias, from lasting_of(); NULL if there is no bias */
};

static fsdp_tensor *over_lasting(fsdp_scope *s, const fsdp_tensor *w)
{
    fsdp_tensor *t = NULL;
    if (!fsdp_scope_check(
            s, fsdp_tensor_over(w->storage->lasting, w->dtype, w->ndim, w->shape, w->offset, &t)))
        return NULL;
    return fsdp_scope_own(s, t);
}

/* Return a tensor that has the values of w and can be read even while w is resharded. It is a
 * tensor over w->storage->lasting if that storage exists, otherwise a copy of w. Return NULL if w
 * is NULL or no node will be recorded. */
static fsdp_tensor *lasting_of(fsdp_scope *s, const fsdp_tensor *w, bool is_recorded)
{
    if (!w || !is_recorded)
        return NULL;
    if (w->storage->lasting && fsdp_scope_ok(s))
        return over_lasting(s, w);
    fsdp_tensor *copy = fsdp_new(s, w->dtype, w->ndim, w->shape);
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    if (copy && k)
        k->copy(fsdp_scope_context(s), fsdp_tensor_ptr(copy), fsdp_tensor_ptr(w),
                (size_t)fsdp_tensor_numel(w) * fsdp_dtype_size(w->dtype));
    return copy;
}

/* --- rms_norm --- */

/* Return the number of vectors that are normalized. Each vector has as many elements as w. */
static int64_t n_vectors(const fsdp_tensor *x, const fsdp_tensor *w)
{
    return fsdp_leading_rows(x) * (fsdp_last_dim(x) / w->shape[0]);
}

static void rms_norm_backward(fsdp_scope *s, const fsdp_node *n, fsdp_tensor *const *grad_out,
                              fsdp_tensor **grad_in)
{
    const fsdp_tensor *x = n->saved[SAVED_X], *w = n->saved[SAVED_W];
    if (!fsdp_check_inputs(s, "rms_norm", n->saved, n->n_saved))
        return;
    fsdp_tensor *dx = fsdp_input_grad_like(s, n, IN_X, x, grad_in);
    fsdp_grad_destination dw =
        fsdp_input_grad_destination(s, n, IN_W, w->dtype, w->ndim, w->shape, grad_in);
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    if (k)
        k->rms_norm_backward(fsdp_scope_context(s), dx ? fsdp_tensor_ptr(dx) : NULL,
                             dw.tensor ? fsdp_tensor_ptr(dw.tensor) : NULL,
                             dw.tensor ? dw.tensor->dtype : FSDP_DTYPE_F32, dw.beta,
                             fsdp_tensor_ptr(grad_out[0]), fsdp_tensor_ptr(x),
                             fsdp_tensor_ptr(n->saved[SAVED_RSTD]), fsdp_tensor_ptr(w), x->dtype,
                             w->dtype, n_vectors(x, w), w->shape[0]);
}

static void run_rms_norm(fsdp_scope *s, const fsdp_tensor *x, const fsdp_tensor *w,
                         const fsdp_tensor *rstd, float eps, const fsdp_tensor *y)
{
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    if (k)
        k->rms_norm(fsdp_scope_context(s), fsdp_tensor_ptr(y), fsdp_tensor_ptr(rstd),
                    fsdp_tensor_ptr(x), fsdp_tensor_ptr(w), x->dtype, w->dtype, n_vectors(x, w),
                    w->shape[0], eps);
}

static void rms_norm_derive(fsdp_scope *s, const fsdp_node *n, const fsdp_tensor *result)
{
    if (!fsdp_check_inputs(s, "rms_norm", &n->saved[SAVED_W], 1))
        return;
    run_rms_norm(s, n->saved[SAVED_X], n->saved[SAVED_W], n->saved[SAVED_RSTD],
                 *(const float *)n->options, result);
}

static const fsdp_op rms_norm_op = {
    .name = "rms_norm", .backward = rms_norm_backward, .derive = rms_norm_derive};

/* Check x and w, whose dtypes may differ. */
static bool check_rms_norm(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *w)
{
    char x_text[FSDP_SHAPE_TEXT], w_text[FSDP_SHAPE_TEXT];
    const char *op = rms_norm_op.name;
    if (!fsdp_check_inputs(s, op, (fsdp_tensor *const[]){x, w}, 2) ||
        !fsdp_check_float(s, op, x, "x") || !fsdp_check_float(s, op, w, "w"))
        return false;
    if (x->ndim < 1 || w->ndim != 1 || w->shape[0] < 1 || fsdp_last_dim(x) % w->shape[0])
        fsdp_scope_error(
            s, op, "x is %s but w is %s, not the last dimension of x or a divisor of it",
            fsdp_shape_text(x->ndim, x->shape, x_text), fsdp_shape_text(w->ndim, w->shape, w_text));
    return fsdp_scope_ok(s);
}

/* Compute rms_norm. The result has the dtype of x. */
static fsdp_tensor *rms_norm(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *w, float eps)
{
    int64_t rows = n_vectors(x, w);
    fsdp_tensor *y = fsdp_new(s, x->dtype, x->ndim, x->shape);
    fsdp_tensor *rstd = fsdp_new(s, FSDP_DTYPE_F32, 1, &rows);
    fsdp_tensor *own_w = lasting_of(s, w, fsdp_needs_grad(s, x) || fsdp_needs_grad(s, w));
    run_rms_norm(s, x, w, rstd, eps, y);
    fsdp_record(s, &(fsdp_record_args){.op = &rms_norm_op,
                                       .in = {x, w},
                                       .n_in = 2,
                                       .saved = {x, own_w, rstd},
                                       .n_saved = 3,
                                       .out = {y},
                                       .n_out = 1,
                                       .options = &eps,
                                       .options_bytes = sizeof eps});
    fsdp_drop(s, rstd);
    fsdp_drop(s, own_w);
    return fsdp_scope_ok(s) ? y : NULL;
}

fsdp_tensor *fsdp_rms_norm(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *w, float eps)
{
    if (!check_rms_norm(s, x, w))
        return NULL;
    fsdp_tensor *wide = fsdp_promote(s, x, w);
    fsdp_tensor *y = wide ? rms_norm(s, wide, w, eps) : NULL;
    fsdp_drop_promoted(s, wide, x);
    return y;
}

/* --- layer_norm --- */

static void layer_norm_backward(fsdp_scope *s, const fsdp_node *n, fsdp_tensor *const *grad_out,
                                fsdp_tensor **grad_in)
{
    const fsdp_tensor *x = n->saved[SAVED_X], *w = n->saved[SAVED_W];
    if (!fsdp_check_inputs(s, "layer_norm", n->saved, SAVED_RSTD + 1))
        return;
    fsdp_tensor *dx = fsdp_input_grad_like(s, n, IN_X, x, grad_in);
    fsdp_grad_destination dw =
        fsdp_input_grad_destination(s, n, IN_W, w->dtype, 1, w->shape, grad_in);
    fsdp_grad_destination db =
        fsdp_input_grad_destination(s, n, IN_BIAS, w->dtype, 1, w->shape, grad_in);
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    if (!k)
        return;
    const float *mean = fsdp_tensor_ptr(n->saved[SAVED_RSTD]);
    fsdp_layer_norm_backward_args args = {.dy = fsdp_tensor_ptr(grad_out[0]),
                                          .x = fsdp_tensor_ptr(x),
                                          .w = fsdp_tensor_ptr(w),
                                          .mean = mean,
                                          .rstd = mean + fsdp_leading_rows(x),
                                          .dtype = x->dtype,
                                          .w_dtype = w->dtype,
                                          .rows = fsdp_leading_rows(x),
                                          .width = fsdp_last_dim(x),
                                          .dx = dx ? fsdp_tensor_ptr(dx) : NULL};
    if (dw.tensor) {
        args.dw.dst = fsdp_tensor_ptr(dw.tensor);
        args.dw.dtype = dw.tensor->dtype;
        args.dw.beta = dw.beta;
    }
    if (db.tensor) {
        args.dbias.dst = fsdp_tensor_ptr(db.tensor);
        args.dbias.dtype = db.tensor->dtype;
        args.dbias.beta = db.beta;
    }
    k->layer_norm_backward(fsdp_scope_context(s), &args);
}

static void run_layer_norm(fsdp_scope *s, const fsdp_tensor *x, const fsdp_tensor *w,
                           const fsdp_tensor *bias, const fsdp_tensor *moments, float eps,
                           const fsdp_tensor *y)
{
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    if (!k)
        return;
    const int64_t rows = fsdp_leading_rows(x);
    float *mean = fsdp_tensor_ptr(moments);
    k->layer_norm(fsdp_scope_context(s), y->storage->data ? fsdp_tensor_ptr(y) : NULL, mean,
                  mean + rows, fsdp_tensor_ptr(x), fsdp_tensor_ptr(w),
                  bias ? fsdp_tensor_ptr(bias) : NULL, x->dtype, w->dtype, rows, fsdp_last_dim(x),
                  eps);
}

static void layer_norm_derive(fsdp_scope *s, const fsdp_node *n, const fsdp_tensor *result)
{
    if (!fsdp_check_inputs(s, "layer_norm", &n->saved[SAVED_W], 1) ||
        (n->saved[SAVED_BIAS] && !fsdp_check_inputs(s, "layer_norm", &n->saved[SAVED_BIAS], 1)))
        return;
    run_layer_norm(s, n->saved[SAVED_X], n->saved[SAVED_W], n->saved[SAVED_BIAS],
                   n->saved[SAVED_RSTD], *(const float *)n->options, result);
}

static const fsdp_op layer_norm_op = {
    .name = "layer_norm", .backward = layer_norm_backward, .derive = layer_norm_derive};

static bool check_layer_norm(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *w, fsdp_tensor *bias)
{
    char x_text[FSDP_SHAPE_TEXT], w_text[FSDP_SHAPE_TEXT];
    const char *op = layer_norm_op.name;
    static const char *const names[] = {"w", "bias"};
    if (!fsdp_check_inputs(s, op, &x, 1) || !fsdp_check_float(s, op, x, "x") ||
        !fsdp_check_floats(s, op, (fsdp_tensor *const[]){w, bias}, names, bias ? 2 : 1))
        return false;
    if (x->ndim < 1 || w->ndim != 1 || w->shape[0] != fsdp_last_dim(x)) {
        fsdp_scope_error(s, op, "x is %s but w is %s, not the last dimension of x",
                         fsdp_shape_text(x->ndim, x->shape, x_text),
                         fsdp_shape_text(w->ndim, w->shape, w_text));
        return false;
    }
    return !bias || fsdp_check_same_shape(s, op, w, "w", bias, "bias");
}

/* Create the result of a norm. The result gets no memory if two conditions hold. First, the norm is
 * the last operation that is computed when backward runs a checkpointed part again. Second,
 * backward reads only the norm's moments, not its result. Both conditions hold in BERT, because its
 * blocks end with a norm. */
static fsdp_tensor *new_result(fsdp_scope *s, const fsdp_tensor *x)
{
    fsdp_tensor *y = NULL;
    if (!fsdp_early_stop_is_unread(s->run))
        return fsdp_new(s, x->dtype, x->ndim, x->shape);
    if (!fsdp_scope_check(
            s, fsdp_tensor_without_memory(s->run->device, x->dtype, x->ndim, x->shape, &y)))
        return NULL;
    return fsdp_scope_own(s, y);
}

fsdp_tensor *fsdp_layer_norm(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *w, fsdp_tensor *bias,
                             float eps)
{
    if (!check_layer_norm(s, x, w, bias))
        return NULL;
    int64_t rows = fsdp_leading_rows(x);
    fsdp_tensor *y = new_result(s, x);
    fsdp_tensor *moments = fsdp_new(s, FSDP_DTYPE_F32, 2, (const int64_t[]){2, rows});
    const bool is_recorded =
        fsdp_needs_grad(s, x) || fsdp_needs_grad(s, w) || fsdp_needs_grad(s, bias);
    fsdp_tensor *own_w = lasting_of(s, w, is_recorded),
                *own_bias = lasting_of(s, bias, is_recorded);
    run_layer_norm(s, x, w, bias, moments, eps, y);
    fsdp_record(s, &(fsdp_record_args){.op = &layer_norm_op,
                                       .in = {x, w, bias},
                                       .n_in = 3,
                                       .saved = {x, own_w, moments, own_bias},
                                       .n_saved = 4,
                                       .out = {y},
                                       .n_out = 1,
                                       .options = &eps,
                                       .options_bytes = sizeof eps});
    fsdp_drop(s, moments);
    fsdp_drop(s, own_w);
    fsdp_drop(s, own_bias);
    return fsdp_scope_ok(s) ? y : NULL;
}
