/* Backward attention: the entry point, and the computation in blocks (Note [Attention in blocks] in
 * attention.h). */
#include <string.h>

#include "src/base/alloc.h"
#include "src/kernels/cpu/attention.h"
#include "src/kernels/cpu/attention_tiles.h"
#include "src/kernels/cpu/scratch.h"

enum {
    /* The maximum number of scores in a block of queries and keys. With this number of scores, the
     * four matrices of a block (S and dP in f32, P and dS in bf16) take 1.5 MiB together. */
    BACKWARD_SCORES = 1 << 17
};

/* The buffers for one key/value head, in the worker's scratch memory. */
typedef struct backward_panels {
    char *k, *v;
    char *q, *d_out; /* panels of one block of queries */
    char *left, *p, *d_s;
    float *d_k, *d_v; /* [panel_keys, padded_dim] */
    float *scores, *d_p, *d_q, *bias_strip, *d_bias_strip, *delta;
} backward_panels;

static bool reserve_backward(const fsdp_cpu_attention *a, int worker, int64_t block_rows,
                             int64_t panel_keys, backward_panels *panels)
{
    size_t size = fsdp_dtype_size(a->panel_dtype), bytes = 0;
    size_t dim = (size_t)a->padded_dim, rows = (size_t)block_rows, keys = (size_t)panel_keys;
    size_t k = fsdp_scratch_part(&bytes, fsdp_attention_panel_bytes(a, panel_keys));
    size_t v = fsdp_scratch_part(&bytes, fsdp_attention_panel_bytes(a, panel_keys));
    size_t left = fsdp_scratch_part(&bytes, fsdp_attention_panel_bytes(a, block_rows));
    size_t d_k = fsdp_scratch_part(&bytes, keys * dim * sizeof(float));
    size_t d_v = fsdp_scratch_part(&bytes, keys * dim * sizeof(float));
    size_t q = fsdp_scratch_part(&bytes, fsdp_attention_panel_bytes(a, block_rows));
    size_t d_out = fsdp_scratch_part(&bytes, fsdp_attention_panel_bytes(a, block_rows));
    size_t d_q = fsdp_scratch_part(&bytes, rows * dim * sizeof(float));
    size_t scores = fsdp_scratch_part(&bytes, rows * keys * sizeof(float));
    size_t d_p = fsdp_scratch_part(&bytes, rows * keys * sizeof(float));
    size_t p = size == sizeof(float) ? scores : fsdp_scratch_part(&bytes, rows * keys * size);
    size_t d_s = size == sizeof(float) ? d_p : fsdp_scratch_part(&bytes, rows * keys * size);
    size_t strip = fsdp_scratch_part(&bytes, (rows + keys) * sizeof(float));
    size_t d_strip = fsdp_scratch_part(&bytes, (rows + keys) * sizeof(float));
    size_t delta = fsdp_scratch_part(&bytes, rows * sizeof(float));
    char *base = fsdp_kernel_scratch(a->context, worker, bytes);
    if (!base)
        return false;
    *panels = (backward_panels){.k = base + k,
                                .v = base + v,
                                .left = base + left,
                                .q = base + q,
                                .d_out = base + d_out,
                                .p = base + p,
                                .d_s = base + d_s,
                                .d_k = (float *)(void *)(base + d_k),
                                .d_v = (float *)(void *)(base + d_v),
                                .scores = (float *)(void *)(base + scores),
                                .d_p = (float *)(void *)(base + d_p),
                                .d_q = (float *)(void *)(base + d_q),
                                .bias_strip = (float *)(void *)(base + strip),
                                .d_bias_strip = (float *)(void *)(base + d_strip),
                                .delta = (float *)(void *)(base + delta)};
    return true;
}

/* Runs the five products of a block. The caller must have checked that at least one query of the
 * block sees a key. */
static fsdp_status backward_products(const fsdp_cpu_attention *a, int worker,
                                     const fsdp_attention_block *block,
                                     const backward_panels *panels, const fsdp_attention_slice *q,
                                     const fsdp_attention_slice *d_out)
{
    FSDP_TRY(
        fsdp_attention_block_scores(a, worker, block, q, panels->k, panels->left, panels->scores));
    FSDP_TRY(
        fsdp_attention_block_scores(a, worker, block, d_out, panels->v, panels->left, panels->d_p));
    a->rows->backward(block);
    fsdp_attention_pack(a, panels->d_out, block->padded_rows, d_out);
    FSDP_TRY(fsdp_attention_block_spread(a, worker, block, panels->p, panels->d_out, panels->d_v));
    fsdp_attention_pack(a, panels->q, block->padded_rows, q);
    FSDP_TRY(fsdp_attention_block_spread(a, worker, block, panels->d_s, panels->q, panels->d_k));
    return fsdp_attention_block_combine(a, worker, block, panels->d_s, panels->k, panels->d_q);
}

