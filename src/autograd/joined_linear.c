/* See joined_linear.h. */
#include "src/autograd/joined_linear.h"

#include "src/autograd/checkpoint.h"
#include "src/autograd/linear.h"

enum {
    IN_X,
    IN_W,        /* the first weight; the other weights follow, and then the biases */
    SAVED_X = 0, /* set only if a weight needs a gradient */
    SAVED_W      /* the weights; set only if x needs a gradient */
};

typedef struct joined_options {
    int64_t rows, in_features, features; /* features: the output features of one layer */
    fsdp_dtype dtype;
    int n;
    bool has_bias;
} joined_options;

/* --- columns --- */

bool fsdp_are_joined_columns(fsdp_tensor *const *t, int n)
{
    for (int i = 0; i < n; i++) {
        if (!t[i] || t[i]->ndim != 2 || t[i]->dtype != t[0]->dtype ||
            t[i]->storage != t[0]->storage || t[i]->shape[0] != t[0]->shape[0] ||
            t[i]->shape[1] != t[0]->shape[1] || t[i]->stride[1] != 1 ||
            t[i]->stride[0] != n * t[0]->shape[1] ||
            t[i]->offset != t[0]->offset + i * t[0]->shape[1])
            return false;
    }
    return true;
}

static fsdp_tensor *column(fsdp_scope *s, const fsdp_tensor *all, int i, int n)
{
    const int64_t width = all->shape[1] / n, shape[] = {all->shape[0], width};
    fsdp_tensor *t = NULL;
    if (!fsdp_scope_check(
            s, fsdp_tensor_over(all->storage, all->dtype, 2, shape, all->offset + i * width, &t)))
        return NULL;
    t->stride[0] = all->shape[1];
    return fsdp_scope_own(s, t);
}

void fsdp_new_columns(fsdp_scope *s, fsdp_dtype dtype, const int64_t shape[2], int n, bool joined,
                      fsdp_tensor **out)
{
    fsdp_tensor *all =
        joined ? fsdp_new(s, dtype, 2, (const int64_t[]){shape[0], n * shape[1]}) : NULL;
    for (int i = 0; i < n; i++)
        out[i] = !joined ? fsdp_new(s, dtype, 2, shape) : all ? column(s, all, i, n) : NULL;
    if (all)
        fsdp_drop(s, all);
}

/* --- backward --- */

static void multiply(fsdp_scope *s, const fsdp_gemm_args *args)
{
    fsdp_scope_check(s, fsdp_scope_kernels(s)->gemm(fsdp_scope_context(s), args));
}

/* Return n gradients [rows, width] as one matrix [rows, n * width]. Usually attention has already
 * written them as columns of one matrix; otherwise copy them to a new one. If nothing has read
 * result i, grad_out[i] is NULL, and gradient i is 0. */
static fsdp_tensor *joined(fsdp_scope *s, fsdp_tensor *const *grad_out, int n, int64_t rows,
                           int64_t width, fsdp_dtype dtype)
{
    const void *parts[FSDP_MAX_JOINED] = {NULL};
    const int64_t shape[] = {rows, n * width};
    fsdp_tensor *all = NULL;
    if (fsdp_are_joined_columns(grad_out, n)) {
        if (!fsdp_scope_check(s, fsdp_tensor_over(grad_out[0]->storage, dtype, 2, shape,
                                                  grad_out[0]->offset, &all)))
            return NULL;
        return fsdp_scope_own(s, all);
    }
    all = fsdp_new(s, dtype, 2, shape);
    for (int i = 0; i < n; i++) {
        if (grad_out[i] && !fsdp_check_inputs(s, "joined_linear", &grad_out[i], 1))
            return NULL;
        parts[i] = grad_out[i] ? fsdp_tensor_ptr(grad_out[i]) : NULL;
    }
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    if (k)
        k->join_columns(fsdp_scope_context(s), fsdp_tensor_ptr(all), parts, n, rows,
                        (size_t)width * fsdp_dtype_size(dtype));
    return all;
}

static fsdp_tensor *joined_gradient(fsdp_scope *s, const joined_options *o,
                                    fsdp_tensor *const *grad_out)
{
    return joined(s, grad_out, o->n, o->rows, o->features, o->dtype);
}

