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

/* Return the format of the gradient of y. Only the recipe "tensorwise" uses e5m2. */
static fsdp_float8_format gradient_format(const float8_options *o)
{
    return o->recipe == FSDP_FLOAT8_TENSORWISE ? FSDP_FLOAT8_E5M2 : FSDP_FLOAT8_E4M3FN;
}

/* Return `axis`, or FSDP_FLOAT8_TENSOR if the recipe has one scale for each tensor. */
static fsdp_float8_axis axis_of(const float8_options *o, fsdp_float8_axis axis)
{
    return o->recipe == FSDP_FLOAT8_TENSORWISE ? FSDP_FLOAT8_TENSOR : axis;
}

/* --- how a product is computed --- */

/* A product: out [m, n] = beta out + op(a) op(b) + bias. */
typedef struct product {
    int64_t m, n, k;
    fsdp_float8_format a_format, b_format;
    bool trans_a, trans_b;
    bool has_one_scale_each; /* each operand has a single scale */
    const fsdp_tensor *bias; /* NULL: no bias */
    fsdp_tensor *out;        /* NULL: the scope has failed */
    float beta;
} product;

/* How the operands of a product are stored, and what its kernel does. float8_linear.h says how they
 * are chosen. */
typedef struct method {
    bool codes;  /* true: operands are codes of one byte, and k is the last dimension of both */
    bool scales; /* true: float8_gemm() also divides by the scales */
} method;

/* Each element of a product of codes is a sum of k terms. Return k. In the gradient of a weight,
 * the codes of both operands are transposed. Zeros are appended to transposed codes, so k is then
 * larger than p->k or equal to it, and p->k can be any number. */
static int64_t k_of_codes(const product *p)
{
    return p->trans_a && !p->trans_b ? fsdp_float8_transposed_ld(p->k) : p->k;
}

/* Return true if the device's kernels accept codes for this product. The meta device has no
 * kernels, and plans assume a card that accepts codes, so return true on meta. */
static bool accepts_codes(const fsdp_device *device, const product *p, bool scales)
{
    static const float some_scale;
    const fsdp_kernels *k = device->kernels;
    const fsdp_float8_gemm_args args = {.m = p->m,
                                        .n = p->n,
                                        .k = k_of_codes(p),
                                        .ab_dtype = FSDP_DTYPE_U8,
                                        .a_format = p->a_format,
                                        .b_format = p->b_format,
                                        .trans_b = true,
                                        .a_scale = scales ? &some_scale : NULL,
                                        .b_scale = scales ? &some_scale : NULL,
                                        .c_dtype = scales ? p->out->dtype : FSDP_DTYPE_F32};
    return !k || (k->float8_multiplies_codes && k->float8_multiplies_codes(device->context, &args));
}

static method choose_method(fsdp_scope *s, const product *p)
{
    const fsdp_device *device = fsdp_scope_device(s);
    if (!device->traits->multiplies_float8 || !p->out || p->m <= 0 || p->n <= 0 || p->k <= 0 ||
        p->n % FSDP_FLOAT8_MULTIPLE || k_of_codes(p) % FSDP_FLOAT8_MULTIPLE)
        return (method){0};
    if (p->has_one_scale_each && !p->bias && accepts_codes(device, p, true))
        return (method){.codes = true, .scales = true};
    return (method){.codes = accepts_codes(device, p, false)};
}

/* --- operands --- */

/* A matrix that was cast to float8. `codes` contains either its codes (uint8) or, in bfloat16, the
 * values of its codes. Codes are transposed if k was not the last dimension of the matrix. */
typedef struct operand {
    fsdp_tensor *codes, *scales;
    bool borrowed_codes, borrowed_scales;
} operand;

static void drop_operand(fsdp_scope *s, const operand *o)
{
    if (!o->borrowed_codes)
        fsdp_drop(s, o->codes);
    if (!o->borrowed_scales)
        fsdp_drop(s, o->scales);
}

/* Which elements of a matrix share a scale, and in which direction a product sums over the
 * matrix. */
typedef struct direction {
    fsdp_float8_axis axis;
    bool sums_rows; /* true: k is the number of rows, so codes are stored transposed */
} direction;

static fsdp_tensor *new_codes(fsdp_scope *s, method how, bool transposed, int64_t rows,
                              int64_t columns)
{
    const int64_t shape[] = {transposed ? columns : rows,
                             transposed ? fsdp_float8_transposed_ld(rows) : columns};
    return fsdp_new(s, how.codes ? FSDP_DTYPE_U8 : FSDP_DTYPE_BF16, 2, shape);
}

