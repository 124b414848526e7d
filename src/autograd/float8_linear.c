/* See float8_linear.h. Legend: T rows of x, D features in, N features out. */
#include "src/autograd/float8_linear.h"

#include "src/autograd/checkpoint.h"
#include "src/autograd/linear.h"

enum {
    IN_X,
    IN_W,
    IN_BIAS
};
enum {
    SAVED_X, /* set only if dw is needed; only parameters_backward() reads it */
    SAVED_W, /* set only if dx is needed */
    SAVED_W_SCALE
};

typedef struct float8_options {
    fsdp_linear_shape shape;
    uint8_t recipe; /* fsdp_float8_recipe */
} float8_options;
_Static_assert(sizeof(float8_options) <= FSDP_OPTION_BYTES, "a node keeps them");

/* --- operands --- */

/* A matrix that was cast to float8. `codes` are its codes or, on the CPU, their values in
 * bfloat16. */
typedef struct operand {
    fsdp_tensor *codes, *scales;
    fsdp_float8_format format;
    bool borrowed_scales;
} operand;

static void drop_operand(fsdp_scope *s, const operand *o)
{
    fsdp_drop(s, o->codes);
    if (!o->borrowed_scales)
        fsdp_drop(s, o->scales);
}

/* Cast x [rows, columns]. */
static operand cast(fsdp_scope *s, const fsdp_tensor *x, int64_t rows, int64_t columns,
                    fsdp_float8_format format, fsdp_float8_axis axis, bool power_of_2)
{
    const int64_t n_scales = axis == FSDP_FLOAT8_TENSOR ? 1
                             : axis == FSDP_FLOAT8_ROW  ? rows
                                                        : columns;
    const operand o = {.codes = fsdp_new(s, FSDP_DTYPE_BF16, 2, (const int64_t[]){rows, columns}),
                       .scales = fsdp_new(s, FSDP_DTYPE_F32, 1, &n_scales),
                       .format = format};
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    if (!k)
        return o;
    const fsdp_float8_cast_args args = {.x = fsdp_tensor_ptr(x),
                                        .dtype = x->dtype,
                                        .rows = rows,
                                        .columns = columns,
                                        .format = format,
                                        .axis = axis,
                                        .power_of_2 = power_of_2,
                                        .scales = fsdp_tensor_ptr(o.scales),
                                        .codes = fsdp_tensor_ptr(o.codes),
                                        .codes_dtype = o.codes->dtype};
    k->float8_scales(fsdp_scope_context(s), &args);
    k->float8_cast(fsdp_scope_context(s), &args);
    return o;
}

/* Return w as an operand. `axis` says which elements share a scale. If w was gathered in float8
 * (w_scale is not NULL), w has the codes already, and w_scale is their only scale. */
static operand weight(fsdp_scope *s, const float8_options *o, const fsdp_tensor *w,
                      fsdp_tensor *w_scale, fsdp_float8_axis axis)
{
    const int64_t shape[] = {o->shape.out_features, o->shape.in_features};
    if (!w_scale)
        return cast(s, w, shape[0], shape[1], FSDP_FLOAT8_E4M3FN, axis,
                    o->recipe != FSDP_FLOAT8_TENSORWISE);
    const operand codes = {.codes = fsdp_new(s, FSDP_DTYPE_BF16, 2, shape),
                           .scales = w_scale,
                           .format = FSDP_FLOAT8_E4M3FN,
                           .borrowed_scales = true};
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    if (k)
        k->float8_decode(fsdp_scope_context(s),
                         &(fsdp_float8_decode_args){.codes = fsdp_tensor_ptr(w),
                                                    .format = codes.format,
                                                    .rows = shape[0],
                                                    .columns = shape[1],
                                                    .out = fsdp_tensor_ptr(codes.codes),
                                                    .out_dtype = codes.codes->dtype});
    return codes;
}

/* Return the gradient of y as an operand. Only the recipe "tensorwise" uses e5m2. */
static operand gradient(fsdp_scope *s, const float8_options *o, const fsdp_tensor *dy,
                        fsdp_float8_axis axis)
{
    const bool tensorwise = o->recipe == FSDP_FLOAT8_TENSORWISE;
    return cast(s, dy, o->shape.rows, o->shape.out_features,
                tensorwise ? FSDP_FLOAT8_E5M2 : FSDP_FLOAT8_E4M3FN,
                tensorwise ? FSDP_FLOAT8_TENSOR : axis, !tensorwise);
}

static operand input(fsdp_scope *s, const float8_options *o, const fsdp_tensor *x,
                     fsdp_float8_axis axis)
{
    const bool tensorwise = o->recipe == FSDP_FLOAT8_TENSORWISE;
    return cast(s, x, o->shape.rows, o->shape.in_features, FSDP_FLOAT8_E4M3FN,
                tensorwise ? FSDP_FLOAT8_TENSOR : axis, !tensorwise);
}

