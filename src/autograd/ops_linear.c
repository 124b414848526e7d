/* y = x w^T + bias, and its backward: dx = dy w, dw = dy^T x, dbias = column sums of dy.
 * Legend: T rows of x, D features in, N features out. */
#include <string.h>

#include "src/autograd/ops.h"

enum {
    IN_X,
    IN_W,
    IN_BIAS
};
enum {
    SAVED_X, /* NULL unless dw is wanted */
    SAVED_W  /* NULL unless dx is wanted */
};

typedef struct linear_options {
    int64_t rows, in_features, out_features;
    fsdp_dtype dtype;
    int x_ndim;
    int64_t x_shape[FSDP_MAX_DIMS];
} linear_options;

static void backward_x(fsdp_scope *s, const fsdp_node *n, const fsdp_tensor *dy,
                       fsdp_tensor **grad_in)
{
    const linear_options *o = (const linear_options *)n->options;
    if (!fsdp_check_inputs(s, "linear", &n->saved[SAVED_W], 1))
        return;
    grad_in[IN_X] = fsdp_new(s, o->dtype, o->x_ndim, o->x_shape);
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    if (!k)
        return;
    fsdp_scope_check(
        s, k->gemm(fsdp_scope_context(s), &(fsdp_gemm_args){.m = o->rows,
                                                            .n = o->in_features,
                                                            .k = o->out_features,
                                                            .a = fsdp_tensor_ptr(dy),
                                                            .lda = o->out_features,
                                                            .b = fsdp_tensor_ptr(n->saved[SAVED_W]),
                                                            .ldb = o->in_features,
                                                            .c = fsdp_tensor_ptr(grad_in[IN_X]),
                                                            .ldc = o->in_features,
                                                            .ab_dtype = o->dtype,
                                                            .c_dtype = o->dtype}));
}

static void backward_w(fsdp_scope *s, const fsdp_node *n, const fsdp_tensor *dy,
                       fsdp_tensor **grad_in)
{
    const linear_options *o = (const linear_options *)n->options;
    fsdp_grad_slot dw = fsdp_grad_open(s, n, IN_W, o->dtype, 2,
                                       (const int64_t[]){o->out_features, o->in_features}, grad_in);
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    if (!k || !dw.tensor)
        return;
    fsdp_scope_check(
        s, k->gemm(fsdp_scope_context(s), &(fsdp_gemm_args){.m = o->out_features,
                                                            .n = o->in_features,
                                                            .k = o->rows,
                                                            .a = fsdp_tensor_ptr(dy),
                                                            .lda = o->out_features,
                                                            .trans_a = true,
                                                            .b = fsdp_tensor_ptr(n->saved[SAVED_X]),
                                                            .ldb = o->in_features,
                                                            .c = fsdp_tensor_ptr(dw.tensor),
                                                            .ldc = o->in_features,
                                                            .ab_dtype = o->dtype,
                                                            .c_dtype = dw.tensor->dtype,
                                                            .beta = dw.beta}));
}

static void backward_bias(fsdp_scope *s, const fsdp_node *n, const fsdp_tensor *dy,
                          fsdp_tensor **grad_in)
{
    const linear_options *o = (const linear_options *)n->options;
    fsdp_grad_slot db = fsdp_grad_open(s, n, IN_BIAS, o->dtype, 1, &o->out_features, grad_in);
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    if (k && db.tensor)
        k->column_sum(fsdp_scope_context(s), fsdp_tensor_ptr(db.tensor), db.tensor->dtype, db.beta,
                      fsdp_tensor_ptr(dy), o->dtype, o->rows, o->out_features);
}

static void linear_backward(fsdp_scope *s, const fsdp_node *n, fsdp_tensor *const *grad_out,
                            fsdp_tensor **grad_in)
{
    if (fsdp_node_needs(n, IN_X))
        backward_x(s, n, grad_out[0], grad_in);
    if (fsdp_node_needs(n, IN_W))
        backward_w(s, n, grad_out[0], grad_in);
    if (fsdp_node_needs(n, IN_BIAS))
        backward_bias(s, n, grad_out[0], grad_in);
}

static const fsdp_op linear_op = {.name = "linear", .backward = linear_backward};

static bool check_shapes(fsdp_scope *s, const fsdp_tensor *x, const fsdp_tensor *w,
                         const fsdp_tensor *bias)
{
    char x_text[FSDP_SHAPE_TEXT], w_text[FSDP_SHAPE_TEXT], b_text[FSDP_SHAPE_TEXT];
    fsdp_shape_text(x->ndim, x->shape, x_text);
    fsdp_shape_text(w->ndim, w->shape, w_text);
    if (x->ndim < 1 || w->ndim != 2)
        fsdp_scope_error(s, "linear", "x is %s and w is %s, not [T, D] and [N, D]", x_text, w_text);
    else if (fsdp_last_dim(x) != w->shape[1])
        fsdp_scope_error(s, "linear", "x is %s but w is %s: the last dimensions differ", x_text,
                         w_text);
    else if (bias && (bias->ndim != 1 || bias->shape[0] != w->shape[0]))
        fsdp_scope_error(s, "linear", "w is %s but bias is %s, not [%lld]", w_text,
                         fsdp_shape_text(bias->ndim, bias->shape, b_text), (long long)w->shape[0]);
    return fsdp_scope_ok(s);
}

fsdp_tensor *fsdp_linear(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *w, fsdp_tensor *bias)
{
    static const char *const names[] = {"x", "w", "bias"};
    if (!fsdp_check_floats(s, "linear", (fsdp_tensor *const[]){x, w, bias}, names, bias ? 3 : 2) ||
        !check_shapes(s, x, w, bias))
        return NULL;
    linear_options o = {.rows = fsdp_leading_rows(x),
                        .in_features = w->shape[1],
                        .out_features = w->shape[0],
                        .dtype = x->dtype,
                        .x_ndim = x->ndim};
    memcpy(o.x_shape, x->shape, sizeof o.x_shape);
    int64_t shape[FSDP_MAX_DIMS];
    memcpy(shape, x->shape, sizeof shape);
    shape[x->ndim - 1] = o.out_features;
    fsdp_tensor *y = fsdp_new(s, x->dtype, x->ndim, shape);
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    if (k &&
        !fsdp_scope_check(s, k->gemm(fsdp_scope_context(s),
                                     &(fsdp_gemm_args){.m = o.rows,
                                                       .n = o.out_features,
                                                       .k = o.in_features,
                                                       .a = fsdp_tensor_ptr(x),
                                                       .lda = o.in_features,
                                                       .b = fsdp_tensor_ptr(w),
                                                       .ldb = o.in_features,
                                                       .trans_b = true,
                                                       .c = fsdp_tensor_ptr(y),
                                                       .ldc = o.out_features,
                                                       .bias = bias ? fsdp_tensor_ptr(bias) : NULL,
                                                       .ab_dtype = x->dtype,
                                                       .c_dtype = x->dtype})))
        return NULL;
    fsdp_record(s, &(fsdp_record_args){.op = &linear_op,
                                       .in = {x, w, bias},
                                       .n_in = 3,
                                       .saved = {fsdp_needs_grad(s, w) ? x : NULL,
                                                 fsdp_needs_grad(s, x) ? w : NULL},
                                       .n_saved = 2,
                                       .out = {y},
                                       .n_out = 1,
                                       .options = &o,
                                       .options_bytes = sizeof o});
    return y;
}
