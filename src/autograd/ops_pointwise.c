/* Element-wise operations: add, mul, scale, activations, gated activations, dropout. */
#include <math.h>

#include "src/autograd/activation.h"
#include "src/autograd/ops.h"
#include "src/base/philox.h"

/* --- add, mul, scale --- */

/* Return grad_out as the gradient of both inputs, without a copy. This is safe, because operations
 * overwrite a gradient only if nothing else refers to it. */
static void add_backward(fsdp_scope *s, const fsdp_node *n, fsdp_tensor *const *grad_out,
                         fsdp_tensor **grad_in)
{
    (void)s;
    for (int i = 0; i < n->n_in; i++)
        grad_in[i] = fsdp_node_needs(n, i) ? grad_out[0] : NULL;
}

static void mul_backward(fsdp_scope *s, const fsdp_node *n, fsdp_tensor *const *grad_out,
                         fsdp_tensor **grad_in)
{
    const bool both = fsdp_node_needs(n, 0) && fsdp_node_needs(n, 1);
    for (int i = 0; i < 2; i++) {
        const fsdp_tensor *other = n->saved[1 - i];
        fsdp_tensor *dx = both && i == 0 ? fsdp_input_grad_like(s, n, i, grad_out[0], grad_in)
                                         : fsdp_input_grad_in_place(s, n, i, grad_out[0], grad_in);
        if (dx && !fsdp_check_inputs(s, "mul", &n->saved[1 - i], 1))
            return;
        const fsdp_kernels *k = fsdp_scope_kernels(s);
        if (k && dx)
            k->mul(fsdp_scope_context(s), fsdp_tensor_ptr(dx), fsdp_tensor_ptr(grad_out[0]),
                   fsdp_tensor_ptr(other), dx->dtype, fsdp_tensor_numel(dx));
    }
}

static void scale_backward(fsdp_scope *s, const fsdp_node *n, fsdp_tensor *const *grad_out,
                           fsdp_tensor **grad_in)
{
    const float *factor = (const float *)n->options;
    fsdp_tensor *dx = fsdp_input_grad_in_place(s, n, 0, grad_out[0], grad_in);
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    if (k)
        k->scale(fsdp_scope_context(s), fsdp_tensor_ptr(dx), fsdp_tensor_ptr(grad_out[0]), *factor,
                 dx->dtype, fsdp_tensor_numel(dx));
}

static const fsdp_op add_op = {.name = "add", .backward = add_backward};
static const fsdp_op mul_op = {.name = "mul", .backward = mul_backward};
static const fsdp_op scale_op = {.name = "scale", .backward = scale_backward};

static bool check_pair(fsdp_scope *s, const char *op, fsdp_tensor *x, const char *x_name,
                       fsdp_tensor *y, const char *y_name)
{
    return fsdp_check_floats(s, op, (fsdp_tensor *const[]){x, y},
                             (const char *const[]){x_name, y_name}, 2) &&
           fsdp_check_same_shape(s, op, x, x_name, y, y_name);
}

/* Return a tensor for x + y. The result uses x's memory only if in_place is true and the second run
 * of a checkpointed part is in progress. In other runs, using x's memory would not lower the peak
 * of memory. In one measurement, it even raised the peak by 39 MiB (bert-base, bf16). The reason is
 * that a sum is kept until backward. If the sum has memory of its own, x's memory can be used again
 * for the results of matrix products. */
static fsdp_tensor *sum_result(fsdp_scope *s, fsdp_tensor *x, const fsdp_tensor *y, bool in_place)
{
    return in_place && s->run->recomputing && x != y && fsdp_is_sole_user(x)
               ? fsdp_tensor_alias(s, x)
               : fsdp_new(s, x->dtype, x->ndim, x->shape);
}

static fsdp_tensor *add_into(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *y, bool in_place)
{
    if (!check_pair(s, "add", x, "x", y, "y"))
        return NULL;
    fsdp_tensor *out = sum_result(s, x, y, in_place);
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    if (k)
        k->add(fsdp_scope_context(s), fsdp_tensor_ptr(out), fsdp_tensor_ptr(x), fsdp_tensor_ptr(y),
               x->dtype, fsdp_tensor_numel(x));
    fsdp_record(
        s, &(fsdp_record_args){.op = &add_op, .in = {x, y}, .n_in = 2, .out = {out}, .n_out = 1});
    return out;
}