static char *column_ptr(const fsdp_tensor *t, int64_t first)
{
    return (char *)fsdp_tensor_ptr(t) + (size_t)first * fsdp_dtype_size(t->dtype);
}

/* Return true if each of the n gradients begins directly after the end of the previous one, so that
 * one product can write them all. */
static bool are_neighbors(const fsdp_grad_destination *d, int n)
{
    for (int i = 1; i < n; i++) {
        const fsdp_tensor *a = d[i - 1].tensor, *b = d[i].tensor;
        if (b->storage != a->storage || b->dtype != a->dtype || d[i].beta != d[0].beta ||
            b->offset != a->offset + fsdp_tensor_numel(a))
            return false;
    }
    return true;
}

/* Compute the gradients dw[first] to dw[first + n - 1] by one product, dy^T x. */
static void weight_gradients(fsdp_scope *s, const joined_options *o, const fsdp_tensor *dy,
                             const fsdp_tensor *x, const fsdp_grad_destination *dw, int first,
                             int n)
{
    multiply(s, &(fsdp_gemm_args){.m = n * o->features,
                                  .n = o->in_features,
                                  .k = o->rows,
                                  .a = column_ptr(dy, first * o->features),
                                  .lda = o->n * o->features,
                                  .trans_a = true,
                                  .b = fsdp_tensor_ptr(x),
                                  .ldb = o->in_features,
                                  .c = fsdp_tensor_ptr(dw[first].tensor),
                                  .ldc = o->in_features,
                                  .ab_dtype = o->dtype,
                                  .c_dtype = dw[first].tensor->dtype,
                                  .beta = dw[first].beta});
}

/* Request that the owner of the targets places the gradients of inputs [first, first + n) directly
 * one after another (fsdp_grad_sink.n_joined). */
static void announce_joined(const fsdp_node *node, int first, int n)
{
    const fsdp_tensor *leaf = node->in[first].leaf;
    if (leaf && leaf->sink)
        leaf->sink->n_joined = n;
}

/* Compute the gradients of the biases, which are the column sums of dy. If these gradients are not
 * adjacent in memory, the sums are first written to a temporary tensor. */
static void bias_gradients(fsdp_scope *s, const fsdp_node *n, const joined_options *o,
                           const fsdp_tensor *dy, fsdp_tensor **grad_in)
{
    fsdp_grad_destination db[FSDP_MAX_JOINED];
    const int64_t all = o->n * o->features;
    announce_joined(n, IN_W + o->n, o->n);
    for (int i = 0; i < o->n; i++)
        db[i] =
            fsdp_input_grad_destination(s, n, IN_W + o->n + i, o->dtype, 1, &o->features, grad_in);
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    fsdp_kernel_context *c = k ? fsdp_scope_context(s) : NULL;
    if (k && are_neighbors(db, o->n)) {
        k->column_sum(c, fsdp_tensor_ptr(db[0].tensor), db[0].tensor->dtype, db[0].beta,
                      fsdp_tensor_ptr(dy), o->dtype, o->rows, all);
        return;
    }
    fsdp_tensor *sums = fsdp_new(s, FSDP_DTYPE_F32, 1, &all);
    if (!(k = fsdp_scope_kernels(s)))
        return;
    k->column_sum(c, fsdp_tensor_ptr(sums), FSDP_DTYPE_F32, 0.0f, fsdp_tensor_ptr(dy), o->dtype,
                  o->rows, all);
    for (int i = 0; i < o->n; i++)
        k->column_sum(c, fsdp_tensor_ptr(db[i].tensor), db[i].tensor->dtype, db[i].beta,
                      column_ptr(sums, i * o->features), FSDP_DTYPE_F32, 1, o->features);
}

