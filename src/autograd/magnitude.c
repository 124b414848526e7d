/* See Note [Magnitudes] in magnitude.h. Legend: T rows of x, D features in, N features out, R rank
 * of the adapter. */
#include "src/autograd/magnitude.h"

#include "src/autograd/ops.h"

/* --- norms --- */

enum {
    PIECE_ELEMENTS = 1 << 20 /* approximate number of elements of the weight that are in memory
                                at one time */
};

static const char norm_op[] = "weight_norm";

/* The tensors of one computation of norms. */
typedef struct norm_work {
    const fsdp_adapted_weight *weight;
    int64_t in, out, rank;
    fsdp_dtype dtype;
    fsdp_tensor *a, *b; /* A and scaling B as float32; NULL: there is no adapter */
    fsdp_tensor *piece; /* rows of the weight as float32 */
    int64_t piece_rows;
    fsdp_tensor *squares; /* [N] float64: the squares of the norms */
    fsdp_tensor *norms;   /* [N] float32 */
} norm_work;

/* Create a float32 copy of t, multiplied by `factor`. */
static fsdp_tensor *widened(fsdp_scope *s, const fsdp_tensor *t, float factor)
{
    fsdp_tensor *wide = fsdp_new(s, FSDP_DTYPE_F32, t->ndim, t->shape);
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    if (!k || !wide)
        return wide;
    k->cast(fsdp_scope_context(s), fsdp_tensor_ptr(wide), FSDP_DTYPE_F32, fsdp_tensor_ptr(t),
            t->dtype, fsdp_tensor_numel(t));
    if (factor != 1.0f)
        k->scale(fsdp_scope_context(s), fsdp_tensor_ptr(wide), fsdp_tensor_ptr(wide), factor,
                 FSDP_DTYPE_F32, fsdp_tensor_numel(wide));
    return wide;
}

/* Add scaling B A to m->piece, which has rows [first, first + rows) of W. If W is transposed, the
 * rows are those of scaling A^T B^T. */
static void add_update(fsdp_scope *s, const norm_work *m, int64_t first, int64_t rows)
{
    const float *a = fsdp_tensor_ptr(m->a), *b = fsdp_tensor_ptr(m->b);
    fsdp_gemm_args args = {.m = rows,
                           .n = m->in,
                           .k = m->rank,
                           .a = b + first * m->rank,
                           .b = a,
                           .c = fsdp_tensor_ptr(m->piece),
                           .lda = m->rank,
                           .ldb = m->in,
                           .ldc = m->in,
                           .ab_dtype = FSDP_DTYPE_F32,
                           .c_dtype = FSDP_DTYPE_F32,
                           .beta = 1.0f};
    if (m->weight->transposed) {
        args.n = m->out;
        args.a = a + first;
        args.b = b;
        args.lda = m->in;
        args.ldb = m->rank;
        args.ldc = m->out;
        args.trans_a = args.trans_b = true;
    }
    fsdp_scope_check(s, fsdp_scope_kernels(s)->gemm(fsdp_scope_context(s), &args));
}

static void run_norms(fsdp_scope *s, const norm_work *m)
{
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    fsdp_kernel_context *c = fsdp_scope_context(s);
    const fsdp_tensor *w = m->weight->w;
    const char *from = fsdp_tensor_ptr(w);
    float *piece = fsdp_tensor_ptr(m->piece);
    double *squares = fsdp_tensor_ptr(m->squares);
    const int64_t total = w->shape[0], width = w->shape[1];
    for (int64_t first = 0; first < total && fsdp_scope_ok(s); first += m->piece_rows) {
        const int64_t rest = total - first, rows = rest < m->piece_rows ? rest : m->piece_rows;
        k->cast(c, piece, FSDP_DTYPE_F32,
                from + (size_t)(first * width) * fsdp_dtype_size(w->dtype), w->dtype, rows * width);
        if (m->a)
            add_update(s, m, first, rows);
        if (m->weight->transposed)
            k->square_column_sums(c, squares, piece, rows, width, 1.0f, 0.0f);
        else
            k->square_row_sums(c, squares + first, piece, rows, width, 1.0f, 0.0f);
    }
    if (fsdp_scope_ok(s))
        k->norms_of_squares(c, fsdp_tensor_ptr(m->norms), squares, m->dtype, m->out);
}