static fsdp_tensor *add(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *y)
{
    return add_into(s, x, y, false);
}

static fsdp_tensor *add_in_place(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *y)
{
    return add_into(s, x, y, true);
}

static fsdp_tensor *mul(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *y)
{
    if (!check_pair(s, "mul", x, "x", y, "y"))
        return NULL;
    fsdp_tensor *out = fsdp_new(s, x->dtype, x->ndim, x->shape);
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    if (k)
        k->mul(fsdp_scope_context(s), fsdp_tensor_ptr(out), fsdp_tensor_ptr(x), fsdp_tensor_ptr(y),
               x->dtype, fsdp_tensor_numel(x));
    fsdp_record(s, &(fsdp_record_args){.op = &mul_op,
                                       .in = {x, y},
                                       .n_in = 2,
                                       .saved = {fsdp_needs_grad(s, y) ? x : NULL,
                                                 fsdp_needs_grad(s, x) ? y : NULL},
                                       .n_saved = 2,
                                       .out = {out},
                                       .n_out = 1});
    return out;
}

/* Convert x and y to a common dtype, call the function `of` with the converted tensors, and return
 * the result of this call. */
static fsdp_tensor *apply_promoted(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *y,
                                   fsdp_tensor *(*of)(fsdp_scope *s, fsdp_tensor *x,
                                                      fsdp_tensor *y))
{
    fsdp_tensor *wide_x = fsdp_promote(s, x, y), *wide_y = fsdp_promote(s, y, x);
    fsdp_tensor *out = fsdp_scope_ok(s) ? of(s, wide_x, wide_y) : NULL;
    fsdp_drop_promoted(s, wide_x, x);
    fsdp_drop_promoted(s, wide_y, y);
    return out;
}

fsdp_tensor *fsdp_add(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *y)
{
    return apply_promoted(s, x, y, add);
}

fsdp_tensor *fsdp_add_(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *y)
{
    return apply_promoted(s, x, y, add_in_place);
}

fsdp_tensor *fsdp_mul(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *y)
{
    return apply_promoted(s, x, y, mul);
}

fsdp_tensor *fsdp_scale(fsdp_scope *s, fsdp_tensor *x, float factor)
{
    if (!fsdp_check_floats(s, "scale", &x, (const char *const[]){"x"}, 1))
        return NULL;
    fsdp_tensor *out = fsdp_new(s, x->dtype, x->ndim, x->shape);
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    if (k)
        k->scale(fsdp_scope_context(s), fsdp_tensor_ptr(out), fsdp_tensor_ptr(x), factor, x->dtype,
                 fsdp_tensor_numel(x));
    fsdp_record(s, &(fsdp_record_args){.op = &scale_op,
                                       .in = {x},
                                       .n_in = 1,
                                       .out = {out},
                                       .n_out = 1,
                                       .options = &factor,
                                       .options_bytes = sizeof factor});
    return out;
}

/* --- activations --- */

static void activation_backward(fsdp_scope *s, const fsdp_node *n, fsdp_tensor *const *grad_out,
                                fsdp_tensor **grad_in)
{
    const fsdp_activation *a = (const fsdp_activation *)n->options;
    const fsdp_tensor *x = n->saved[0];
    fsdp_tensor *dx = fsdp_input_grad_in_place(s, n, 0, grad_out[0], grad_in);
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    if (k)
        k->activation_backward(fsdp_scope_context(s), *a, fsdp_tensor_ptr(dx),
                               fsdp_tensor_ptr(grad_out[0]), fsdp_tensor_ptr(x), x->dtype,
                               fsdp_tensor_numel(x));
}

static void activation_derive(fsdp_scope *s, const fsdp_node *n, const fsdp_tensor *result)
{
    const fsdp_activation *a = (const fsdp_activation *)n->options;
    fsdp_scope_kernels(s)->activation(fsdp_scope_context(s), *a, fsdp_tensor_ptr(result),
                                      fsdp_tensor_ptr(n->saved[0]), result->dtype,
                                      fsdp_tensor_numel(result));
}

#define DERIVED_ACTIVATION(its_name)                                                               \
    {                                                                                              \
        .name = (its_name), .backward = activation_backward, .derive = activation_derive           \
    }