/* Cast x [rows, columns]. */
static operand cast(fsdp_scope *s, method how, const fsdp_tensor *x, int64_t rows, int64_t columns,
                    fsdp_float8_format format, direction d, bool power_of_2)
{
    const int64_t n_scales = d.axis == FSDP_FLOAT8_TENSOR ? 1
                             : d.axis == FSDP_FLOAT8_ROW  ? rows
                                                          : columns;
    const bool transposed = how.codes && d.sums_rows;
    const operand o = {.codes = new_codes(s, how, transposed, rows, columns),
                       .scales = fsdp_new(s, FSDP_DTYPE_F32, 1, &n_scales)};
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    if (!k)
        return o;
    const fsdp_float8_cast_args args = {.x = fsdp_tensor_ptr(x),
                                        .dtype = x->dtype,
                                        .rows = rows,
                                        .columns = columns,
                                        .format = format,
                                        .axis = d.axis,
                                        .power_of_2 = power_of_2,
                                        .scales = fsdp_tensor_ptr(o.scales),
                                        .codes = fsdp_tensor_ptr(o.codes),
                                        .codes_dtype = o.codes->dtype,
                                        .transposed = transposed};
    k->float8_scales(fsdp_scope_context(s), &args);
    k->float8_cast(fsdp_scope_context(s), &args);
    return o;
}

/* Return w as an operand. If w was gathered in float8 (w_scale is not NULL), w has the codes
 * already, and w_scale is their only scale. */
static operand weight(fsdp_scope *s, method how, const float8_options *o, fsdp_tensor *w,
                      fsdp_tensor *w_scale, direction d)
{
    const int64_t rows = o->shape.out_features, columns = o->shape.in_features;
    if (!w_scale)
        return cast(s, how, w, rows, columns, FSDP_FLOAT8_E4M3FN, d,
                    o->recipe != FSDP_FLOAT8_TENSORWISE);
    operand codes = {.codes = w,
                     .scales = w_scale,
                     .borrowed_codes = how.codes && !d.sums_rows,
                     .borrowed_scales = true};
    if (codes.borrowed_codes)
        return codes;
    codes.codes = new_codes(s, how, how.codes, rows, columns);
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    if (k)
        k->float8_decode(fsdp_scope_context(s),
                         &(fsdp_float8_decode_args){.codes = fsdp_tensor_ptr(w),
                                                    .format = FSDP_FLOAT8_E4M3FN,
                                                    .rows = rows,
                                                    .columns = columns,
                                                    .out = fsdp_tensor_ptr(codes.codes),
                                                    .out_dtype = codes.codes->dtype});
    return codes;
}

/* Return the gradient of y as an operand. */
static operand gradient(fsdp_scope *s, method how, const float8_options *o, const fsdp_tensor *dy,
                        direction d)
{
    return cast(s, how, dy, o->shape.rows, o->shape.out_features, gradient_format(o), d,
                o->recipe != FSDP_FLOAT8_TENSORWISE);
}

static operand input(fsdp_scope *s, method how, const float8_options *o, const fsdp_tensor *x,
                     direction d)
{
    return cast(s, how, x, o->shape.rows, o->shape.in_features, FSDP_FLOAT8_E4M3FN, d,
                o->recipe != FSDP_FLOAT8_TENSORWISE);
}

/* --- products --- */

/* Start the product of the operands. If how.scales is true, the kernel also divides by the scales,
 * and writes the result to `out`. Otherwise it writes the sums to `out`, and the caller divides
 * them by the scales. Return false if the scope has no kernels or fails. */
static bool start_product(fsdp_scope *s, const product *p, method how, const operand *a,
                          const operand *b, fsdp_tensor *out)
{
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    if (!k)
        return false;
    const fsdp_float8_gemm_args args = {
        .m = p->m,
        .n = p->n,
        .k = how.codes ? k_of_codes(p) : p->k,
        .a = fsdp_tensor_ptr(a->codes),
        .b = fsdp_tensor_ptr(b->codes),
        .ab_dtype = a->codes->dtype,
        .a_format = p->a_format,
        .b_format = p->b_format,
        .trans_a = p->trans_a && !how.codes,
        .trans_b = p->trans_b || how.codes,
        .a_scale = how.scales ? fsdp_tensor_ptr(a->scales) : NULL,
        .b_scale = how.scales ? fsdp_tensor_ptr(b->scales) : NULL,
        .c = fsdp_tensor_ptr(out),
        .c_dtype = out->dtype,
        .beta = how.scales ? p->beta : 0.0f,
    };
    return fsdp_scope_check(s, k->float8_gemm(fsdp_scope_context(s), &args));
}