static bool check_weight(fsdp_scope *s, const fsdp_adapted_weight *weight)
{
    static const char *const names[] = {"w", "a", "b"};
    const fsdp_tensor *w = weight->w, *a = weight->a, *b = weight->b;
    char w_text[FSDP_SHAPE_TEXT], a_text[FSDP_SHAPE_TEXT], b_text[FSDP_SHAPE_TEXT];
    if (!fsdp_check_floats(s, norm_op, (fsdp_tensor *const[]){weight->w, weight->a, weight->b},
                           names, a ? 3 : 1))
        return false;
    const int in = weight->transposed ? 0 : 1;
    if (w->ndim != 2 || (a && (a->ndim != 2 || b->ndim != 2 || a->shape[0] != b->shape[1] ||
                               a->shape[1] != w->shape[in] || b->shape[0] != w->shape[1 - in])))
        fsdp_scope_error(s, norm_op, "w is %s, a is %s and b is %s: b a does not have w's shape",
                         fsdp_shape_text(w->ndim, w->shape, w_text),
                         a ? fsdp_shape_text(a->ndim, a->shape, a_text) : "none",
                         b ? fsdp_shape_text(b->ndim, b->shape, b_text) : "none");
    return fsdp_scope_ok(s);
}

/* Return the number of rows of W in a piece. The norms of a transposed W are sums over all of its
 * rows, so then all rows are in one piece. */
static int64_t rows_of_piece(const fsdp_adapted_weight *weight)
{
    const int64_t rows = weight->w->shape[0], width = weight->w->shape[1];
    const int64_t fit = width ? PIECE_ELEMENTS / width : rows;
    const int64_t limit = fit < 1 ? 1 : fit;
    return weight->transposed || rows < limit ? rows : limit;
}

fsdp_tensor *fsdp_weight_norm(fsdp_scope *s, const fsdp_adapted_weight *weight)
{
    if (!check_weight(s, weight))
        return NULL;
    const fsdp_tensor *w = weight->w;
    norm_work m = {.weight = weight,
                   .in = w->shape[weight->transposed ? 0 : 1],
                   .out = w->shape[weight->transposed ? 1 : 0],
                   .rank = weight->a ? weight->a->shape[0] : 0,
                   .dtype = w->dtype,
                   .piece_rows = rows_of_piece(weight)};
    m.norms = fsdp_new(s, FSDP_DTYPE_F32, 1, &m.out);
    m.squares = fsdp_new(s, FSDP_DTYPE_F64, 1, &m.out);
    m.piece = fsdp_new(s, FSDP_DTYPE_F32, 2, (const int64_t[]){m.piece_rows, w->shape[1]});
    if (weight->a && fsdp_scope_ok(s)) {
        m.a = widened(s, weight->a, 1.0f);
        m.b = widened(s, weight->b, weight->scaling);
    }
    if (fsdp_scope_ok(s) && fsdp_scope_kernels(s))
        run_norms(s, &m);
    fsdp_drop(s, m.a);
    fsdp_drop(s, m.b);
    fsdp_drop(s, m.piece);
    fsdp_drop(s, m.squares);
    return fsdp_scope_ok(s) ? m.norms : NULL;
}

/* --- scale_to_magnitudes --- */

enum {
    IN_X,
    IN_MAGNITUDES,
    IN_BIAS
};
enum {
    SAVED_X,       /* set only if the magnitudes need a gradient */
    SAVED_FACTORS, /* [2, N] float32: magnitudes / norms, and 1 / norms */
    N_SAVED
};

