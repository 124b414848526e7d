/* The operation linear computes y = x w^T + bias with w [N, D]. Its backward computes dx = dy w and
 * dw = dy^T x; dbias is the column sums of dy. The operation conv1d is the same, except that w is
 * stored as its transpose, [D, N]. Legend: T rows of x, D features in, N features out. */
#include "src/autograd/checkpoint.h"
#include "src/autograd/linear.h"

enum {
    IN_X,
    IN_W,
    IN_BIAS
};
enum {
    SAVED_X, /* set only if dw is needed; only parameters_backward() reads it */
    SAVED_W  /* set only if dx is needed */
};

static fsdp_linear_part all_of(const fsdp_linear_shape *o)
{
    return (fsdp_linear_part){0, o->in_features};
}

static void backward_w(fsdp_scope *s, const fsdp_node *n, const fsdp_tensor *dy,
                       fsdp_tensor **grad_in)
{
    const fsdp_linear_shape *o = (const fsdp_linear_shape *)n->options;
    fsdp_grad_destination dw = fsdp_linear_open_weight(s, n, IN_W, o, grad_in);
    fsdp_scope_count_product(s, o->out_features, o->in_features, o->rows);
    if (fsdp_scope_kernels(s) && dw.tensor)
        fsdp_linear_weight_gradient(s, o, all_of(o), fsdp_tensor_ptr(dy),
                                    fsdp_tensor_ptr(n->saved[SAVED_X]), dw);
}

static void parameters_backward(fsdp_scope *s, const fsdp_node *n, fsdp_tensor *const *grad_out,
                                fsdp_tensor **grad_in)
{
    if (fsdp_node_needs(n, IN_W))
        backward_w(s, n, grad_out[0], grad_in);
    if (fsdp_node_needs(n, IN_BIAS))
        fsdp_linear_bias_gradient(s, n, IN_BIAS, (const fsdp_linear_shape *)n->options, grad_out[0],
                                  grad_in);
}

static void linear_backward(fsdp_scope *s, const fsdp_node *n, fsdp_tensor *const *grad_out,
                            fsdp_tensor **grad_in)
{
    const fsdp_linear_shape *o = (const fsdp_linear_shape *)n->options;
    if (!fsdp_node_needs(n, IN_X) || !fsdp_check_inputs(s, n->op->name, &n->saved[SAVED_W], 1))
        return;
    grad_in[IN_X] = fsdp_new(s, o->dtype, o->x_ndim, o->x_shape);
    fsdp_scope_count_product(s, o->rows, o->in_features, o->out_features);
    if (fsdp_scope_kernels(s))
        fsdp_linear_input_gradient(s, o, all_of(o), fsdp_tensor_ptr(grad_out[0]), n->saved[SAVED_W],
                                   fsdp_tensor_ptr(grad_in[IN_X]));
}

/* The backward of these operations has two steps. backward_first computes dw, and then x is
 * released. backward computes dx, which has the same size as x, so dx can use the memory that x
 * had. */
#define LINEAR(its_name)                                                                           \
    {                                                                                              \
        .name = (its_name), .kind = FSDP_OP_MATMUL, .backward_first = parameters_backward,         \
        .backward = linear_backward                                                                \
    }
static const fsdp_op linear_op = LINEAR("linear");
static const fsdp_op conv1d_op = LINEAR("conv1d");

static fsdp_tensor *linear(fsdp_scope *s, const fsdp_op *op, fsdp_tensor *x, fsdp_tensor *w,
                           fsdp_tensor *bias, bool transposed)
{
    static const char *const names[] = {"x", "w", "bias"};
    fsdp_linear_shape o;
    if (!fsdp_check_floats(s, op->name, (fsdp_tensor *const[]){x, w, bias}, names, bias ? 3 : 2) ||
        !fsdp_linear_check(s, op->name, x, w, bias, transposed, &o))
        return NULL;
    fsdp_tensor *y = NULL;
    if (!fsdp_selective_reuse(s, op, &y, 1)) {
        y = fsdp_linear_result(s, &o);
        fsdp_scope_count_product(s, o.rows, o.out_features, o.in_features);
        if (fsdp_scope_kernels(s))
            fsdp_linear_product(s, &o, o.rows, fsdp_tensor_ptr(x), w, bias, fsdp_tensor_ptr(y));
        if (!fsdp_scope_ok(s))
            return NULL;
    }
    fsdp_selective_save(s, op, &y, 1);
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
