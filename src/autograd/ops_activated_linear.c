/* See activated_linear.h. */
#include "src/autograd/activated_linear.h"

#include "src/autograd/checkpoint.h"
#include "src/autograd/early_stop.h"
#include "src/autograd/linear.h"
#include "src/base/philox.h"

enum {
    LEAST_FEATURES = 512, /* minimum number of features in each part in backward */
    LEAST_ROWS = 128,     /* minimum number of rows in each part in forward */
    FEATURE_ALIGN = 64
};
enum {
    IN_X,
    IN_UP,
    IN_W,
    IN_BIAS
};
enum {
    SAVED_X, /* SAVED_X and SAVED_UP are set only if dx, d_up or dw is needed */
    SAVED_UP,
    SAVED_W /* set only if dx or d_up is needed */
};

typedef struct activated_options {
    fsdp_linear_shape shape;
    uint8_t activation; /* fsdp_activation */
    bool saves_memory;  /* the operation is in a checkpointed part, or has no backward */
    /* Dropout multiplied the elements that it did not drop by this factor, and backward multiplies
     * their gradients by it. 1: no dropout. */
    float factor;
} activated_options;
_Static_assert(sizeof(activated_options) <= FSDP_OPTION_BYTES, "a node keeps them");

/* Split n items into nearly equal parts of at most about `bytes` bytes each, and return the number
 * of items in a part. A part has at least `least` items. */
static int64_t part_length(int64_t n, int64_t bytes_of_one, int64_t bytes, int64_t least,
                           int64_t align)
{
    int64_t most = bytes_of_one > 0 ? bytes / bytes_of_one : n;
    most = most > least ? most : least;
    const int64_t parts = n > most ? (n + most - 1) / most : 1;
    const int64_t even = (n + parts - 1) / parts, part = (even + align - 1) / align * align;
    if (n - (parts - 1) * part < align)
        return even; /* a part of `part` items would leave a very small last part */
    return part < n ? part : n;
}

static int64_t bytes_of(const fsdp_linear_shape *o, int64_t numel)
{
    return numel * (int64_t)fsdp_dtype_size(o->dtype);
}

/* --- backward --- */

/* State that the backward passes of all parts share. */
typedef struct backward_run {
    fsdp_scope *s;
    const fsdp_node *n;
    const activated_options *o;
    fsdp_tensor *dx, *d_up; /* NULL: not needed */
    fsdp_grad_destination dw;
    /* The gradient of one part of a(x). The kernel later overwrites it with this part of a(x)
     * itself. */
    fsdp_tensor *part;
    const fsdp_tensor *dy;
} backward_run;

static char *feature_ptr(const fsdp_tensor *t, int64_t first)
{
    return t ? (char *)fsdp_tensor_ptr(t) + (size_t)first * fsdp_dtype_size(t->dtype) : NULL;
}

static void part_backward(const backward_run *r, fsdp_linear_part part)
{
    const fsdp_linear_shape *shape = &r->o->shape;
    void *hidden = fsdp_tensor_ptr(r->part);
    if (r->dx || r->d_up)
        fsdp_linear_input_gradient(r->s, shape, part, fsdp_tensor_ptr(r->dy), r->n->saved[SAVED_W],
                                   hidden);
    const fsdp_kernels *k = fsdp_scope_kernels(r->s);
    if (!k)
        return;
    k->activated_backward(
        fsdp_scope_context(r->s),
        &(fsdp_activated_backward_args){.activation = (fsdp_activation)r->o->activation,
                                        .factor = r->o->factor,
                                        .dtype = shape->dtype,
                                        .rows = shape->rows,
                                        .columns = part.features,
                                        .ld = shape->in_features,
                                        .x = feature_ptr(r->n->saved[SAVED_X], part.first),
                                        .up = feature_ptr(r->n->saved[SAVED_UP], part.first),
                                        .dx = feature_ptr(r->dx, part.first),
                                        .d_up = feature_ptr(r->d_up, part.first),
                                        .hidden = hidden});
    if (r->dw.tensor)
        fsdp_linear_weight_gradient(r->s, shape, part, fsdp_tensor_ptr(r->dy), hidden, r->dw);
}