static void joined_backward_first(fsdp_scope *s, const fsdp_node *n, fsdp_tensor *const *grad_out,
                                  fsdp_tensor **grad_in)
{
    const joined_options *o = (const joined_options *)n->options;
    fsdp_grad_destination dw[FSDP_MAX_JOINED];
    const bool needs_bias = o->has_bias && fsdp_node_needs(n, IN_W + o->n);
    if (!fsdp_node_needs(n, IN_W) && !needs_bias)
        return;
    const fsdp_tensor *dy = joined_gradient(s, o, grad_out);
    if (fsdp_node_needs(n, IN_W)) {
        announce_joined(n, IN_W, o->n);
        fsdp_scope_count_product(s, o->n * o->features, o->in_features, o->rows);
        for (int i = 0; i < o->n; i++)
            dw[i] = fsdp_input_grad_destination(s, n, IN_W + i, o->dtype, 2,
                                                (const int64_t[]){o->features, o->in_features},
                                                grad_in);
        const bool joined = fsdp_scope_ok(s) && are_neighbors(dw, o->n);
        for (int i = 0; i < (joined ? 1 : o->n) && fsdp_scope_kernels(s); i++)
            weight_gradients(s, o, dy, n->saved[SAVED_X], dw, i, joined ? o->n : 1);
    }
    if (needs_bias && fsdp_scope_ok(s))
        bias_gradients(s, n, o, dy, grad_in);
}

static void joined_backward(fsdp_scope *s, const fsdp_node *n, fsdp_tensor *const *grad_out,
                            fsdp_tensor **grad_in)
{
    const joined_options *o = (const joined_options *)n->options;
    if (!fsdp_node_needs(n, IN_X) || !fsdp_check_inputs(s, n->op->name, &n->saved[SAVED_W], o->n))
        return;
    const fsdp_tensor *dy = joined_gradient(s, o, grad_out);
    grad_in[IN_X] = fsdp_new(s, o->dtype, 2, (const int64_t[]){o->rows, o->in_features});
    fsdp_scope_count_product(s, o->rows, o->in_features, o->n * o->features);
    if (fsdp_scope_kernels(s))
        multiply(s, &(fsdp_gemm_args){.m = o->rows,
                                      .n = o->in_features,
                                      .k = o->n * o->features,
                                      .a = fsdp_tensor_ptr(dy),
                                      .lda = o->n * o->features,
                                      .b = fsdp_tensor_ptr(n->saved[SAVED_W]),
                                      .ldb = o->in_features,
                                      .c = fsdp_tensor_ptr(grad_in[IN_X]),
                                      .ldc = o->in_features,
                                      .ab_dtype = o->dtype,
                                      .c_dtype = o->dtype});
}

static const fsdp_op joined_op = {.name = "joined_linear",
                                  .kind = FSDP_OP_MATMUL,
                                  .backward_first = joined_backward_first,
                                  .backward = joined_backward};

/* --- forward --- */

/* Return true if the n tensors are adjacent in memory, so that they can be read as one tensor, and
 * if either all or none of them need a gradient. */
static bool are_one(const fsdp_scope *s, fsdp_tensor *const *t, int n)
{
    for (int i = 1; i < n; i++)
        if (t[i]->storage != t[0]->storage || t[i]->dtype != t[0]->dtype ||
            t[i]->ndim != t[0]->ndim || t[i]->shape[0] != t[0]->shape[0] ||
            t[i]->shape[t[i]->ndim - 1] != t[0]->shape[t[0]->ndim - 1] ||
            t[i]->offset != t[i - 1]->offset + fsdp_tensor_numel(t[i - 1]) ||
            fsdp_needs_grad(s, t[i]) != fsdp_needs_grad(s, t[0]))
            return false;
    return true;
}

static bool can_join(const fsdp_scope *s, const fsdp_tensor *x, fsdp_tensor *const *w,
                     fsdp_tensor *const *bias, int n)
{
    return s->run->device->traits->joins_products && n > 1 && x->ndim == 2 && x->shape[0] > 0 &&
           are_one(s, w, n) && (!bias || are_one(s, bias, n));
}

static bool check_all(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *const *w,
                      fsdp_tensor *const *bias, int n)
{
    static const char *const names[] = {"x", "w", "bias"};
    fsdp_linear_shape shape;
    for (int i = 0; i < n; i++)
        if (!fsdp_check_floats(s, joined_op.name,
                               (fsdp_tensor *const[]){x, w[i], bias ? bias[i] : NULL}, names,
                               bias ? 3 : 2) ||
            !fsdp_linear_check(s, joined_op.name, x, w[i], bias ? bias[i] : NULL, false, &shape))
            return false;
    return true;
}

