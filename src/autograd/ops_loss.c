/* The output embedding and the loss of its logits, in one operation. It works on chunks of rows, so
 * that the logits of a whole batch are never in memory.
 *
 * Note [Loss computes its gradients in forward]. Softmax needs the logits twice: for the loss and
 * for the gradient. The logits of a chunk are not kept, and computing them twice would cost a third
 * of the operation's time. So if gradients are needed, forward computes them for each chunk as soon
 * as it has the logits. The logits x w^T are replaced by d_logits in place, and dx = d_logits w and
 * dw = d_logits^T x are kept for backward. Backward only returns dx and dw, which is correct only
 * if the gradient of the loss is 1. The gradient of a bias, the sum of the rows of d_logits, is
 * kept in the same way.
 *
 * If w is a parameter of a unit, forward adds dw directly to the unit's gradient buffer, so no
 * second buffer of the size of dw is needed. In this case, the tape's backward fails if it does not
 * reach the loss, or if the unit has dropped its gradients in the meantime. If x is not needed any
 * more, dx overwrites x. This is safe, because row i of dx is written only after the last read of
 * rows 0 to i of x.
 *
 * Legend: T rows of x, D model width, V vocabulary, R rows of a chunk, n labelled rows. */
#include <string.h>

#include "src/autograd/derived.h"
#include "src/autograd/ops.h"
#include "src/base/alloc.h"

enum {
    /* The number of rows of a chunk is rounded up to a multiple of ROW_ALIGN. GEMM primitives are
     * cached by shape, and the rounding reduces the number of different shapes. */
    ROW_ALIGN = 8
};
enum {
    IN_X,
    IN_W,
    IN_BIAS /* may be NULL */
};
enum {
    SAVED_DX, /* [n, D]; NULL if x needs no gradient */
    /* [V, D]; NULL if w needs no gradient, or if forward has added dw to a unit's gradient
     * buffer. */
    SAVED_DW,
    SAVED_DB /* [V]; NULL if there is no bias, or if it needs no gradient */
};

typedef struct loss_options {
    int64_t shape[2]; /* shape of x: [T, D] */
    int64_t n;
} loss_options;

/* The state of one call. The scope owns the buffers, which are dropped when the call ends. */
typedef struct loss_run {
    fsdp_scope *s;
    fsdp_tensor *x, *w, *bias; /* bias: NULL if there is none */
    /* rows [n]: indices of the labelled rows of x. labels [n]: the labels of these rows. Both
     * arrays are in one block of host memory. */
    int32_t *rows, *labels;
    /* n: number of labelled rows. chunk: rows of a chunk; the last chunk may have fewer. */
    int64_t n, chunk;
    float factor;                 /* factor by which the sum of the losses is multiplied */
    bool gradient;                /* d_logits are needed */
    bool in_place;                /* dx may overwrite x */
    int64_t ld;                   /* row stride of the logits, at least V */
    fsdp_tensor *logits, *losses; /* logits [chunk, ld]; losses [n] float32 */
    /* [chunk, D] the labelled rows of a chunk, copied from x. NULL if all rows are labelled; then x
     * itself is read. */
    fsdp_tensor *gathered;
    fsdp_tensor *dx, *dw; /* NULL if not needed */
    float beta;           /* beta of the next product that writes dw */
    /* db [V]: gradient of the bias; NULL if not needed. ones [chunk]: a vector of ones in the dtype
     * of x; its product with d_logits is the sum of the rows of d_logits. NULL if db is NULL. */
    fsdp_tensor *db, *ones;
    float db_beta; /* beta of the next product that writes db */
    bool wrote;    /* dw is the target of the leaf w, not a separate tensor */
} loss_run;

/* --- backward --- */

static bool gradient_is_one(fsdp_scope *s, const fsdp_tensor *grad)
{
    double value = 1.0;
    if (!fsdp_grad_scalar(s, grad, &value))
        return false;
    if (value == 1.0)
        return true;
    fsdp_scope_fail(s, fsdp_error(FSDP_ERR_UNSUPPORTED,
                                  "linear_cross_entropy: the gradient of the loss is %g, not 1: "
                                  "its own gradients were computed in forward, so scale it by "
                                  "`factor`, not afterwards",
                                  value));
    return false;
}

/* Return dw as the gradient of w. But if w is a leaf that has no gradient yet, make dw itself the
 * gradient of the leaf. */