static void parts_backward(backward_run *r)
{
    const fsdp_linear_shape *shape = &r->o->shape;
    const fsdp_device_traits *traits = r->s->run->device->traits;
    const int64_t features =
        part_length(shape->in_features, bytes_of(shape, shape->rows),
                    r->o->saves_memory ? traits->small_activated_bytes : traits->activated_bytes,
                    LEAST_FEATURES, FEATURE_ALIGN);
    r->part = fsdp_new(r->s, shape->dtype, 2, (const int64_t[]){shape->rows, features});
    if (r->dx || r->d_up)
        fsdp_scope_count_product(r->s, shape->rows, shape->in_features, shape->out_features);
    if (r->dw.tensor)
        fsdp_scope_count_product(r->s, shape->out_features, shape->in_features, shape->rows);
    for (int64_t first = 0; first < shape->in_features && fsdp_scope_kernels(r->s);
         first += features) {
        const int64_t left = shape->in_features - first;
        part_backward(r, (fsdp_linear_part){first, left < features ? left : features});
    }
}

static void products_backward(fsdp_scope *s, const fsdp_node *n, fsdp_tensor *const *grad_out,
                              fsdp_tensor **grad_in)
{
    const activated_options *o = (const activated_options *)n->options;
    backward_run r = {.s = s, .n = n, .o = o, .dy = grad_out[0]};
    r.dw = fsdp_linear_open_weight(s, n, IN_W, &o->shape, grad_in);
    r.dx = fsdp_input_grad_in_place(s, n, IN_X, n->saved[SAVED_X], grad_in);
    if (n->saved[SAVED_UP])
        r.d_up = fsdp_input_grad_in_place(s, n, IN_UP, n->saved[SAVED_UP], grad_in);
    if (fsdp_scope_ok(s))
        parts_backward(&r);
}

static void activated_backward(fsdp_scope *s, const fsdp_node *n, fsdp_tensor *const *grad_out,
                               fsdp_tensor **grad_in)
{
    const activated_options *o = (const activated_options *)n->options;
    const bool wants_input = fsdp_node_needs(n, IN_X) || fsdp_node_needs(n, IN_UP);
    if (wants_input ? fsdp_check_inputs(s, n->op->name, &n->saved[SAVED_W], 1)
                    : fsdp_node_needs(n, IN_W))
        products_backward(s, n, grad_out, grad_in);
    if (fsdp_node_needs(n, IN_BIAS))
        fsdp_linear_bias_gradient(s, n, IN_BIAS, &o->shape, grad_out[0], grad_in);
}

#define ACTIVATED(its_name)                                                                        \
    {                                                                                              \
        .name = (its_name), .kind = FSDP_OP_MATMUL, .backward = activated_backward                 \
    }
static const fsdp_op linear_op = ACTIVATED("activated_linear");
static const fsdp_op conv1d_op = ACTIVATED("activated_conv1d");

/* --- forward --- */

/* Return the number of parts of nearly equal size into which the rows of the activation are split.
 * This number is the same in both runs of a checkpointed part of the model. The sizes of any two
 * parts differ by at most one row, so no part has only a few rows while others have many. This
 * matters because a product of only a few rows might add its terms in a different order. */
static int64_t parts_of_rows(const fsdp_device_traits *traits, const activated_options *o)
{
    const fsdp_linear_shape *shape = &o->shape;
    const int64_t row = bytes_of(shape, shape->in_features);
    if (!o->saves_memory || row == 0 || shape->rows == 0)
        return 1;
    const int64_t bytes = traits->activated_rows_bytes;
    const int64_t most = row * LEAST_ROWS > bytes ? LEAST_ROWS : bytes / row;
    return (shape->rows + most - 1) / most;
}