static void record(fsdp_scope *s, const joined_options *o, fsdp_tensor *x, fsdp_tensor *const *w,
                   fsdp_tensor *const *bias, fsdp_tensor *const *out)
{
    fsdp_record_args args = {.op = &joined_op,
                             .in = {x},
                             .n_in = 1 + o->n * (bias ? 2 : 1),
                             .saved = {fsdp_needs_grad(s, w[0]) ? x : NULL},
                             .n_saved = 1 + o->n,
                             .n_out = o->n,
                             .options = o,
                             .options_bytes = sizeof *o};
    for (int i = 0; i < o->n; i++) {
        args.in[IN_W + i] = w[i];
        if (bias)
            args.in[IN_W + o->n + i] = bias[i];
        args.saved[SAVED_W + i] = fsdp_needs_grad(s, x) ? w[i] : NULL;
        args.out[i] = out[i];
    }
    fsdp_record(s, &args);
}

static void compute_joined(fsdp_scope *s, const joined_options *o, const fsdp_tensor *x,
                           const fsdp_tensor *w, const fsdp_tensor *bias, fsdp_tensor **out)
{
    fsdp_new_columns(s, o->dtype, (const int64_t[]){o->rows, o->features}, o->n, true, out);
    fsdp_scope_count_product(s, o->rows, o->n * o->features, o->in_features);
    if (fsdp_scope_kernels(s))
        multiply(s, &(fsdp_gemm_args){.m = o->rows,
                                      .n = o->n * o->features,
                                      .k = o->in_features,
                                      .a = fsdp_tensor_ptr(x),
                                      .lda = o->in_features,
                                      .b = fsdp_tensor_ptr(w),
                                      .ldb = o->in_features,
                                      .trans_b = true,
                                      .c = fsdp_tensor_ptr(out[0]),
                                      .ldc = o->n * o->features,
                                      .bias = bias ? fsdp_tensor_ptr(bias) : NULL,
                                      .ab_dtype = o->dtype,
                                      .c_dtype = o->dtype});
}

void fsdp_joined_linear(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *const *w,
                        fsdp_tensor *const *bias, int n, fsdp_tensor **out)
{
    for (int i = 0; i < n; i++)
        out[i] = NULL;
    if (!check_all(s, x, w, bias, n))
        return;
    if (!can_join(s, x, w, bias, n)) {
        for (int i = 0; i < n; i++)
            out[i] = fsdp_linear(s, x, w[i], bias ? bias[i] : NULL);
        return;
    }
    const joined_options o = {.rows = x->shape[0],
                              .in_features = x->shape[1],
                              .features = w[0]->shape[0],
                              .dtype = x->dtype,
                              .n = n,
                              .has_bias = bias != NULL};
    if (!fsdp_selective_reuse(s, &joined_op, out, n))
        compute_joined(s, &o, x, w[0], bias ? bias[0] : NULL, out);
    if (!fsdp_scope_ok(s))
        return;
    fsdp_selective_save(s, &joined_op, out, n);
    record(s, &o, x, w, bias, out);
}

/* --- columns of a matrix --- */

static void split_backward(fsdp_scope *s, const fsdp_node *n, fsdp_tensor *const *grad_out,
                           fsdp_tensor **grad_in)
{
    const joined_options *o = (const joined_options *)n->options;
    grad_in[0] = joined_gradient(s, o, grad_out);
}

static const fsdp_op split_op = {.name = "split_columns", .backward = split_backward};

void fsdp_split_columns(fsdp_scope *s, fsdp_tensor *x, int n, fsdp_tensor **out)
{
    if (!fsdp_scope_ok(s) || x->ndim != 2 || n < 1 || x->shape[1] % n || x->shape[0] == 0 ||
        !s->run->device->traits->joins_products) {
        fsdp_chunk(s, x, n, out);
        return;
    }
    const joined_options o = {
        .rows = x->shape[0], .features = x->shape[1] / n, .dtype = x->dtype, .n = n};
    fsdp_record_args args = {.op = &split_op,
                             .in = {x},
                             .n_in = 1,
                             .n_out = n,
                             .options = &o,
                             .options_bytes = sizeof o};
    for (int i = 0; i < n; i++)
        out[i] = args.out[i] = column(s, x, i, n);
    fsdp_record(s, &args);
    for (int i = 0; i < n && !fsdp_scope_ok(s); i++)
        out[i] = NULL;
}