static const fsdp_op relu_op = {.name = "relu", .backward = activation_backward};
static const fsdp_op gelu_new_op = DERIVED_ACTIVATION("gelu_new");
static const fsdp_op gelu_op = DERIVED_ACTIVATION("gelu");
static const fsdp_op silu_op = DERIVED_ACTIVATION("silu");
static const fsdp_op tanh_op = DERIVED_ACTIVATION("tanh");

/* Compute out = a(x) and record a node for it. `saved` is the tensor that backward reads: either x
 * or `out`. If `saved` is `out`, `out` may use x's memory. */
static fsdp_tensor *activate(fsdp_scope *s, const fsdp_op *op, fsdp_activation a, fsdp_tensor *x,
                             fsdp_tensor *out, fsdp_tensor *saved)
{
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    if (k)
        k->activation(fsdp_scope_context(s), a, fsdp_tensor_ptr(out), fsdp_tensor_ptr(x), x->dtype,
                      fsdp_tensor_numel(x));
    fsdp_record(s, &(fsdp_record_args){.op = op,
                                       .in = {x},
                                       .n_in = 1,
                                       .saved = {saved},
                                       .n_saved = 1,
                                       .out = {out},
                                       .n_out = 1,
                                       .options = &a,
                                       .options_bytes = sizeof a});
    return out;
}

static bool check_input(fsdp_scope *s, const fsdp_op *op, fsdp_tensor *x)
{
    return fsdp_check_floats(s, op->name, &x, (const char *const[]){"x"}, 1);
}

static fsdp_tensor *activation(fsdp_scope *s, const fsdp_op *op, fsdp_activation a, fsdp_tensor *x)
{
    if (!check_input(s, op, x))
        return NULL;
    return activate(s, op, a, x, fsdp_new(s, x->dtype, x->ndim, x->shape), x);
}

/* Compute relu. The node saves the result relu(x) instead of x. Backward can use relu(x) as well as
 * x, because the derivative of relu has the same value at both. Saving relu(x) costs no memory,
 * because the linear operation that follows keeps relu(x) anyway. */
static fsdp_tensor *relu(fsdp_scope *s, fsdp_tensor *x, bool in_place)
{
    if (!check_input(s, &relu_op, x))
        return NULL;
    fsdp_tensor *out = in_place && fsdp_is_sole_user(x) ? fsdp_tensor_alias(s, x)
                                                        : fsdp_new(s, x->dtype, x->ndim, x->shape);
    return activate(s, &relu_op, FSDP_ACTIVATION_RELU, x, out, out);
}

fsdp_tensor *fsdp_relu(fsdp_scope *s, fsdp_tensor *x)
{
    return relu(s, x, false);
}

fsdp_tensor *fsdp_relu_(fsdp_scope *s, fsdp_tensor *x)
{
    return relu(s, x, true);
}

fsdp_tensor *fsdp_gelu_new(fsdp_scope *s, fsdp_tensor *x)
{
    return activation(s, &gelu_new_op, FSDP_ACTIVATION_GELU_TANH, x);
}

fsdp_tensor *fsdp_gelu(fsdp_scope *s, fsdp_tensor *x)
{
    return activation(s, &gelu_op, FSDP_ACTIVATION_GELU_ERF, x);
}

fsdp_tensor *fsdp_silu(fsdp_scope *s, fsdp_tensor *x)
{
    return activation(s, &silu_op, FSDP_ACTIVATION_SILU, x);
}

fsdp_tensor *fsdp_tanh(fsdp_scope *s, fsdp_tensor *x)
{
    return activation(s, &tanh_op, FSDP_ACTIVATION_TANH, x);
}

fsdp_tensor *fsdp_activate(fsdp_scope *s, fsdp_activation a, fsdp_tensor *x)
{
    switch (a) {
    case FSDP_ACTIVATION_RELU:
        return fsdp_relu(s, x);
    case FSDP_ACTIVATION_GELU_TANH:
        return fsdp_gelu_new(s, x);
    case FSDP_ACTIVATION_GELU_ERF:
        return fsdp_gelu(s, x);
    case FSDP_ACTIVATION_SILU:
        return fsdp_silu(s, x);
    case FSDP_ACTIVATION_TANH:
        return fsdp_tanh(s, x);
    case FSDP_ACTIVATION_NONE:
        break;
    }
    return x;
}