static void compute_in_row_parts(fsdp_scope *s, const activated_options *o, const fsdp_tensor *x,
                                 const fsdp_tensor *up, const fsdp_tensor *w,
                                 const fsdp_tensor *bias, const fsdp_tensor *y)
{
    const fsdp_linear_shape *shape = &o->shape;
    const fsdp_activation a = (fsdp_activation)o->activation;
    const int64_t parts = parts_of_rows(s->run->device->traits, o), width = shape->in_features;
    const int64_t most = (shape->rows + parts - 1) / parts;
    const size_t size = fsdp_dtype_size(shape->dtype);
    fsdp_tensor *hidden = fsdp_new(s, shape->dtype, 2, (const int64_t[]){most, width});
    fsdp_scope_count_product(s, shape->rows, shape->out_features, width);
    for (int64_t i = 0; i < parts && shape->rows && fsdp_scope_kernels(s); i++) {
        const fsdp_kernels *k = fsdp_scope_kernels(s);
        const int64_t row = shape->rows * i / parts;
        const int64_t rows = shape->rows * (i + 1) / parts - row;
        const size_t at = (size_t)(row * width) * size;
        const char *of_x = (const char *)fsdp_tensor_ptr(x) + at;
        void *to = fsdp_tensor_ptr(hidden);
        if (up)
            k->gated(fsdp_scope_context(s), a, to, of_x, (const char *)fsdp_tensor_ptr(up) + at,
                     shape->dtype, rows * width);
        else
            k->activation(fsdp_scope_context(s), a, to, of_x, shape->dtype, rows * width);
        fsdp_linear_product(s, shape, rows, to, w, bias,
                            (char *)fsdp_tensor_ptr(y) +
                                (size_t)(row * shape->out_features) * size);
    }
    fsdp_drop(s, hidden);
}

static bool check_activated(fsdp_scope *s, const fsdp_op *op, fsdp_tensor *const in[4],
                            bool transposed, fsdp_linear_shape *shape)
{
    static const char *const all_names[] = {"x", "up", "w", "bias"};
    fsdp_tensor *there[4];
    const char *names[4];
    int n = 0;
    for (int i = 0; i < 4; i++)
        if (in[i] || i == IN_X || i == IN_W) {
            there[n] = in[i];
            names[n++] = all_names[i];
        }
    return fsdp_check_floats(s, op->name, there, names, n) &&
           (!in[IN_UP] || fsdp_check_same_shape(s, op->name, in[IN_X], "x", in[IN_UP], "up")) &&
           fsdp_linear_check(s, op->name, in[IN_X], in[IN_W], in[IN_BIAS], transposed, shape);
}

static void record_activated(fsdp_scope *s, const fsdp_op *op, const activated_options *o,
                             fsdp_tensor *const in[4], fsdp_tensor *y)
{
    const bool wants_input = fsdp_needs_grad(s, in[IN_X]) || fsdp_needs_grad(s, in[IN_UP]);
    const bool reads_input = wants_input || fsdp_needs_grad(s, in[IN_W]);
    fsdp_record(s, &(fsdp_record_args){.op = op,
                                       .in = {in[IN_X], in[IN_UP], in[IN_W], in[IN_BIAS]},
                                       .n_in = 4,
                                       .saved = {reads_input ? in[IN_X] : NULL,
                                                 reads_input ? in[IN_UP] : NULL,
                                                 wants_input ? in[IN_W] : NULL},
                                       .n_saved = 3,
                                       .out = {y},
                                       .n_out = 1,
                                       .options = o,
                                       .options_bytes = sizeof *o});
}

static activated_options options_of(const fsdp_scope *s, fsdp_activation a, float factor)
{
    return (activated_options){.activation = (uint8_t)a,
                               .saves_memory = s->run->recomputing || !s->run->tape,
                               .factor = factor};
}

fsdp_tensor *fsdp_activated_linear(fsdp_scope *s, fsdp_activation a, fsdp_tensor *x,
                                   fsdp_tensor *up, fsdp_tensor *w, fsdp_tensor *bias,
                                   bool transposed)
{
    const fsdp_op *op = transposed ? &conv1d_op : &linear_op;
    fsdp_tensor *const in[4] = {x, up, w, bias};
    activated_options o = options_of(s, a, 1.0f);
    if (!check_activated(s, op, in, transposed, &o.shape))
        return NULL;
    fsdp_tensor *y = NULL;
    if (!fsdp_selective_reuse(s, op, &y, 1)) {
        y = fsdp_linear_result(s, &o.shape);
        compute_in_row_parts(s, &o, x, up, w, bias, y);
        if (!fsdp_scope_ok(s))
            return NULL;
    }
    fsdp_selective_save(s, op, &y, 1);
    record_activated(s, op, &o, in, y);
    return y;
}