static void hand_on_dw(const fsdp_node *n, fsdp_tensor **grad_in)
{
    fsdp_tensor *dw = n->saved[SAVED_DW], *leaf = n->in[IN_W].leaf;
    if (!dw || !leaf || !fsdp_grad_steal(leaf, dw))
        grad_in[IN_W] = dw;
}

static void loss_backward(fsdp_scope *s, const fsdp_node *n, fsdp_tensor *const *grad_out,
                          fsdp_tensor **grad_in)
{
    const loss_options *o = (const loss_options *)n->options;
    fsdp_tensor *dx = n->saved[SAVED_DX];
    if (!gradient_is_one(s, grad_out[0]))
        return;
    hand_on_dw(n, grad_in);
    grad_in[IN_BIAS] = n->saved[SAVED_DB];
    if (!dx || o->n == o->shape[0]) {
        grad_in[IN_X] = dx;
        return;
    }
    grad_in[IN_X] = fsdp_new(s, dx->dtype, 2, o->shape);
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    if (k)
        k->scatter_rows(fsdp_scope_context(s), fsdp_tensor_ptr(grad_in[IN_X]), o->shape[0],
                        fsdp_tensor_ptr(dx), n->host, o->n,
                        (size_t)o->shape[1] * fsdp_dtype_size(dx->dtype));
}

static const fsdp_op loss_op = {.name = "linear_cross_entropy",
                                .kind = FSDP_OP_MATMUL,
                                .backward = loss_backward,
                                .has_gradients = true};

/* --- one chunk --- */

static char *row_ptr(const fsdp_tensor *t, int64_t row)
{
    return (char *)fsdp_tensor_ptr(t) +
           (size_t)(row * fsdp_tensor_row_numel(t)) * fsdp_dtype_size(t->dtype);
}

static void chunk_bias_gradient(loss_run *r, const fsdp_kernels *k, int64_t rows)
{
    const fsdp_gemm_args args = {.m = 1,
                                 .n = r->w->shape[0],
                                 .k = rows,
                                 .a = fsdp_tensor_ptr(r->ones),
                                 .lda = rows,
                                 .b = fsdp_tensor_ptr(r->logits),
                                 .ldb = r->ld,
                                 .c = fsdp_tensor_ptr(r->db),
                                 .ldc = r->w->shape[0],
                                 .ab_dtype = r->x->dtype,
                                 .c_dtype = r->db->dtype,
                                 .beta = r->db_beta};
    fsdp_scope_check(r->s, k->gemm(fsdp_scope_context(r->s), &args));
    r->db_beta = 1.0f;
}

static void chunk_gradients(loss_run *r, const fsdp_kernels *k, const void *x_chunk, int64_t begin,
                            int64_t rows)
{
    const int64_t width = r->w->shape[1], vocab = r->w->shape[0];
    const fsdp_gemm_args d_logits = {.a = fsdp_tensor_ptr(r->logits),
                                     .lda = r->ld,
                                     .ldb = width,
                                     .ldc = width,
                                     .n = width,
                                     .ab_dtype = r->x->dtype};
    if (r->dw) {
        fsdp_gemm_args args = d_logits;
        args.m = vocab;
        args.k = rows;
        args.trans_a = true;
        args.b = x_chunk;
        args.c = fsdp_tensor_ptr(r->dw);
        args.c_dtype = r->dw->dtype;
        args.beta = r->beta;
        fsdp_scope_check(r->s, k->gemm(fsdp_scope_context(r->s), &args));
        r->beta = 1.0f;
    }
    if (r->dx) {
        fsdp_gemm_args args = d_logits;
        args.m = rows;
        args.k = vocab;
        args.b = fsdp_tensor_ptr(r->w);
        args.c = row_ptr(r->dx, begin);
        args.c_dtype = r->dx->dtype;
        fsdp_scope_check(r->s, k->gemm(fsdp_scope_context(r->s), &args));
    }
    if (r->db)
        chunk_bias_gradient(r, k, rows);
}

