/* Protection against overflow in float16, as in transformers' T5: if any element is infinite, all
 * elements are clamped to a finite bound.
 *
 * Backward must distinguish elements that were clamped from elements that were equal to the bound
 * before. The clamped values do not show the difference, so two bits are kept for each element. A
 * byte before these bits says whether any of the bits is set. */
#include "src/autograd/ops.h"

static void clamp_infinite_backward(fsdp_scope *s, const fsdp_node *n, fsdp_tensor *const *grad_out,
                                    fsdp_tensor **grad_in)
{
    fsdp_tensor *dx = fsdp_input_grad_in_place(s, n, 0, grad_out[0], grad_in);
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    if (k && dx)
        k->clamp_infinite_backward(fsdp_scope_context(s), fsdp_tensor_ptr(dx),
                                   fsdp_tensor_ptr(grad_out[0]), fsdp_tensor_ptr(n->saved[0]),
                                   fsdp_tensor_numel(dx));
}

static const fsdp_op clamp_infinite_op = {.name = "clamp_infinite",
                                          .backward = clamp_infinite_backward};

/* Return a tensor over x's memory if nothing else uses that memory, else a copy of x. */
static fsdp_tensor *own_copy(fsdp_scope *s, fsdp_tensor *x)
{
    if (fsdp_is_sole_user(x))
        return fsdp_tensor_alias(s, x);
    fsdp_tensor *out = fsdp_new(s, x->dtype, x->ndim, x->shape);
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    if (k)
        k->copy(fsdp_scope_context(s), fsdp_tensor_ptr(out), fsdp_tensor_ptr(x),
                (size_t)fsdp_tensor_numel(x) * fsdp_dtype_size(x->dtype));
    return out;
}

fsdp_tensor *fsdp_clamp_infinite_(fsdp_scope *s, fsdp_tensor *x)
{
    if (!fsdp_check_floats(s, clamp_infinite_op.name, &x, (const char *const[]){"x"}, 1))
        return NULL;
    if (x->dtype != FSDP_DTYPE_F16)
        return x;
    const int64_t n = fsdp_tensor_numel(x), bytes = 1 + (n + 3) / 4;
    fsdp_tensor *out = own_copy(s, x);
    fsdp_tensor *factors = fsdp_is_recorded(s, x) ? fsdp_new(s, FSDP_DTYPE_U8, 1, &bytes) : NULL;
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    if (k)
        k->clamp_infinite(fsdp_scope_context(s), fsdp_tensor_ptr(out),
                          factors ? fsdp_tensor_ptr(factors) : NULL, n);
    fsdp_record(s, &(fsdp_record_args){.op = &clamp_infinite_op,
                                       .in = {x},
                                       .n_in = 1,
                                       .saved = {factors},
                                       .n_saved = factors != NULL,
                                       .out = {out},
                                       .n_out = 1});
    fsdp_drop(s, factors);
    return out;
}