/* Compute a product and divide it by the scales, and drop its operands. The scales of `a` are for
 * the rows of op(a), and the scales of `b` are for the columns of op(b). This is so even if an
 * operand is transposed. */
static void multiply(fsdp_scope *s, const product *p, method how, operand a, operand b)
{
    const bool in_place =
        how.scales || (p->out && p->out->dtype == FSDP_DTYPE_F32 && p->beta == 0.0f);
    fsdp_tensor *sums =
        in_place ? p->out : fsdp_new(s, FSDP_DTYPE_F32, 2, (const int64_t[]){p->m, p->n});
    fsdp_scope_count_product(s, p->m, p->n, p->k);
    if (start_product(s, p, how, &a, &b, sums) && !how.scales)
        fsdp_scope_kernels(s)->float8_descale(
            fsdp_scope_context(s),
            &(fsdp_float8_descale_args){
                .sums = fsdp_tensor_ptr(sums),
                .rows = p->m,
                .columns = p->n,
                .a_scales = fsdp_tensor_ptr(a.scales),
                .b_scales = fsdp_tensor_ptr(b.scales),
                .a_by_row = fsdp_tensor_numel(a.scales) == p->m && p->m != 1,
                .b_by_column = fsdp_tensor_numel(b.scales) == p->n && p->n != 1,
                .bias = p->bias ? fsdp_tensor_ptr(p->bias) : NULL,
                .out = fsdp_tensor_ptr(p->out),
                .out_dtype = p->out->dtype,
                .beta = p->beta});
    if (!in_place)
        fsdp_drop(s, sums);
    drop_operand(s, &a);
    drop_operand(s, &b);
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
    const product p = {.m = shape->out_features,
                       .n = shape->in_features,
                       .k = shape->rows,
                       .a_format = gradient_format(o),
                       .b_format = FSDP_FLOAT8_E4M3FN,
                       .trans_a = true,
                       .has_one_scale_each = o->recipe == FSDP_FLOAT8_TENSORWISE,
                       .out = dw.tensor,
                       .beta = dw.beta};
    const method how = choose_method(s, &p);
    const direction columns = {axis_of(o, FSDP_FLOAT8_COLUMN), .sums_rows = true};
    const operand of_dy = gradient(s, how, o, dy, columns);
    multiply(s, &p, how, of_dy, input(s, how, o, x, columns));
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
    const product p = {.m = shape->rows,
                       .n = shape->in_features,
                       .k = shape->out_features,
                       .a_format = gradient_format(o),
                       .b_format = FSDP_FLOAT8_E4M3FN,
                       .has_one_scale_each = o->recipe == FSDP_FLOAT8_TENSORWISE,
                       .out = grad_in[IN_X]};
    const method how = choose_method(s, &p);
    const direction w_columns = {o->recipe == FSDP_FLOAT8_ROWWISE ? FSDP_FLOAT8_COLUMN
                                                                  : FSDP_FLOAT8_TENSOR,
                                 .sums_rows = true};
    const operand of_dy =
        gradient(s, how, o, grad_out[0], (direction){axis_of(o, FSDP_FLOAT8_ROW), false});
    multiply(s, &p, how, of_dy,
             weight(s, how, o, n->saved[SAVED_W], n->saved[SAVED_W_SCALE], w_columns));
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
                            fsdp_tensor *w, fsdp_tensor *w_scale, const fsdp_tensor *bias)
{
    fsdp_tensor *y = fsdp_linear_result(s, &o->shape);
    const product p = {.m = o->shape.rows,
                       .n = o->shape.out_features,
                       .k = o->shape.in_features,
                       .a_format = FSDP_FLOAT8_E4M3FN,
                       .b_format = FSDP_FLOAT8_E4M3FN,
                       .trans_b = true,
                       .has_one_scale_each = o->recipe == FSDP_FLOAT8_TENSORWISE,
                       .bias = bias,
                       .out = y};
    const method how = choose_method(s, &p);
    const direction rows = {axis_of(o, FSDP_FLOAT8_ROW), false};
    const operand of_x = input(s, how, o, x, rows);
    multiply(s, &p, how, of_x, weight(s, how, o, w, w_scale, rows));
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
