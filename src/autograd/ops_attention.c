/* Attention over packed sequences. The kernels work on one sequence and one head at a time, so the
 * scores of all heads are never in memory together. For backward, the operation keeps q, k, v, the
 * result, and one log-sum-exp per row and head (Dao et al. 2022, arXiv 2205.14135, section 3.1).
 * Legend: Tq rows of q, Tk rows of k and v, H query heads, K head width. */
#include <math.h>
#include <string.h>

#include "src/autograd/checkpoint.h"
#include "src/autograd/joined_linear.h"
#include "src/autograd/ops.h"
#include "src/base/alloc.h"

enum {
    IN_Q,
    IN_K,
    IN_V,
    IN_BIAS
};
enum {
    SAVED_Q,
    SAVED_K,
    SAVED_V,
    SAVED_OUT,
    SAVED_LSE,
    SAVED_BIAS /* NULL if there is no bias */
};

typedef struct attention_options {
    /* The caller's options, with defaults filled in. In the options of a node, the pointers to
     * offsets point into the node's `host` memory. */
    fsdp_attention_options user;
    int64_t head_dim;
    uint64_t dropout_key;
} attention_options;

/* Return the kernel arguments that forward and backward have in common. */
static fsdp_attention_args kernel_args(const attention_options *o, const fsdp_tensor *q,
                                       const fsdp_tensor *k, const fsdp_tensor *v,
                                       const fsdp_tensor *bias, const fsdp_tensor *out,
                                       const fsdp_tensor *lse)
{
    return (fsdp_attention_args){.dtype = q->dtype,
                                 .n_sequences = o->user.n_sequences,
                                 .heads = o->user.heads,
                                 .kv_heads = o->user.kv_heads,
                                 .head_dim = o->head_dim,
                                 .q_offsets = o->user.q_offsets,
                                 .k_offsets = o->user.kv_offsets,
                                 .k_ends = o->user.kv_ends,
                                 .q = fsdp_tensor_ptr(q),
                                 .k = fsdp_tensor_ptr(k),
                                 .v = fsdp_tensor_ptr(v),
                                 .q_ld = q->stride[0],
                                 .k_ld = k->stride[0],
                                 .v_ld = v->stride[0],
                                 .scale = o->user.scale,
                                 .causal = o->user.causal,
                                 .window = o->user.window,
                                 .position_bias = bias ? fsdp_tensor_ptr(bias) : NULL,
                                 .bias_span = bias ? (bias->shape[1] + 1) / 2 : 0,
                                 .dropout_p = o->user.dropout_p,
                                 .dropout_key = o->dropout_key,
                                 .out = fsdp_tensor_ptr(out),
                                 .lse = fsdp_tensor_ptr(lse)};
}

/* For one head of sequence b, return the number of pairs of a query and a key that the query sees.
 */
static double pairs_of_sequence(const fsdp_attention_options *o, int64_t b)
{
    const int64_t queries = o->q_offsets[b + 1] - o->q_offsets[b];
    const int32_t *ends = o->kv_ends ? o->kv_ends : o->kv_offsets + 1;
    const int64_t keys = ends[b] - o->kv_offsets[b], shift = o->causal ? keys - queries : 0;
    double pairs = 0.0;
    for (int64_t i = 0; i < queries; i++) {
        const int64_t first = o->window > 0 ? i + shift - o->window + 1 : 0;
        const int64_t begin = first > 0 ? first : 0, end = o->causal ? i + shift + 1 : keys;
        pairs += end > begin ? (double)(end - begin) : 0.0;
    }
    return pairs;
}

/* Count n matrix products of attention, each of 2 x pairs x head_dim floating-point operations per
 * head. If the kernel computes a product a second time, the second time is not counted. */
static void count_products(const fsdp_scope *s, const attention_options *o, int n)
{
    double pairs = 0.0;
    for (int64_t b = 0; !s->run->device->kernels && b < o->user.n_sequences; b++)
        pairs += pairs_of_sequence(&o->user, b);
    fsdp_scope_count_product(s, (int64_t)pairs, o->user.heads * o->head_dim, n);
}

/* Create the tensors for the gradients of q, k and v; the kernel writes all three. If q, k and v
 * are adjacent column blocks of one tensor, the gradients are adjacent column blocks, too (Note
 * [Joined products] in joined_linear.h). */
