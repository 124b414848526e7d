/* linear: y = x w^T + bias, w [N, D], and its backward: dx = dy w, dw = dy^T x, dbias = column sums
 * of dy. conv1d is the same with w [D, N], stored as linear's transposed.
 * Legend: T rows of x, D features in, N features out. */
#include <string.h>

#include "src/autograd/checkpoint.h"
#include "src/autograd/ops.h"

enum {
    IN_X,
    IN_W,
    IN_BIAS
};
enum {
    SAVED_X, /* NULL unless dw is wanted; only parameters_backward() reads it */
    SAVED_W  /* NULL unless dx is wanted */
};

typedef struct linear_options {
    int64_t rows, in_features, out_features;
    fsdp_dtype dtype;
    bool transposed; /* conv1d: w is [D, N] */
    int x_ndim;
    int64_t x_shape[FSDP_MAX_DIMS];
} linear_options;

/* Of w as stored. */
static int64_t weight_columns(const linear_options *o)
{
    return o->transposed ? o->out_features : o->in_features;
}

static void backward_x(fsdp_scope *s, const fsdp_node *n, const fsdp_tensor *dy,
                       fsdp_tensor **grad_in)
{
    const linear_options *o = (const linear_options *)n->options;
    if (!fsdp_check_inputs(s, n->op->name, &n->saved[SAVED_W], 1))
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
                                                            .ldb = weight_columns(o),
                                                            .trans_b = o->transposed,
                                                            .c = fsdp_tensor_ptr(grad_in[IN_X]),
                                                            .ldc = o->in_features,
                                                            .ab_dtype = o->dtype,
                                                            .c_dtype = o->dtype}));
}