/* --- products --- */

/* A product: out [m, n] = beta out + op(a) op(b) + bias. The scales of `a` are for the rows of
 * op(a), and the scales of `b` are for the columns of op(b), also if the operand is transposed. */
typedef struct product {
    int64_t m, n, k;
    operand a, b;
    bool trans_a, trans_b;
    const fsdp_tensor *bias; /* NULL: no bias */
    fsdp_tensor *out;        /* NULL: the scope has failed */
    float beta;
} product;

/* Compute a product, and drop its operands. */
static void multiply(fsdp_scope *s, const product *p)
{
    const bool in_place = p->out && p->out->dtype == FSDP_DTYPE_F32 && p->beta == 0.0f;
    fsdp_tensor *sums =
        in_place ? p->out : fsdp_new(s, FSDP_DTYPE_F32, 2, (const int64_t[]){p->m, p->n});
    fsdp_scope_count_product(s, p->m, p->n, p->k);
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    if (k && fsdp_scope_check(
                 s, k->float8_gemm(fsdp_scope_context(s),
                                   &(fsdp_float8_gemm_args){.m = p->m,
                                                            .n = p->n,
                                                            .k = p->k,
                                                            .a = fsdp_tensor_ptr(p->a.codes),
                                                            .b = fsdp_tensor_ptr(p->b.codes),
                                                            .a_format = p->a.format,
                                                            .b_format = p->b.format,
                                                            .trans_a = p->trans_a,
                                                            .trans_b = p->trans_b,
                                                            .c = fsdp_tensor_ptr(sums)})))
        k->float8_descale(fsdp_scope_context(s),
                          &(fsdp_float8_descale_args){
                              .sums = fsdp_tensor_ptr(sums),
                              .rows = p->m,
                              .columns = p->n,
                              .a_scales = fsdp_tensor_ptr(p->a.scales),
                              .b_scales = fsdp_tensor_ptr(p->b.scales),
                              .a_by_row = fsdp_tensor_numel(p->a.scales) == p->m && p->m != 1,
                              .b_by_column = fsdp_tensor_numel(p->b.scales) == p->n && p->n != 1,
                              .bias = p->bias ? fsdp_tensor_ptr(p->bias) : NULL,
                              .out = fsdp_tensor_ptr(p->out),
                              .out_dtype = p->out->dtype,
                              .beta = p->beta});
    if (!in_place)
        fsdp_drop(s, sums);
    drop_operand(s, &p->a);
    drop_operand(s, &p->b);
}

/* --- backward --- */

static void backward_w(fsdp_scope *s, const fsdp_node *n, const fsdp_tensor *dy,
                       fsdp_tensor **grad_in)
{
    const float8_options *o = (const float8_options *)n->options;
    const fsdp_linear_shape *shape = &o->shape;
    const fsdp_tensor *x = n->saved[SAVED_X];
    const fsdp_grad_destination dw = fsdp_linear_open_weight(s, n, IN_W, shape, grad_in);
    if (o->recipe == FSDP_FLOAT8_ROWWISE_WITH_GW_HP) {
        fsdp_scope_count_product(s, shape->out_features, shape->in_features, shape->rows);
        if (fsdp_scope_kernels(s) && dw.tensor)
            fsdp_linear_weight_gradient(s, shape, (fsdp_linear_part){0, shape->in_features},
                                        fsdp_tensor_ptr(dy), fsdp_tensor_ptr(x), dw);
        return;
    }
    multiply(s, &(product){.m = shape->out_features,
                           .n = shape->in_features,
                           .k = shape->rows,
                           .a = gradient(s, o, dy, FSDP_FLOAT8_COLUMN),
                           .trans_a = true,
                           .b = input(s, o, x, FSDP_FLOAT8_COLUMN),
                           .out = dw.tensor,
                           .beta = dw.beta});
}

static void parameters_backward(fsdp_scope *s, const fsdp_node *n, fsdp_tensor *const *grad_out,
                                fsdp_tensor **grad_in)
{
    const float8_options *o = (const float8_options *)n->options;
    if (fsdp_node_needs(n, IN_W))
        backward_w(s, n, grad_out[0], grad_in);
    if (fsdp_node_needs(n, IN_BIAS))
        fsdp_linear_bias_gradient(s, n, IN_BIAS, &o->shape, grad_out[0], grad_in);
}