static void new_gradients(fsdp_scope *s, const fsdp_node *n, fsdp_tensor *d[3])
{
    fsdp_tensor *const *qkv = n->saved;
    const fsdp_dtype dtype = qkv[0]->dtype;
    const bool all_joined = fsdp_are_joined_columns(qkv, 3);
    if (all_joined) {
        fsdp_new_columns(s, dtype, qkv[0]->shape, 3, true, d);
        return;
    }
    fsdp_new_columns(s, dtype, qkv[0]->shape, 1, false, d);
    fsdp_new_columns(s, dtype, qkv[1]->shape, 2, fsdp_are_joined_columns(qkv + 1, 2), d + 1);
}

static void attention_backward(fsdp_scope *s, const fsdp_node *n, fsdp_tensor *const *grad_out,
                               fsdp_tensor **grad_in)
{
    const attention_options *o = (const attention_options *)n->options;
    const fsdp_tensor *bias = n->saved[SAVED_BIAS];
    if (!fsdp_check_rows(s, "attention", n->saved, 3) ||
        !fsdp_check_inputs(s, "attention", n->saved + SAVED_OUT, bias ? 3 : 2))
        return;
    /* The kernel always writes the gradients of q, k and v. The scope releases the gradients that
     * are not needed. */
    fsdp_tensor *d[3];
    new_gradients(s, n, d);
    fsdp_tensor *d_bias = bias ? fsdp_input_grad_like(s, n, IN_BIAS, bias, grad_in) : NULL;
    count_products(s, o, 4); /* the products for dp, dv, dq and dk */
    const fsdp_kernels *kernels = fsdp_scope_kernels(s);
    if (kernels) {
        fsdp_attention_args args =
            kernel_args(o, n->saved[SAVED_Q], n->saved[SAVED_K], n->saved[SAVED_V], bias,
                        n->saved[SAVED_OUT], n->saved[SAVED_LSE]);
        args.d_out = fsdp_tensor_ptr(grad_out[0]);
        args.d_q = fsdp_tensor_ptr(d[0]);
        args.d_k = fsdp_tensor_ptr(d[1]);
        args.d_v = fsdp_tensor_ptr(d[2]);
        args.d_q_ld = d[0]->stride[0];
        args.d_k_ld = d[1]->stride[0];
        args.d_v_ld = d[2]->stride[0];
        args.d_position_bias = d_bias ? fsdp_tensor_ptr(d_bias) : NULL;
        fsdp_scope_check(s, kernels->attention_backward(fsdp_scope_context(s), &args));
    }
    for (int i = 0; i < 3; i++)
        grad_in[i] = d[i];
}

static const fsdp_op attention_op = {
    .name = "attention", .kind = FSDP_OP_ATTENTION, .backward = attention_backward};

static bool check_shapes(fsdp_scope *s, const attention_options *o, const fsdp_tensor *q,
                         const fsdp_tensor *k, const fsdp_tensor *v)
{
    char q_text[FSDP_SHAPE_TEXT], k_text[FSDP_SHAPE_TEXT], v_text[FSDP_SHAPE_TEXT];
    const int64_t heads = o->user.heads, kv_heads = o->user.kv_heads;
    if (heads < 1 || kv_heads < 1 || heads % kv_heads != 0) {
        fsdp_scope_error(s, "attention", "%lld heads cannot share %lld key/value heads",
                         (long long)heads, (long long)kv_heads);
        return false;
    }
    bool flat = q->ndim == 2 && k->ndim == 2 && v->ndim == 2;
    if (!flat || q->shape[1] % heads != 0 || k->shape[1] % kv_heads != 0 ||
        q->shape[1] / heads != k->shape[1] / kv_heads || k->shape[0] != v->shape[0] ||
        k->shape[1] != v->shape[1]) {
        fsdp_scope_error(
            s, "attention", "q is %s, k %s and v %s, not [Tq, %lld * K], [Tk, %lld * K] twice",
            fsdp_shape_text(q->ndim, q->shape, q_text), fsdp_shape_text(k->ndim, k->shape, k_text),
            fsdp_shape_text(v->ndim, v->shape, v_text), (long long)heads, (long long)kv_heads);
        return false;
    }
    return true;
}