static void run_chunk(loss_run *r, const fsdp_kernels *k, int64_t begin, int64_t rows)
{
    fsdp_kernel_context *context = fsdp_scope_context(r->s);
    const int64_t width = r->w->shape[1], vocab = r->w->shape[0];
    const void *bias = r->bias ? fsdp_tensor_ptr(r->bias) : NULL;
    const void *x_chunk = r->gathered ? fsdp_tensor_ptr(r->gathered) : row_ptr(r->x, begin);
    if (r->gathered)
        k->gather_rows(context, fsdp_tensor_ptr(r->gathered), fsdp_tensor_ptr(r->x),
                       r->rows + begin, rows, (size_t)width * fsdp_dtype_size(r->x->dtype));
    if (!fsdp_scope_check(r->s, k->gemm(context, &(fsdp_gemm_args){.m = rows,
                                                                   .n = vocab,
                                                                   .k = width,
                                                                   .a = x_chunk,
                                                                   .lda = width,
                                                                   .b = fsdp_tensor_ptr(r->w),
                                                                   .ldb = width,
                                                                   .trans_b = true,
                                                                   .c = fsdp_tensor_ptr(r->logits),
                                                                   .ldc = r->ld,
                                                                   .ab_dtype = r->x->dtype,
                                                                   .c_dtype = r->logits->dtype,
                                                                   .bias = bias})))
        return;
    fsdp_run_cross_entropy(
        r->s, k,
        &(fsdp_cross_entropy_args){.losses = (float *)fsdp_tensor_ptr(r->losses) + begin,
                                   .logits = fsdp_tensor_ptr(r->logits),
                                   .dtype = r->logits->dtype,
                                   .labels = r->labels + begin,
                                   .rows = rows,
                                   .vocab = vocab,
                                   .ld = r->ld,
                                   .gradient = r->gradient,
                                   .factor = r->factor,
                                   .smoothing = r->s->run->options.label_smoothing});
    if (r->gradient)
        chunk_gradients(r, k, x_chunk, begin, rows);
}

/* --- forward --- */

static bool check_all(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *w, fsdp_tensor *bias,
                      const int32_t *labels)
{
    char x_text[FSDP_SHAPE_TEXT], w_text[FSDP_SHAPE_TEXT];
    const char *op = loss_op.name;
    if (!fsdp_check_floats(s, op, (fsdp_tensor *const[]){x, w, bias},
                           (const char *const[]){"x", "w", "bias"}, bias ? 3 : 2))
        return false;
    if (x->ndim != 2 || w->ndim != 2 || x->shape[1] != w->shape[1]) {
        fsdp_scope_error(s, op, "x is %s but w is %s, not [T, D] and [V, D]",
                         fsdp_shape_text(x->ndim, x->shape, x_text),
                         fsdp_shape_text(w->ndim, w->shape, w_text));
        return false;
    }
    if (bias && (bias->ndim != 1 || bias->shape[0] != w->shape[0])) {
        fsdp_scope_error(s, op, "w is %s but bias is %s, not [V, D] and [V]",
                         fsdp_shape_text(w->ndim, w->shape, w_text),
                         fsdp_shape_text(bias->ndim, bias->shape, x_text));
        return false;
    }
    return fsdp_check_labels(s, op, labels, x->shape[0], w->shape[0]);
}

static bool find_labelled(loss_run *r, const int32_t *labels)
{
    int64_t tokens = r->x->shape[0];
    for (int64_t t = 0; t < tokens; t++)
        r->n += labels[t] >= 0;
    r->rows = fsdp_calloc((size_t)r->n * 2, sizeof *r->rows);
    if (!r->rows) {
        fsdp_scope_fail(r->s, FSDP_ERR_NOMEM);
        return false;
    }
    r->labels = r->rows + r->n;
    for (int64_t t = 0, i = 0; t < tokens; t++)
        if (labels[t] >= 0) {
            r->rows[i] = (int32_t)t;
            r->labels[i++] = labels[t];
        }
    return true;
}

/* Return the maximum number of rows of a chunk: the number of rows whose logits take loss_bytes
 * bytes, but at least least_loss_rows and at most loss_rows (fsdp_device_traits). */
static int64_t most_rows(const fsdp_device_traits *traits, int64_t row_bytes)
{
    const int64_t rows = row_bytes ? traits->loss_bytes / row_bytes : traits->loss_rows;
    if (rows < traits->least_loss_rows)
        return traits->least_loss_rows;
    return rows < traits->loss_rows ? rows : traits->loss_rows;
}

/* Return the row stride of the logits: the size of the vocabulary, rounded up to a multiple of
 * loss_columns, because products with such strides are faster. */