/* --- dropout --- */

typedef struct dropout_options {
    uint64_t key;
    float p;
} dropout_options;

static void drop_elements(const fsdp_scope *s, const fsdp_kernels *k, const dropout_options *o,
                          const fsdp_tensor *x, const fsdp_tensor *out)
{
    k->dropout(fsdp_scope_context(s), &(fsdp_dropout_args){.dtype = x->dtype,
                                                           .n = fsdp_tensor_numel(x),
                                                           .x = fsdp_tensor_ptr(x),
                                                           .out = fsdp_tensor_ptr(out),
                                                           .p = o->p,
                                                           .key = o->key});
}

static void dropout_backward(fsdp_scope *s, const fsdp_node *n, fsdp_tensor *const *grad_out,
                             fsdp_tensor **grad_in)
{
    const dropout_options *o = (const dropout_options *)n->options;
    fsdp_tensor *dx = fsdp_input_grad_in_place(s, n, 0, grad_out[0], grad_in);
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    if (k)
        drop_elements(s, k, o, grad_out[0], dx);
}

static const fsdp_op dropout_op = {.name = "dropout", .backward = dropout_backward};

/* Compute out = dropout(from), and record a node of `op` with input x and result `out`. `from` is x
 * itself or a tensor that was computed from x. `out` may use the memory of `from`. */
static fsdp_tensor *apply_dropout(fsdp_scope *s, const fsdp_op *op, float p, fsdp_tensor *x,
                                  const fsdp_tensor *from, fsdp_tensor *out, fsdp_tensor *saved)
{
    const dropout_options o = {.key = fsdp_scope_next_key(s), .p = p};
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    if (k)
        drop_elements(s, k, &o, from, out);
    fsdp_record(s, &(fsdp_record_args){.op = op,
                                       .in = {x},
                                       .n_in = 1,
                                       .saved = {saved},
                                       .n_saved = saved != NULL,
                                       .out = {out},
                                       .n_out = 1,
                                       .options = &o,
                                       .options_bytes = sizeof o});
    return out;
}

fsdp_tensor *fsdp_dropout(fsdp_scope *s, fsdp_tensor *x, float p)
{
    if (!check_input(s, &dropout_op, x) || !fsdp_check_probability(s, dropout_op.name, p))
        return NULL;
    if (!fsdp_dropout_is_active(s, p))
        return x;
    return apply_dropout(s, &dropout_op, p, x, x, fsdp_new(s, x->dtype, x->ndim, x->shape), NULL);
}

static void add_dropout_backward(fsdp_scope *s, const fsdp_node *n, fsdp_tensor *const *grad_out,
                                 fsdp_tensor **grad_in)
{
    const dropout_options *o = (const dropout_options *)n->options;
    grad_in[0] = grad_out[0];
    fsdp_tensor *dy = fsdp_input_grad_like(s, n, 1, grad_out[0], grad_in);
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    if (k && dy)
        drop_elements(s, k, o, grad_out[0], dy);
}

static const fsdp_op add_dropout_op = {.name = "add_dropout", .backward = add_dropout_backward};

/* Like fsdp_add_dropout_(), but for x and y of different dtypes. The dropout and the addition are
 * two operations. */
static fsdp_tensor *add_promoted_dropout(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *y, float p)
{
    fsdp_tensor *dropped = fsdp_dropout(s, y, p);
    fsdp_tensor *out = fsdp_add_(s, dropped, x);
    if (dropped != y)
        fsdp_drop(s, dropped);
    return out;
}

fsdp_tensor *fsdp_add_dropout_(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *y, float p)
{
    if (x && y && x->dtype != y->dtype)
        return add_promoted_dropout(s, x, y, p);
    if (!check_pair(s, add_dropout_op.name, x, "x", y, "y") ||
        !fsdp_check_probability(s, add_dropout_op.name, p))
        return NULL;
    if (!fsdp_dropout_is_active(s, p))
        return fsdp_add_(s, y, x);
    const dropout_options o = {.key = fsdp_scope_next_key(s), .p = p};
    fsdp_tensor *out = sum_result(s, y, x, true);
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    if (k)
        k->dropout(fsdp_scope_context(s), &(fsdp_dropout_args){.dtype = x->dtype,
                                                               .n = fsdp_tensor_numel(x),
                                                               .x = fsdp_tensor_ptr(y),
                                                               .out = fsdp_tensor_ptr(out),
                                                               .p = o.p,
                                                               .key = o.key,
                                                               .addend = fsdp_tensor_ptr(x)});
    fsdp_record(s, &(fsdp_record_args){.op = &add_dropout_op,
                                       .in = {x, y},
                                       .n_in = 2,
                                       .out = {out},
                                       .n_out = 1,
                                       .options = &o,
                                       .options_bytes = sizeof o});
    return out;
}

