/* Conversion to another dtype, as by torch.Tensor.to(dtype). Backward converts the gradient back to
 * the dtype of the input. If the input is a leaf, backward does not convert the gradient, because
 * the target of a leaf accepts gradients of any dtype. */
#include "src/autograd/ops.h"

static void cast(const fsdp_kernels *k, fsdp_scope *s, const fsdp_tensor *to,
                 const fsdp_tensor *from)
{
    k->cast(fsdp_scope_context(s), fsdp_tensor_ptr(to), to->dtype, fsdp_tensor_ptr(from),
            from->dtype, fsdp_tensor_numel(from));
}

typedef struct cast_options {
    fsdp_dtype from;
} cast_options;

static void cast_backward(fsdp_scope *s, const fsdp_node *n, fsdp_tensor *const *grad_out,
                          fsdp_tensor **grad_in)
{
    const cast_options *o = (const cast_options *)n->options;
    fsdp_tensor *dy = grad_out[0];
    if (n->in[0].leaf) {
        grad_in[0] = dy;
        return;
    }
    grad_in[0] = fsdp_new(s, o->from, dy->ndim, dy->shape);
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    if (k)
        cast(k, s, grad_in[0], dy);
}

static const fsdp_op cast_op = {.name = "cast", .backward = cast_backward};

fsdp_tensor *fsdp_cast(fsdp_scope *s, fsdp_tensor *x, fsdp_dtype dtype)
{
    if (!fsdp_check_floats(s, cast_op.name, &x, (const char *const[]){"x"}, 1))
        return NULL;
    if (!fsdp_dtype_is_floating(dtype) || dtype == FSDP_DTYPE_F64) {
        fsdp_scope_error(s, cast_op.name, "to %s, not float32, bfloat16 or float16",
                         fsdp_dtype_name(dtype));
        return NULL;
    }
    if (x->dtype == dtype)
        return x;
    fsdp_tensor *out = fsdp_new(s, dtype, x->ndim, x->shape);
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    if (k)
        cast(k, s, out, x);
    fsdp_record(s, &(fsdp_record_args){.op = &cast_op,
                                       .in = {x},
                                       .n_in = 1,
                                       .out = {out},
                                       .n_out = 1,
                                       .options = &(cast_options){x->dtype},
                                       .options_bytes = sizeof(cast_options)});
    return out;
}

fsdp_tensor *fsdp_promote(fsdp_scope *s, fsdp_tensor *x, const fsdp_tensor *other)
{
    if (!x || !other || x->dtype == other->dtype || !fsdp_is_computed_in(x->dtype) ||
        !fsdp_is_computed_in(other->dtype))
        return x;
    return fsdp_cast(s, x, FSDP_DTYPE_F32);
}

void fsdp_drop_promoted(fsdp_scope *s, fsdp_tensor *promoted, const fsdp_tensor *x)
{
    if (promoted != x)
        fsdp_drop(s, promoted);
}