static int64_t logits_ld(const fsdp_device_traits *traits, int64_t vocab)
{
    return (vocab + traits->loss_columns - 1) / traits->loss_columns * traits->loss_columns;
}

/* Return the number of rows of a chunk. The n rows are divided evenly, so that the last chunk is
 * not a small remainder. */
static int64_t chunk_rows(const fsdp_device_traits *traits, int64_t n, int64_t row_bytes)
{
    const int64_t most = most_rows(traits, row_bytes);
    if (n <= most)
        return n;
    int64_t chunks = (n + most - 1) / most;
    int64_t rows = (n + chunks - 1) / chunks;
    return (rows + ROW_ALIGN - 1) / ROW_ALIGN * ROW_ALIGN;
}

/* Create a tensor for dw. It has the dtype and shape that fsdp_grad_sink_default_target() uses for
 * the gradient of a leaf. Because of this, the tensor can itself become the gradient of the leaf,
 * and backward need not copy dw. */
static fsdp_tensor *new_leaf_gradient(fsdp_scope *s, const fsdp_tensor *w)
{
    fsdp_tensor *dw = NULL;
    if (!fsdp_scope_ok(s) ||
        !fsdp_scope_check(s, fsdp_tensor_create(s->run->device, FSDP_DTYPE_F32, w->ndim, w->shape,
                                                FSDP_TAG_GRAD, &dw)))
        return NULL;
    return fsdp_scope_own(s, dw);
}

/* Set r->dw to the tensor to which the gradient of w is written. If no row has a label, no product
 * will write to this tensor. In this case, fill it with zeros here, unless it already contains a
 * gradient (beta is 1). */
static void open_weight_gradient(loss_run *r)
{
    fsdp_scope *s = r->s;
    if (!fsdp_grad_is_leaf(s, r->w))
        r->dw = fsdp_new(s, r->w->dtype, 2, r->w->shape);
    else if (r->w->sink->target == fsdp_grad_sink_default_target)
        r->dw = new_leaf_gradient(s, r->w);
    else if (fsdp_scope_check(s, fsdp_grad_target_of_next_node(s, r->w, &r->dw, &r->beta)))
        r->wrote = true;
    else
        r->dw = NULL;
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    if (k && r->n == 0 && r->beta == 0.0f)
        k->fill(fsdp_scope_context(s), fsdp_tensor_ptr(r->dw), r->dw->dtype, 0.0,
                fsdp_tensor_numel(r->dw));
}

/* Create the tensors for the gradient of the bias. If the bias is a leaf, its gradient is float32,
 * as its target is. */
static void open_bias_gradient(loss_run *r)
{
    fsdp_scope *s = r->s;
    const fsdp_dtype dtype = fsdp_grad_is_leaf(s, r->bias) ? FSDP_DTYPE_F32 : r->bias->dtype;
    r->db = fsdp_new(s, dtype, 1, r->bias->shape);
    r->ones = fsdp_new(s, r->x->dtype, 1, &r->chunk);
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    if (!k)
        return;
    k->fill(fsdp_scope_context(s), fsdp_tensor_ptr(r->ones), r->ones->dtype, 1.0, r->chunk);
    if (r->n == 0)
        k->fill(fsdp_scope_context(s), fsdp_tensor_ptr(r->db), dtype, 0.0,
                fsdp_tensor_numel(r->db));
}

/* Return true if nothing else refers to x or to its memory. This is one of the two conditions for
 * overwriting x with dx. The other is that the caller does not need x any more (in_place). */
static bool can_share_memory(const fsdp_tensor *x)
{
    return x->refs == 1 && x->storage->refs == 1 && !x->sink && !fsdp_derived_is_wanted(x->derived);
}

static fsdp_tensor *open_input_gradient(const loss_run *r)
{
    const int64_t shape[] = {r->n, r->w->shape[1]};
    fsdp_tensor *dx = NULL;
    /* If dx uses x's memory, all of that memory stays allocated until dx is freed, even if dx is
     * smaller than x. So dx uses x's memory only if dx has more than half as many rows as x. */
    const bool is_most = 2 * r->n > r->x->shape[0];
    if (!r->in_place || !is_most || !can_share_memory(r->x))
        return fsdp_new(r->s, r->x->dtype, 2, shape);
    if (!fsdp_scope_ok(r->s) ||
        !fsdp_scope_check(
            r->s, fsdp_tensor_over(r->x->storage, r->x->dtype, 2, shape, r->x->offset, &dx)))
        return NULL;
    return fsdp_scope_own(r->s, dx);
}

