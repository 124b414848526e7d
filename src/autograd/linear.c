/* See linear.h. */
#include "src/autograd/linear.h"

#include <string.h>

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

bool fsdp_linear_check(fsdp_scope *s, const char *op, const fsdp_tensor *x, const fsdp_tensor *w,
                       const fsdp_tensor *bias, bool transposed, fsdp_linear_shape *shape)
{
    if (!check_shapes(s, op, x, w, bias, transposed))
        return false;
    *shape = (fsdp_linear_shape){.rows = fsdp_leading_rows(x),
                                 .in_features = w->shape[!transposed],
                                 .out_features = w->shape[transposed],
                                 .dtype = x->dtype,
                                 .transposed = transposed,
                                 .x_ndim = x->ndim};
    memcpy(shape->x_shape, x->shape, sizeof shape->x_shape);
    return true;
}

fsdp_tensor *fsdp_linear_result(fsdp_scope *s, const fsdp_linear_shape *o)
{
    int64_t shape[FSDP_MAX_DIMS];
    memcpy(shape, o->x_shape, sizeof shape);
    shape[o->x_ndim - 1] = o->out_features;
    return fsdp_new(s, o->dtype, o->x_ndim, shape);
}

static void multiply(fsdp_scope *s, const fsdp_gemm_args *args)
{
    fsdp_scope_check(s, fsdp_scope_kernels(s)->gemm(fsdp_scope_context(s), args));
}

/* Return the number of columns of w as it is stored: D, or N for conv1d. */
static int64_t weight_columns(const fsdp_linear_shape *o)
{
    return o->transposed ? o->out_features : o->in_features;
}

/* Return the address of the first element of w that belongs to input feature `first`. `w` may also
 * be the gradient of w. */
static void *feature_at(const fsdp_linear_shape *o, const fsdp_tensor *w, int64_t first)
{
    const int64_t at = o->transposed ? first * o->out_features : first;
    return (char *)fsdp_tensor_ptr(w) + (size_t)at * fsdp_dtype_size(w->dtype);
}

void fsdp_linear_product(fsdp_scope *s, const fsdp_linear_shape *o, int64_t rows, const void *x,
                         const fsdp_tensor *w, const fsdp_tensor *bias, void *y)
{
    multiply(s, &(fsdp_gemm_args){.m = rows,
                                  .n = o->out_features,
                                  .k = o->in_features,
                                  .a = x,
                                  .lda = o->in_features,
                                  .b = fsdp_tensor_ptr(w),
                                  .ldb = weight_columns(o),
                                  .trans_b = !o->transposed,
                                  .c = y,
                                  .ldc = o->out_features,
                                  .bias = bias ? fsdp_tensor_ptr(bias) : NULL,
                                  .ab_dtype = o->dtype,
                                  .c_dtype = o->dtype});
}

void fsdp_linear_input_gradient(fsdp_scope *s, const fsdp_linear_shape *o, fsdp_linear_part part,
                                const void *dy, const fsdp_tensor *w, void *dx)
{
    multiply(s, &(fsdp_gemm_args){.m = o->rows,
                                  .n = part.features,
                                  .k = o->out_features,
                                  .a = dy,
                                  .lda = o->out_features,
                                  .b = feature_at(o, w, part.first),
                                  .ldb = weight_columns(o),
                                  .trans_b = o->transposed,
                                  .c = dx,
                                  .ldc = part.features,
                                  .ab_dtype = o->dtype,
                                  .c_dtype = o->dtype});
}

/* Compute dw = dy^T x or, for conv1d, dw = x^T dy. */
void fsdp_linear_weight_gradient(fsdp_scope *s, const fsdp_linear_shape *o, fsdp_linear_part part,
                                 const void *dy, const void *x, fsdp_grad_destination dw)
{
    const int64_t of_x = part.features, of_dy = o->out_features;
    multiply(s, &(fsdp_gemm_args){.m = o->transposed ? of_x : of_dy,
                                  .n = o->transposed ? of_dy : of_x,
                                  .k = o->rows,
                                  .a = o->transposed ? x : dy,
                                  .lda = o->transposed ? of_x : of_dy,
                                  .trans_a = true,
                                  .b = o->transposed ? dy : x,
                                  .ldb = o->transposed ? of_dy : of_x,
                                  .c = feature_at(o, dw.tensor, part.first),
                                  .ldc = weight_columns(o),
                                  .ab_dtype = o->dtype,
                                  .c_dtype = dw.tensor->dtype,
                                  .beta = dw.beta});
}

fsdp_grad_destination fsdp_linear_open_weight(fsdp_scope *s, const fsdp_node *n, int i,
                                              const fsdp_linear_shape *o, fsdp_tensor **grad_in)
{
    const int64_t lines = o->transposed ? o->in_features : o->out_features;
    return fsdp_input_grad_destination(s, n, i, o->dtype, 2,
                                       (const int64_t[]){lines, weight_columns(o)}, grad_in);
}

void fsdp_linear_bias_gradient(fsdp_scope *s, const fsdp_node *n, int i, const fsdp_linear_shape *o,
                               const fsdp_tensor *dy, fsdp_tensor **grad_in)
{
    fsdp_grad_destination db =
        fsdp_input_grad_destination(s, n, i, o->dtype, 1, &o->out_features, grad_in);
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    if (k && db.tensor)
        k->column_sum(fsdp_scope_context(s), fsdp_tensor_ptr(db.tensor), db.tensor->dtype, db.beta,
                      fsdp_tensor_ptr(dy), o->dtype, o->rows, o->out_features);
}