/* Check that every row belongs to a sequence. In a row that belongs to no sequence, the result
 * would be uninitialized memory. */
static bool check_offsets(fsdp_scope *s, const char *name, const int32_t *offsets,
                          int64_t n_sequences, int64_t rows)
{
    if (!offsets || n_sequences < 0) {
        fsdp_scope_error(s, "attention", "%s of %lld sequences are missing", name,
                         (long long)n_sequences);
        return false;
    }
    for (int64_t b = 0; b < n_sequences; b++) {
        if (offsets[b + 1] >= offsets[b])
            continue;
        fsdp_scope_error(s, "attention", "%s fall from %d to %d at sequence %lld", name,
                         (int)offsets[b], (int)offsets[b + 1], (long long)b);
        return false;
    }
    if (offsets[0] != 0 || offsets[n_sequences] != rows) {
        fsdp_scope_error(s, "attention", "%s go from %d to %d, not from 0 to %lld rows", name,
                         (int)offsets[0], (int)offsets[n_sequences], (long long)rows);
        return false;
    }
    return true;
}

/* Check kv_ends. Unused rows after the rows of a sequence are allowed only if no gradients are
 * computed, because backward must write every row. */
static bool check_ends(fsdp_scope *s, const fsdp_attention_options *o,
                       const fsdp_tensor *const in[4])
{
    for (int64_t b = 0; b < o->n_sequences; b++) {
        if (o->kv_ends[b] >= o->kv_offsets[b] && o->kv_ends[b] <= o->kv_offsets[b + 1])
            continue;
        fsdp_scope_error(s, "attention", "kv_ends: sequence %lld ends at row %d, not from %d to %d",
                         (long long)b, (int)o->kv_ends[b], (int)o->kv_offsets[b],
                         (int)o->kv_offsets[b + 1]);
        return false;
    }
    for (int i = 0; i < 4; i++)
        if (fsdp_needs_grad(s, in[i])) {
            fsdp_scope_error(s, "attention", "kv_ends is for a forward without gradients");
            return false;
        }
    return true;
}

/* Check that the bias has a column for every distance within a sequence. */
static bool check_bias(fsdp_scope *s, const attention_options *o, const fsdp_tensor *bias)
{
    char text[FSDP_SHAPE_TEXT];
    if (bias->dtype != FSDP_DTYPE_F32 || bias->ndim != 2 || bias->shape[0] != o->user.heads ||
        bias->shape[1] % 2 == 0) {
        fsdp_scope_error(s, "attention",
                         "position_bias is %s of %s, not [%lld, 2 * span - 1] of float32",
                         fsdp_shape_text(bias->ndim, bias->shape, text),
                         fsdp_dtype_name(bias->dtype), (long long)o->user.heads);
        return false;
    }
    int64_t longest = 0, at = 0;
    for (int64_t b = 0; b < o->user.n_sequences; b++) {
        int64_t queries = o->user.q_offsets[b + 1] - o->user.q_offsets[b];
        const int32_t *ends = o->user.kv_ends ? o->user.kv_ends : o->user.kv_offsets + 1;
        int64_t keys = ends[b] - o->user.kv_offsets[b];
        int64_t length = queries && keys ? (queries > keys ? queries : keys) : 0;
        if (length > longest) {
            longest = length;
            at = b;
        }
    }
    int64_t span = (bias->shape[1] + 1) / 2;
    if (longest <= span)
        return true;
    fsdp_scope_error(s, "attention",
                     "position_bias spans distances below %lld, but sequence %lld, the longest, "
                     "has %lld rows",
                     (long long)span, (long long)at, (long long)longest);
    return false;
}