static void open_buffers(loss_run *r)
{
    fsdp_scope *s = r->s;
    const int64_t width = r->w->shape[1];
    const fsdp_device_traits *traits = s->run->device->traits;
    r->ld = logits_ld(traits, r->w->shape[0]);
    r->chunk = chunk_rows(traits, r->n, r->ld * (int64_t)fsdp_dtype_size(r->x->dtype));
    if (fsdp_needs_grad(s, r->x))
        r->dx = open_input_gradient(r);
    if (fsdp_needs_grad(s, r->w))
        open_weight_gradient(r);
    if (r->bias && fsdp_needs_grad(s, r->bias))
        open_bias_gradient(r);
    r->gradient = r->dx || r->dw || r->db;
    if (r->n < r->x->shape[0])
        r->gathered = fsdp_new(s, r->x->dtype, 2, (const int64_t[]){r->chunk, width});
    r->losses = fsdp_new(s, FSDP_DTYPE_F32, 1, &r->n);
    r->logits = fsdp_new(s, r->x->dtype, 2, (const int64_t[]){r->chunk, r->ld});
}

/* Count the products that compute the logits and the gradients of w and x. */
static void count_products(const loss_run *r)
{
    const int products = 1 + (r->dw != NULL) + (r->dx != NULL);
    for (int i = 0; i < products; i++)
        fsdp_scope_count_product(r->s, r->n, r->w->shape[0], r->w->shape[1]);
}

static fsdp_tensor *head_and_loss(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *w, fsdp_tensor *bias,
                                  const int32_t *labels, float factor, bool in_place)
{
    if (!check_all(s, x, w, bias, labels))
        return NULL;
    loss_run r = {.s = s, .x = x, .w = w, .bias = bias, .factor = factor, .in_place = in_place};
    if (!find_labelled(&r, labels))
        return NULL;
    fsdp_tensor *loss = fsdp_new(s, FSDP_DTYPE_F32, 0, NULL);
    open_buffers(&r);
    count_products(&r);
    const fsdp_kernels *k;
    for (int64_t begin = 0; (k = fsdp_scope_kernels(s)) && begin < r.n; begin += r.chunk)
        run_chunk(&r, k, begin, r.n - begin < r.chunk ? r.n - begin : r.chunk);
    if ((k = fsdp_scope_kernels(s)))
        k->sum(fsdp_scope_context(s), fsdp_tensor_ptr(loss), fsdp_tensor_ptr(r.losses), r.n,
               factor);
    loss_options o = {.shape = {x->shape[0], x->shape[1]}, .n = r.n};
    fsdp_tensor *own_dw = r.wrote ? NULL : r.dw;
    fsdp_record(s, &(fsdp_record_args){.op = &loss_op,
                                       .in = {x, w, bias},
                                       .n_in = bias ? 3 : 2,
                                       .saved = {r.dx, own_dw, r.db},
                                       .n_saved = 3,
                                       .out = {loss},
                                       .n_out = 1,
                                       .options = &o,
                                       .options_bytes = sizeof o,
                                       .host = r.rows,
                                       .wrote = r.wrote ? w : NULL});
    fsdp_drop(s, r.logits);
    fsdp_drop(s, r.losses);
    fsdp_drop(s, r.gathered);
    fsdp_drop(s, r.dx);
    fsdp_drop(s, own_dw);
    fsdp_drop(s, r.db);
    fsdp_drop(s, r.ones);
    return fsdp_scope_ok(s) ? loss : NULL;
}

fsdp_tensor *fsdp_linear_cross_entropy(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *w,
                                       const int32_t *labels, float factor)
{
    return head_and_loss(s, x, w, NULL, labels, factor, false);
}

fsdp_tensor *fsdp_linear_cross_entropy_(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *w,
                                        const int32_t *labels, float factor)
{
    return head_and_loss(s, x, w, NULL, labels, factor, true);
}

fsdp_tensor *fsdp_linear_cross_entropy_bias_(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *w,
                                             fsdp_tensor *bias, const int32_t *labels, float factor)
{
    return head_and_loss(s, x, w, bias, labels, factor, true);
}