/* Compute the gradient from the result y. Where y is 0, relu or dropout (or both) has set it to 0,
 * so the gradient of x is 0. Where y is not 0, the gradient passes through relu unchanged, and
 * dropout multiplies the gradient by a factor. */
static void relu_dropout_backward(fsdp_scope *s, const fsdp_node *n, fsdp_tensor *const *grad_out,
                                  fsdp_tensor **grad_in)
{
    const dropout_options *o = (const dropout_options *)n->options;
    const fsdp_tensor *y = n->saved[0];
    fsdp_tensor *dx = fsdp_input_grad_in_place(s, n, 0, grad_out[0], grad_in);
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    if (!k)
        return;
    k->activation_backward(fsdp_scope_context(s), FSDP_ACTIVATION_RELU, fsdp_tensor_ptr(dx),
                           fsdp_tensor_ptr(grad_out[0]), fsdp_tensor_ptr(y), y->dtype,
                           fsdp_tensor_numel(y));
    k->scale(fsdp_scope_context(s), fsdp_tensor_ptr(dx), fsdp_tensor_ptr(dx),
             fsdp_keep_factor(o->p), dx->dtype, fsdp_tensor_numel(dx));
}

static const fsdp_op relu_dropout_op = {.name = "relu_dropout", .backward = relu_dropout_backward};

fsdp_tensor *fsdp_relu_dropout_(fsdp_scope *s, fsdp_tensor *x, float p)
{
    if (!check_input(s, &relu_dropout_op, x) || !fsdp_check_probability(s, relu_dropout_op.name, p))
        return NULL;
    if (!fsdp_dropout_is_active(s, p))
        return fsdp_relu_(s, x);
    fsdp_tensor *out =
        fsdp_is_sole_user(x) ? fsdp_tensor_alias(s, x) : fsdp_new(s, x->dtype, x->ndim, x->shape);
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    if (k)
        k->activation(fsdp_scope_context(s), FSDP_ACTIVATION_RELU, fsdp_tensor_ptr(out),
                      fsdp_tensor_ptr(x), x->dtype, fsdp_tensor_numel(x));
    return apply_dropout(s, &relu_dropout_op, p, x, out, out, out);
}

/* --- gated activations --- */

typedef struct gated_options {
    fsdp_activation activation;
    dropout_options dropout; /* dropout of the result; p is 0 if there is none */
} gated_options;

static void gated_backward(fsdp_scope *s, const fsdp_node *n, fsdp_tensor *const *grad_out,
                           fsdp_tensor **grad_in)
{
    const gated_options *o = (const gated_options *)n->options;
    const fsdp_tensor *gate = n->saved[0], *up = n->saved[1], *dy = grad_out[0];
    /* The kernel always writes the gradients of gate and up. If one of these gradients is not
     * needed, the scope releases it. */
    fsdp_tensor *d_gate = fsdp_input_grad_in_place(s, n, 0, grad_out[0], grad_in);
    fsdp_tensor *d_up = fsdp_input_grad_in_place(s, n, 1, n->saved[1], grad_in);
    if (!d_gate || !d_up) {
        fsdp_tensor *unwanted = fsdp_new(s, gate->dtype, gate->ndim, gate->shape);
        d_gate = d_gate ? d_gate : unwanted;
        d_up = d_up ? d_up : unwanted;
    }
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    if (!k)
        return;
    if (o->dropout.p > 0.0f) {
        drop_elements(s, k, &o->dropout, dy, d_gate);
        dy = d_gate;
    }
    k->gated_backward(fsdp_scope_context(s), o->activation, fsdp_tensor_ptr(d_gate),
                      fsdp_tensor_ptr(d_up), fsdp_tensor_ptr(dy), fsdp_tensor_ptr(gate),
                      fsdp_tensor_ptr(up), gate->dtype, fsdp_tensor_numel(gate));
}