/* dy^T x, or x^T dy for conv1d. */
static void backward_w(fsdp_scope *s, const fsdp_node *n, const fsdp_tensor *dy,
                       fsdp_tensor **grad_in)
{
    const linear_options *o = (const linear_options *)n->options;
    const fsdp_tensor *x = n->saved[SAVED_X];
    const int64_t columns = weight_columns(o),
                  lines = o->transposed ? o->in_features : o->out_features;
    fsdp_grad_slot dw =
        fsdp_grad_open(s, n, IN_W, o->dtype, 2, (const int64_t[]){lines, columns}, grad_in);
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    if (!k || !dw.tensor)
        return;
    fsdp_scope_check(s, k->gemm(fsdp_scope_context(s),
                                &(fsdp_gemm_args){.m = lines,
                                                  .n = columns,
                                                  .k = o->rows,
                                                  .a = fsdp_tensor_ptr(o->transposed ? x : dy),
                                                  .lda = lines,
                                                  .trans_a = true,
                                                  .b = fsdp_tensor_ptr(o->transposed ? dy : x),
                                                  .ldb = columns,
                                                  .c = fsdp_tensor_ptr(dw.tensor),
                                                  .ldc = columns,
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

static void parameters_backward(fsdp_scope *s, const fsdp_node *n, fsdp_tensor *const *grad_out,
                                fsdp_tensor **grad_in)
{
    if (fsdp_node_needs(n, IN_W))
        backward_w(s, n, grad_out[0], grad_in);
    if (fsdp_node_needs(n, IN_BIAS))
        backward_bias(s, n, grad_out[0], grad_in);
}

static void linear_backward(fsdp_scope *s, const fsdp_node *n, fsdp_tensor *const *grad_out,
                            fsdp_tensor **grad_in)
{
    if (fsdp_node_needs(n, IN_X))
        backward_x(s, n, grad_out[0], grad_in);
}

/* x goes when dw is there, and dx, which is as large, takes its memory. */
#define LINEAR(its_name)                                                                           \
    {                                                                                              \
        .name = (its_name), .kind = FSDP_OP_MATMUL, .backward_first = parameters_backward,         \
        .backward = linear_backward                                                                \
    }
static const fsdp_op linear_op = LINEAR("linear");
static const fsdp_op conv1d_op = LINEAR("conv1d");

static bool check_shapes(fsdp_scope *s, const char *op, const fsdp_tensor *x, const fsdp_tensor *w,
                         const fsdp_tensor *bias, bool transposed)
{
    char x_text[FSDP_SHAPE_TEXT], w_text[FSDP_SHAPE_TEXT], b_text[FSDP_SHAPE_TEXT];
    fsdp_shape_text(x->ndim, x->shape, x_text);
    fsdp_shape_text(w->ndim, w->shape, w_text);
    if (x->ndim < 1 || w->ndim != 2)
        fsdp_scope_error(s, op, "x is %s and w is %s, not [T, D] and %s", x_text, w_text,
                         transposed ? "[D, N]" : "[N, D]");
    else if (!transposed && fsdp_last_dim(x) != w->shape[1])
        fsdp_scope_error(s, op, "x is %s but w is %s: the last dimensions differ", x_text, w_text);
    else if (transposed && fsdp_last_dim(x) != w->shape[0])
        fsdp_scope_error(s, op, "x is %s but w is %s: the last dimension of x is not w's first",
                         x_text, w_text);
    else if (bias && (bias->ndim != 1 || bias->shape[0] != w->shape[transposed]))
        fsdp_scope_error(s, op, "w is %s but bias is %s, not [%lld]", w_text,
                         fsdp_shape_text(bias->ndim, bias->shape, b_text),
                         (long long)w->shape[transposed]);
    return fsdp_scope_ok(s);
}

static bool compute(fsdp_scope *s, const linear_options *o, const fsdp_tensor *x,
                    const fsdp_tensor *w, const fsdp_tensor *bias, const fsdp_tensor *y)
{
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    if (!k)
        return fsdp_scope_ok(s);
    return fsdp_scope_check(s,
                            k->gemm(fsdp_scope_context(s),
                                    &(fsdp_gemm_args){.m = o->rows,
                                                      .n = o->out_features,
                                                      .k = o->in_features,
                                                      .a = fsdp_tensor_ptr(x),
                                                      .lda = o->in_features,
                                                      .b = fsdp_tensor_ptr(w),
                                                      .ldb = weight_columns(o),
                                                      .trans_b = !o->transposed,
                                                      .c = fsdp_tensor_ptr(y),
                                                      .ldc = o->out_features,
                                                      .bias = bias ? fsdp_tensor_ptr(bias) : NULL,
                                                      .ab_dtype = o->dtype,
                                                      .c_dtype = o->dtype}));
}

static fsdp_tensor *linear(fsdp_scope *s, const fsdp_op *op, fsdp_tensor *x, fsdp_tensor *w,
                           fsdp_tensor *bias, bool transposed)
{
    static const char *const names[] = {"x", "w", "bias"};
    if (!fsdp_check_floats(s, op->name, (fsdp_tensor *const[]){x, w, bias}, names, bias ? 3 : 2) ||
        !check_shapes(s, op->name, x, w, bias, transposed))
        return NULL;
    linear_options o = {.rows = fsdp_leading_rows(x),
                        .in_features = w->shape[!transposed],
                        .out_features = w->shape[transposed],
                        .dtype = x->dtype,
                        .transposed = transposed,
                        .x_ndim = x->ndim};
    memcpy(o.x_shape, x->shape, sizeof o.x_shape);
    int64_t shape[FSDP_MAX_DIMS];
    memcpy(shape, x->shape, sizeof shape);
    shape[x->ndim - 1] = o.out_features;
    fsdp_tensor *y = NULL;
    if (!fsdp_recall(s, op, &y, 1)) {
        y = fsdp_new(s, x->dtype, x->ndim, shape);
        if (!compute(s, &o, x, w, bias, y))
            return NULL;
    }
    fsdp_remember(s, op, &y, 1);
    fsdp_record(s, &(fsdp_record_args){.op = op,
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

fsdp_tensor *fsdp_linear(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *w, fsdp_tensor *bias)
{
    return linear(s, &linear_op, x, w, bias, false);
}

fsdp_tensor *fsdp_conv1d(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *w, fsdp_tensor *bias)
{
    return linear(s, &conv1d_op, x, w, bias, true);
}
