/* Computes the sum of all elements: first the sum of each column, then the sum of these column
 * sums. */
#include <string.h>

#include "src/autograd/ops.h"

typedef struct sum_options {
    fsdp_dtype dtype;
    int x_ndim;
    int64_t x_shape[FSDP_MAX_DIMS];
} sum_options;

static void sum_backward(fsdp_scope *s, const fsdp_node *n, fsdp_tensor *const *grad_out,
                         fsdp_tensor **grad_in)
{
    const sum_options *o = (const sum_options *)n->options;
    double value;
    fsdp_tensor *dx = grad_in[0] = fsdp_new(s, o->dtype, o->x_ndim, o->x_shape);
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    if (k && fsdp_grad_scalar(s, grad_out[0], &value))
        k->fill(fsdp_scope_context(s), fsdp_tensor_ptr(dx), o->dtype, value, fsdp_tensor_numel(dx));
}

static const fsdp_op sum_op = {.name = "sum", .backward = sum_backward};

fsdp_tensor *fsdp_sum(fsdp_scope *s, fsdp_tensor *x)
{
    if (!fsdp_check_floats(s, sum_op.name, &x, (const char *const[]){"x"}, 1))
        return NULL;
    sum_options o = {.dtype = x->dtype, .x_ndim = x->ndim};
    memcpy(o.x_shape, x->shape, sizeof o.x_shape);
    int64_t width = fsdp_last_dim(x);
    fsdp_tensor *columns = fsdp_new(s, FSDP_DTYPE_F32, 1, &width);
    fsdp_tensor *out = fsdp_new(s, FSDP_DTYPE_F32, 0, NULL);
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    if (k) {
        k->column_sum(fsdp_scope_context(s), fsdp_tensor_ptr(columns), FSDP_DTYPE_F32, 0.0f,
                      fsdp_tensor_ptr(x), x->dtype, fsdp_leading_rows(x), width);
        k->column_sum(fsdp_scope_context(s), fsdp_tensor_ptr(out), FSDP_DTYPE_F32, 0.0f,
                      fsdp_tensor_ptr(columns), FSDP_DTYPE_F32, width, 1);
    }
    fsdp_drop(s, columns);
    fsdp_record(s, &(fsdp_record_args){.op = &sum_op,
                                       .in = {x},
                                       .n_in = 1,
                                       .out = {out},
                                       .n_out = 1,
                                       .options = &o,
                                       .options_bytes = sizeof o});
    return out;
}