static fsdp_status backward_block(const fsdp_cpu_attention *a, int worker, int64_t b, int64_t h,
                                  fsdp_attention_block *block, const backward_panels *panels)
{
    const fsdp_attention_args *args = a->args;
    int64_t row = args->q_offsets[b] + block->first_query, dim = a->padded_dim;
    int64_t ld = args->heads * args->head_dim;
    int64_t first = (row * ld + h * args->head_dim) * (int64_t)fsdp_dtype_size(args->dtype);
    block->scores = panels->scores;
    block->p = panels->p;
    block->d_p = panels->d_p;
    block->d_s = panels->d_s;
    block->bias_strip = panels->bias_strip;
    block->d_bias_strip = panels->d_bias_strip;
    block->delta = panels->delta;
    if (args->d_position_bias)
        block->d_bias =
            args->d_position_bias + (h * (2 * args->bias_span - 1) + args->bias_span - 1);
    if (block->keys > 0) {
        fsdp_attention_slice q = {args->q, args->q_ld, row, h, block->rows};
        fsdp_attention_slice d_out = {args->d_out, ld, row, h, block->rows};
        a->rows->dot(panels->delta, (const char *)args->d_out + first,
                     (const char *)args->out + first, args->dtype, ld, block->rows, args->head_dim);
        FSDP_TRY(backward_products(a, worker, block, panels, &q, &d_out));
    } else {
        memset(panels->d_q, 0, (size_t)(block->rows * dim) * sizeof(float));
    }
    const int64_t to_ld = fsdp_attention_gradient_ld(args, args->d_q_ld, args->heads);
    const int64_t to = (row * to_ld + h * args->head_dim) * (int64_t)fsdp_dtype_size(args->dtype);
    a->rows->store((char *)args->d_q + to, args->dtype, to_ld, panels->d_q, dim, NULL, args->scale,
                   block->rows, args->head_dim);
    return FSDP_OK;
}

/* Stores the gradient of one key/value head in the gradient tensor `to`. It is the gradient of the
 * keys or of the values. `panel` has its sums. */
static void store_gradient(const fsdp_cpu_attention *a, void *to, int64_t ld, int64_t row,
                           int64_t kv, int64_t keys, const float *panel, float factor)
{
    const fsdp_attention_args *args = a->args;
    ld = fsdp_attention_gradient_ld(args, ld, args->kv_heads);
    const int64_t at = (row * ld + kv * args->head_dim) * (int64_t)fsdp_dtype_size(args->dtype);
    a->rows->store((char *)to + at, args->dtype, ld, panel, a->padded_dim, NULL, factor, keys,
                   args->head_dim);
}

/* Computes backward in sequence b for key/value head `kv` and for all query heads that read this
 * head. */
static fsdp_status backward_head(const fsdp_cpu_attention *a, int worker, int64_t b, int64_t kv)
{
    const fsdp_attention_args *args = a->args;
    int64_t queries = args->q_offsets[b + 1] - args->q_offsets[b];
    int64_t keys = fsdp_attention_keys(args, b), k_row = args->k_offsets[b];
    int64_t panel_keys = fsdp_attention_panel_keys(a, keys), dim = a->padded_dim;
    int64_t block_rows = fsdp_attention_block_rows(panel_keys, BACKWARD_SCORES);
    int64_t group = args->heads / args->kv_heads;
    size_t gradient_bytes = (size_t)(panel_keys * dim) * sizeof(float);
    backward_panels panels;
    if (!reserve_backward(a, worker, block_rows, panel_keys, &panels))
        return fsdp_error_nomem();
    fsdp_attention_slice k = {args->k, args->k_ld, k_row, kv, keys};
    fsdp_attention_slice v = {args->v, args->v_ld, k_row, kv, keys};
    fsdp_attention_pack(a, panels.k, panel_keys, &k);
    fsdp_attention_pack(a, panels.v, panel_keys, &v);
    memset(panels.d_k, 0, gradient_bytes);
    memset(panels.d_v, 0, gradient_bytes);
    for (int64_t h = kv * group; h < (kv + 1) * group; h++) {
        for (int64_t first = 0; first < queries; first += block_rows) {
            fsdp_attention_block block = fsdp_attention_block_at(a, b, h, first, block_rows);
            FSDP_TRY(backward_block(a, worker, b, h, &block, &panels));
        }
    }
    store_gradient(a, args->d_k, args->d_k_ld, k_row, kv, keys, panels.d_k, args->scale);
    store_gradient(a, args->d_v, args->d_v_ld, k_row, kv, keys, panels.d_v, 1.0f);
    return FSDP_OK;
}

/* Computes backward for one key/value head. Usually a task processes a single sequence. But the
 * gradient of the position bias is a sum over the sequences, whose terms must be added in a fixed
 * order. So if this gradient is computed, one task processes all sequences. */
static void backward_task(void *arg, int64_t i, int worker)
{
    fsdp_cpu_attention *a = arg;
    const fsdp_attention_args *args = a->args;
    int64_t kv = i % args->kv_heads, begin = i / args->kv_heads, end = begin + 1;
    if (args->d_position_bias) {
        int64_t group = args->heads / args->kv_heads, length = 2 * args->bias_span - 1;
        memset(args->d_position_bias + kv * group * length, 0,
               (size_t)(group * length) * sizeof(float));
        end = args->n_sequences;
    }
    for (int64_t b = begin; b < end && !fsdp_cpu_failure_any(&a->failure); b++)
        fsdp_cpu_failure_note(&a->failure, a->tiles
                                               ? fsdp_attention_tiles_backward(a, worker, b, kv)
                                               : backward_head(a, worker, b, kv));
}

fsdp_status fsdp_cpu_attention_backward(fsdp_kernel_context *c, const fsdp_attention_args *args)
{
    fsdp_cpu_attention a;
    FSDP_TRY(fsdp_cpu_attention_init(&a, c, args));
    int64_t tasks = args->kv_heads * (args->d_position_bias ? 1 : args->n_sequences);
    fsdp_parallel_for(fsdp_kernel_context_pool(c), tasks, backward_task, &a);
    return fsdp_cpu_failure_raise(&a.failure);
}