/* --- relu and dropout, in place --- */

/* relu_dropout() records no node, because the node of the linear operation also computes the
 * gradients of relu and dropout. But relu_dropout() is still counted as an operation (Note [Early
 * stop] in early_stop.h), because backward reads its result. */
static const fsdp_op relu_op = {.name = "relu_dropout"};

static fsdp_tensor *relu_dropout(fsdp_scope *s, fsdp_tensor *x, float p)
{
    fsdp_tensor *y =
        fsdp_is_sole_user(x) ? fsdp_tensor_alias(s, x) : fsdp_new(s, x->dtype, x->ndim, x->shape);
    const bool drops = fsdp_dropout_is_active(s, p);
    const uint64_t key = drops ? fsdp_scope_next_key(s) : 0;
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    if (!y)
        return NULL;
    if (k && drops)
        k->dropout(fsdp_scope_context(s), &(fsdp_dropout_args){.dtype = x->dtype,
                                                               .n = fsdp_tensor_numel(x),
                                                               .x = fsdp_tensor_ptr(x),
                                                               .out = fsdp_tensor_ptr(y),
                                                               .p = p,
                                                               .key = key,
                                                               .relu = true});
    else if (k)
        k->activation(fsdp_scope_context(s), FSDP_ACTIVATION_RELU, fsdp_tensor_ptr(y),
                      fsdp_tensor_ptr(x), x->dtype, fsdp_tensor_numel(x));
    y->node = x->node;
    y->generation = x->generation;
    y->output = x->output;
    fsdp_early_stop_count(s, &(fsdp_record_args){.op = &relu_op,
                                                 .in = {x},
                                                 .n_in = 1,
                                                 .saved = {y},
                                                 .n_saved = 1,
                                                 .out = {y},
                                                 .n_out = 1});
    return y;
}

fsdp_tensor *fsdp_relu_dropout_linear_(fsdp_scope *s, fsdp_tensor *x, float p, fsdp_tensor *w,
                                       fsdp_tensor *bias)
{
    activated_options o = options_of(s, FSDP_ACTIVATION_RELU,
                                     fsdp_dropout_is_active(s, p) ? fsdp_keep_factor(p) : 1.0f);
    fsdp_tensor *in[4] = {x, NULL, w, bias};
    if (!check_activated(s, &linear_op, in, false, &o.shape) ||
        !fsdp_check_probability(s, linear_op.name, p))
        return NULL;
    if (fsdp_grad_is_leaf(s, x)) {
        /* Usually, no node is recorded for relu and dropout: the node of the linear operation also
         * computes their gradient, and passes it to the node that made x. But if x is a leaf, no
         * node made it. So record a node for relu and dropout in this case. */
        in[IN_X] = fsdp_relu_dropout_(s, x, p);
        o.factor = 1.0f;
    } else {
        in[IN_X] = relu_dropout(s, x, p);
    }
    if (!in[IN_X])
        return NULL;
    fsdp_tensor *y = NULL;
    if (!fsdp_selective_reuse(s, &linear_op, &y, 1)) {
        y = fsdp_linear_result(s, &o.shape);
        fsdp_scope_count_product(s, o.shape.rows, o.shape.out_features, o.shape.in_features);
        if (fsdp_scope_kernels(s))
            fsdp_linear_product(s, &o.shape, o.shape.rows, fsdp_tensor_ptr(in[IN_X]), w, bias,
                                fsdp_tensor_ptr(y));
        if (!fsdp_scope_ok(s))
            return NULL;
    }
    fsdp_selective_save(s, &linear_op, &y, 1);
    record_activated(s, &linear_op, &o, in, y);
    fsdp_drop(s, in[IN_X]);
    return y;
}