static bool check_all(fsdp_scope *s, attention_options *o, fsdp_tensor *q, fsdp_tensor *k,
                      fsdp_tensor *v, fsdp_tensor *bias)
{
    static const char *const names[] = {"q", "k", "v"};
    if (!fsdp_check_float_rows(s, "attention", (fsdp_tensor *const[]){q, k, v}, names, 3) ||
        (bias && !fsdp_check_inputs(s, "attention", &bias, 1)) || !check_shapes(s, o, q, k, v) ||
        !check_offsets(s, "q_offsets", o->user.q_offsets, o->user.n_sequences, q->shape[0]) ||
        !check_offsets(s, "kv_offsets", o->user.kv_offsets, o->user.n_sequences, k->shape[0]) ||
        (o->user.kv_ends &&
         !check_ends(s, &o->user, (const fsdp_tensor *const[]){q, k, v, bias})) ||
        (bias && !check_bias(s, o, bias)))
        return false;
    if (!(o->user.dropout_p >= 0.0f && o->user.dropout_p < 1.0f)) {
        fsdp_scope_error(s, "attention", "dropout_p is %g, not in [0, 1)",
                         (double)o->user.dropout_p);
        return false;
    }
    return true;
}

static attention_options with_defaults(const fsdp_attention_options *options)
{
    attention_options o = {.user = *options};
    if (!o.user.kv_heads)
        o.user.kv_heads = o.user.heads;
    if (!o.user.kv_offsets)
        o.user.kv_offsets = o.user.q_offsets;
    return o;
}

/* Compute two results: the output, and the log-sum-exp of each row's scores, which only backward
 * needs. */
static void compute_attention(fsdp_scope *s, const attention_options *o, fsdp_tensor *q,
                              fsdp_tensor *k, fsdp_tensor *v, fsdp_tensor *position_bias,
                              fsdp_tensor *results[2])
{
    results[0] = fsdp_new(s, q->dtype, 2, q->shape);
    results[1] = fsdp_new(s, FSDP_DTYPE_F32, 2, (const int64_t[]){o->user.heads, q->shape[0]});
    count_products(s, o, 2); /* the products q k^T and p v */
    const fsdp_kernels *kernels = fsdp_scope_kernels(s);
    if (!kernels)
        return;
    fsdp_attention_args args = kernel_args(o, q, k, v, position_bias, results[0], results[1]);
    fsdp_scope_check(s, kernels->attention(fsdp_scope_context(s), &args));
}

/* Copy the offsets that backward reads into one block of memory, and let `o` point to the
 * copies. */
static int32_t *keep_offsets(fsdp_scope *s, attention_options *o)
{
    const size_t n = (size_t)o->user.n_sequences + 1;
    int32_t *copy = fsdp_calloc(2 * n, sizeof *copy);
    if (!copy) {
        fsdp_scope_fail(s, FSDP_ERR_NOMEM);
        return NULL;
    }
    memcpy(copy, o->user.q_offsets, n * sizeof *copy);
    memcpy(copy + n, o->user.kv_offsets, n * sizeof *copy);
    o->user.q_offsets = copy;
    o->user.kv_offsets = copy + n;
    return copy;
}

fsdp_tensor *fsdp_attention(fsdp_scope *s, fsdp_tensor *q, fsdp_tensor *k, fsdp_tensor *v,
                            fsdp_tensor *position_bias, const fsdp_attention_options *options)
{
    attention_options o = with_defaults(options);
    if (!check_all(s, &o, q, k, v, position_bias))
        return NULL;
    o.head_dim = q->shape[1] / o.user.heads;
    if (o.user.scale == 0.0f)
        o.user.scale = (float)(1.0 / sqrt((double)(o.head_dim ? o.head_dim : 1)));
    if (!s->run->options.training)
        o.user.dropout_p = 0.0f;
    if (o.user.dropout_p > 0.0f)
        o.dropout_key = fsdp_scope_next_key(s);
    fsdp_tensor *results[2] = {NULL, NULL};
    if (!fsdp_selective_reuse(s, &attention_op, results, 2))
        compute_attention(s, &o, q, k, v, position_bias, results);
    fsdp_selective_save(s, &attention_op, results, 2);
    fsdp_tensor *out = results[0], *lse = results[1];
    int32_t *offsets = s->run->tape ? keep_offsets(s, &o) : NULL;
    fsdp_record(s, &(fsdp_record_args){.op = &attention_op,
                                       .in = {q, k, v, position_bias},
                                       .n_in = 4,
                                       .saved = {q, k, v, out, lse, position_bias},
                                       .n_saved = 6,
                                       .out = {out},
                                       .n_out = 1,
                                       .options = &o,
                                       .options_bytes = sizeof o,
                                       .host = offsets});
    fsdp_drop(s, lse);
    return fsdp_scope_ok(s) ? out : NULL;
}