static void magnitudes_backward(fsdp_scope *s, const fsdp_node *n, fsdp_tensor *const *grad_out,
                                fsdp_tensor **grad_in)
{
    const fsdp_tensor *x = n->saved[SAVED_X], *factors = n->saved[SAVED_FACTORS], *dy = grad_out[0];
    const int64_t width = factors->shape[1], rows = fsdp_leading_rows(dy);
    fsdp_grad_destination dm = {0}, db = {0};
    if (!fsdp_check_inputs(s, n->op->name, &n->saved[SAVED_FACTORS], 1))
        return;
    if (fsdp_node_needs(n, IN_MAGNITUDES)) {
        if (!fsdp_check_inputs(s, n->op->name, &n->saved[SAVED_X], 1))
            return;
        dm = fsdp_input_grad_destination(s, n, IN_MAGNITUDES, x->dtype, 1, &width, grad_in);
    }
    if (fsdp_node_needs(n, IN_BIAS))
        db = fsdp_input_grad_destination(s, n, IN_BIAS, dy->dtype, 1, &width, grad_in);
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    const float *factor = k ? fsdp_tensor_ptr(factors) : NULL;
    if (k && dm.tensor)
        k->column_dots(fsdp_scope_context(s), fsdp_tensor_ptr(dm.tensor), dm.tensor->dtype, dm.beta,
                       fsdp_tensor_ptr(dy), fsdp_tensor_ptr(x), x->dtype, factor + width, rows,
                       width);
    if (k && db.tensor)
        k->column_sum(fsdp_scope_context(s), fsdp_tensor_ptr(db.tensor), db.tensor->dtype, db.beta,
                      fsdp_tensor_ptr(dy), dy->dtype, rows, width);
    fsdp_tensor *dx = fsdp_input_grad_in_place(s, n, IN_X, grad_out[0], grad_in);
    if (k && dx)
        k->scale_columns(fsdp_scope_context(s), fsdp_tensor_ptr(dx), fsdp_tensor_ptr(dy), dx->dtype,
                         factor, NULL, rows, width);
}

static const fsdp_op magnitudes_op = {.name = "scale_to_magnitudes",
                                      .backward = magnitudes_backward};

static bool check_magnitudes(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *magnitudes,
                             fsdp_tensor *norms, fsdp_tensor *bias)
{
    static const char *const names[] = {"x", "magnitudes", "bias"};
    const char *op = magnitudes_op.name;
    char x_text[FSDP_SHAPE_TEXT], m_text[FSDP_SHAPE_TEXT];
    if (!fsdp_check_floats(s, op, (fsdp_tensor *const[]){x, magnitudes, bias}, names,
                           bias ? 3 : 2) ||
        !fsdp_check_inputs(s, op, &norms, 1))
        return false;
    if (x->ndim < 1 || magnitudes->ndim != 1 || magnitudes->shape[0] != fsdp_last_dim(x))
        fsdp_scope_error(s, op, "x is %s but magnitudes is %s, not the last dimension of x",
                         fsdp_shape_text(x->ndim, x->shape, x_text),
                         fsdp_shape_text(magnitudes->ndim, magnitudes->shape, m_text));
    else if (norms->dtype != FSDP_DTYPE_F32)
        fsdp_scope_error(s, op, "norms is %s, not float32", fsdp_dtype_name(norms->dtype));
    return fsdp_scope_ok(s) &&
           fsdp_check_same_shape(s, op, magnitudes, "magnitudes", norms, "norms") &&
           (!bias || fsdp_check_same_shape(s, op, magnitudes, "magnitudes", bias, "bias"));
}

fsdp_tensor *fsdp_scale_to_magnitudes(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *magnitudes,
                                      fsdp_tensor *norms, fsdp_tensor *bias)
{
    if (!check_magnitudes(s, x, magnitudes, norms, bias))
        return NULL;
    const int64_t width = fsdp_last_dim(x);
    fsdp_tensor *y = fsdp_new(s, x->dtype, x->ndim, x->shape);
    fsdp_tensor *factors = fsdp_new(s, FSDP_DTYPE_F32, 2, (const int64_t[]){2, width});
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    if (k) {
        float *factor = fsdp_tensor_ptr(factors);
        k->magnitude_factors(fsdp_scope_context(s), factor, factor + width,
                             fsdp_tensor_ptr(magnitudes), magnitudes->dtype, fsdp_tensor_ptr(norms),
                             width);
        k->scale_columns(fsdp_scope_context(s), fsdp_tensor_ptr(y), fsdp_tensor_ptr(x), x->dtype,
                         factor, bias ? fsdp_tensor_ptr(bias) : NULL, fsdp_leading_rows(x), width);
    }
    fsdp_record(s,
                &(fsdp_record_args){.op = &magnitudes_op,
                                    .in = {x, magnitudes, bias},
                                    .n_in = 3,
                                    .saved = {fsdp_needs_grad(s, magnitudes) ? x : NULL, factors},
                                    .n_saved = N_SAVED,
                                    .out = {y},
                                    .n_out = 1});
    fsdp_drop(s, factors);
    return fsdp_scope_ok(s) ? y : NULL;
}