static void float8_backward(fsdp_scope *s, const fsdp_node *n, fsdp_tensor *const *grad_out,
                            fsdp_tensor **grad_in)
{
    const float8_options *o = (const float8_options *)n->options;
    const fsdp_linear_shape *shape = &o->shape;
    if (!fsdp_node_needs(n, IN_X) || !fsdp_check_inputs(s, n->op->name, &n->saved[SAVED_W], 1))
        return;
    grad_in[IN_X] = fsdp_new(s, shape->dtype, shape->x_ndim, shape->x_shape);
    multiply(s, &(product){.m = shape->rows,
                           .n = shape->in_features,
                           .k = shape->out_features,
                           .a = gradient(s, o, grad_out[0], FSDP_FLOAT8_ROW),
                           .b = weight(s, o, n->saved[SAVED_W], n->saved[SAVED_W_SCALE],
                                       o->recipe == FSDP_FLOAT8_ROWWISE ? FSDP_FLOAT8_COLUMN
                                                                        : FSDP_FLOAT8_TENSOR),
                           .out = grad_in[IN_X]});
}

/* As in linear, x is released between the two steps of backward, so that dx can use its memory. */
static const fsdp_op float8_op = {.name = "float8_linear",
                                  .kind = FSDP_OP_MATMUL,
                                  .backward_first = parameters_backward,
                                  .backward = float8_backward};

/* --- forward --- */

static bool check_tensors(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *w, fsdp_tensor *w_scale,
                          fsdp_tensor *bias, fsdp_float8_recipe recipe, fsdp_linear_shape *shape)
{
    static const char *const names[] = {"x", "w", "bias"}, *const beside_codes[] = {"x", "bias"};
    if (!w_scale)
        return fsdp_check_floats(s, float8_op.name, (fsdp_tensor *const[]){x, w, bias}, names,
                                 bias ? 3 : 2) &&
               fsdp_linear_check(s, float8_op.name, x, w, bias, false, shape);
    if (!fsdp_check_floats(s, float8_op.name, (fsdp_tensor *const[]){x, bias}, beside_codes,
                           bias ? 2 : 1) ||
        !fsdp_check_inputs(s, float8_op.name, (fsdp_tensor *const[]){w, w_scale}, 2))
        return false;
    if (w->dtype != FSDP_DTYPE_U8 || recipe != FSDP_FLOAT8_TENSORWISE)
        fsdp_scope_error(s, float8_op.name,
                         "w is %s with a scale of its own: this is for codes (uint8) and the "
                         "recipe tensorwise",
                         fsdp_dtype_name(w->dtype));
    return fsdp_linear_check(s, float8_op.name, x, w, bias, false, shape);
}

static fsdp_tensor *compute(fsdp_scope *s, const float8_options *o, const fsdp_tensor *x,
                            const fsdp_tensor *w, fsdp_tensor *w_scale, const fsdp_tensor *bias)
{
    fsdp_tensor *y = fsdp_linear_result(s, &o->shape);
    multiply(s, &(product){.m = o->shape.rows,
                           .n = o->shape.out_features,
                           .k = o->shape.in_features,
                           .a = input(s, o, x, FSDP_FLOAT8_ROW),
                           .b = weight(s, o, w, w_scale,
                                       o->recipe == FSDP_FLOAT8_TENSORWISE ? FSDP_FLOAT8_TENSOR
                                                                           : FSDP_FLOAT8_ROW),
                           .trans_b = true,
                           .bias = bias,
                           .out = y});
    return y;
}

fsdp_tensor *fsdp_float8_linear_of(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *w,
                                   fsdp_tensor *w_scale, fsdp_tensor *bias,
                                   fsdp_float8_recipe recipe)
{
    float8_options o = {.recipe = (uint8_t)recipe};
    if (!fsdp_scope_ok(s) || !check_tensors(s, x, w, w_scale, bias, recipe, &o.shape))
        return NULL;
    fsdp_tensor *y = NULL;
    if (!fsdp_selective_reuse(s, &float8_op, &y, 1)) {
        y = compute(s, &o, x, w, w_scale, bias);
        if (!fsdp_scope_ok(s))
            return NULL;
    }
    fsdp_selective_save(s, &float8_op, &y, 1);
    const bool needs_dx = fsdp_needs_grad(s, x);
    fsdp_record(s, &(fsdp_record_args){.op = &float8_op,
                                       .in = {x, w, bias},
                                       .n_in = 3,
                                       .saved = {fsdp_needs_grad(s, w) ? x : NULL,
                                                 needs_dx ? w : NULL, needs_dx ? w_scale : NULL},
                                       .n_saved = 3,
                                       .out = {y},
                                       .n_out = 1,
                                       .options = &o,
                                       .options_bytes = sizeof o});
    return y;
}

fsdp_tensor *fsdp_float8_linear(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *w, fsdp_tensor *bias,
                                fsdp_float8_recipe recipe)
{
    return fsdp_float8_linear_of(s, x, w, NULL, bias, recipe);
}
