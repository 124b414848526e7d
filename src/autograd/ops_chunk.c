/* Splits a tensor into equal parts along its last dimension. GPT-2 needs this operation, because it
 * computes query, key and value in one product. */
#include <string.h>

#include "src/autograd/ops.h"

typedef struct chunk_options {
    fsdp_dtype dtype;
    int x_ndim;
    int64_t x_shape[FSDP_MAX_DIMS];
} chunk_options;

static size_t part_bytes(const fsdp_tensor *x, int n)
{
    return (size_t)(fsdp_last_dim(x) / n) * fsdp_dtype_size(x->dtype);
}

static void chunk_backward(fsdp_scope *s, const fsdp_node *n, fsdp_tensor *const *grad_out,
                           fsdp_tensor **grad_in)
{
    const chunk_options *o = (const chunk_options *)n->options;
    const void *parts[FSDP_MAX_CHUNKS];
    fsdp_tensor *dx = grad_in[0] = fsdp_new(s, o->dtype, o->x_ndim, o->x_shape);
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    if (!k)
        return;
    for (int i = 0; i < n->n_out; i++)
        parts[i] = grad_out[i] ? fsdp_tensor_ptr(grad_out[i]) : NULL;
    k->join_columns(fsdp_scope_context(s), fsdp_tensor_ptr(dx), parts, n->n_out,
                    fsdp_leading_rows(dx), part_bytes(dx, n->n_out));
}

static const fsdp_op chunk_op = {.name = "chunk", .backward = chunk_backward};

static bool check_shape(fsdp_scope *s, const fsdp_tensor *x, int n)
{
    char text[FSDP_SHAPE_TEXT];
    if (n < 1 || n > FSDP_MAX_CHUNKS)
        fsdp_scope_error(s, chunk_op.name, "%d parts, not in [1, %d]", n, FSDP_MAX_CHUNKS);
    else if (x->ndim < 1 || fsdp_last_dim(x) % n)
        fsdp_scope_error(s, chunk_op.name,
                         "x is %s: its last dimension cannot be split into %d equal parts",
                         fsdp_shape_text(x->ndim, x->shape, text), n);
    return fsdp_scope_ok(s);
}

static void split(fsdp_scope *s, const fsdp_tensor *x, int n, fsdp_tensor *const *out)
{
    void *parts[FSDP_MAX_CHUNKS];
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    if (!k)
        return;
    for (int i = 0; i < n; i++)
        parts[i] = fsdp_tensor_ptr(out[i]);
    k->split_columns(fsdp_scope_context(s), parts, fsdp_tensor_ptr(x), n, fsdp_leading_rows(x),
                     part_bytes(x, n));
}

void fsdp_chunk(fsdp_scope *s, fsdp_tensor *x, int n, fsdp_tensor **out)
{
    for (int i = 0; i < n && i < FSDP_MAX_CHUNKS; i++)
        out[i] = NULL;
    if (!fsdp_check_floats(s, chunk_op.name, &x, (const char *const[]){"x"}, 1) ||
        !check_shape(s, x, n))
        return;
    chunk_options o = {.dtype = x->dtype, .x_ndim = x->ndim};
    memcpy(o.x_shape, x->shape, sizeof o.x_shape);
    fsdp_record_args args = {.op = &chunk_op,
                             .in = {x},
                             .n_in = 1,
                             .n_out = n,
                             .options = &o,
                             .options_bytes = sizeof o};
    int64_t shape[FSDP_MAX_DIMS];
    memcpy(shape, x->shape, sizeof shape);
    shape[x->ndim - 1] /= n;
    for (int i = 0; i < n; i++)
        args.out[i] = fsdp_new(s, x->dtype, x->ndim, shape);
    split(s, x, n, args.out);
    fsdp_record(s, &args);
    for (int i = 0; i < n && fsdp_scope_ok(s); i++)
        out[i] = args.out[i];
}