static void compute_gated(fsdp_scope *s, const gated_options *o, const fsdp_tensor *gate,
                          const fsdp_tensor *up, const fsdp_tensor *out)
{
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    const int64_t n = k ? fsdp_tensor_numel(gate) : 0;
    if (!k)
        return;
    k->gated(fsdp_scope_context(s), o->activation, fsdp_tensor_ptr(out), fsdp_tensor_ptr(gate),
             fsdp_tensor_ptr(up), gate->dtype, n);
    if (o->dropout.p > 0.0f)
        drop_elements(s, k, &o->dropout, out, out);
}

static void gated_derive(fsdp_scope *s, const fsdp_node *n, const fsdp_tensor *result)
{
    compute_gated(s, (const gated_options *)n->options, n->saved[0], n->saved[1], result);
}

static const fsdp_op geglu_op = {
    .name = "geglu", .backward = gated_backward, .derive = gated_derive};
static const fsdp_op swiglu_op = {
    .name = "swiglu", .backward = gated_backward, .derive = gated_derive};
static const fsdp_op gated_op = {
    .name = "gated", .backward = gated_backward, .derive = gated_derive};
static const fsdp_op geglu_dropout_op = {
    .name = "geglu_dropout", .backward = gated_backward, .derive = gated_derive};
static const fsdp_op gated_dropout_op = {
    .name = "gated_dropout", .backward = gated_backward, .derive = gated_derive};

static fsdp_tensor *gated(fsdp_scope *s, const fsdp_op *op, const gated_options *o,
                          fsdp_tensor *gate, fsdp_tensor *up)
{
    if (!check_pair(s, op->name, gate, "gate", up, "up"))
        return NULL;
    fsdp_tensor *out = fsdp_new(s, gate->dtype, gate->ndim, gate->shape);
    compute_gated(s, o, gate, up, out);
    fsdp_record(s, &(fsdp_record_args){.op = op,
                                       .in = {gate, up},
                                       .n_in = 2,
                                       .saved = {gate, up},
                                       .n_saved = 2,
                                       .out = {out},
                                       .n_out = 1,
                                       .options = o,
                                       .options_bytes = sizeof *o});
    return out;
}

fsdp_tensor *fsdp_geglu(fsdp_scope *s, fsdp_tensor *gate, fsdp_tensor *up)
{
    return gated(s, &geglu_op, &(gated_options){.activation = FSDP_ACTIVATION_GELU_TANH}, gate, up);
}

fsdp_tensor *fsdp_swiglu(fsdp_scope *s, fsdp_tensor *gate, fsdp_tensor *up)
{
    return gated(s, &swiglu_op, &(gated_options){.activation = FSDP_ACTIVATION_SILU}, gate, up);
}

static fsdp_tensor *gated_dropout(fsdp_scope *s, const fsdp_op *op, fsdp_activation a,
                                  fsdp_tensor *gate, fsdp_tensor *up, float p)
{
    const gated_options o = {.activation = a, .dropout = {.key = fsdp_scope_next_key(s), .p = p}};
    return gated(s, op, &o, gate, up);
}

fsdp_tensor *fsdp_geglu_dropout(fsdp_scope *s, fsdp_tensor *gate, fsdp_tensor *up, float p)
{
    if (!fsdp_check_probability(s, geglu_dropout_op.name, p))
        return NULL;
    if (!fsdp_dropout_is_active(s, p))
        return fsdp_geglu(s, gate, up);
    return gated_dropout(s, &geglu_dropout_op, FSDP_ACTIVATION_GELU_TANH, gate, up, p);
}

fsdp_tensor *fsdp_gated_dropout(fsdp_scope *s, fsdp_activation a, fsdp_tensor *gate,
                                fsdp_tensor *up, float p)
{
    if (a == FSDP_ACTIVATION_GELU_TANH)
        return fsdp_geglu_dropout(s, gate, up, p);
    if (!fsdp_check_probability(s, gated_dropout_op.name, p))
        return NULL;
    if (!fsdp_dropout_is_active(s, p))
        return gated(s, &gated_op, &(gated_options){.activation = a}, gate, up);
    return gated_dropout(s, &gated_dropout_op, a, gate, up, p);
}
