/* Forward attention: the entry point, and the computation in blocks (Note [Attention in blocks] in
 * attention.h). Backward also calls some of these functions. */
#include "src/kernels/cpu/attention.h"

#include <string.h>

#include "src/base/alloc.h"
#include "src/kernels/cpu/attention_tiles.h"
#include "src/kernels/cpu/scratch.h"

enum {
    ROUND = 16,
    MAX_BLOCK_ROWS = 64,
    /* The maximum number of scores in a block of queries and keys. In f32, these scores take 512
     * KiB. If the probabilities P are bf16, they take another 256 KiB. */
    FORWARD_SCORES = 1 << 17
};

int64_t fsdp_attention_panel_keys(const fsdp_cpu_attention *a, int64_t keys)
{
    /* With sliding-window attention, the keys of a block may begin anywhere in the sequence. The
     * number of keys in the block is rounded up, by at most 127. So a block may extend up to 127
     * keys beyond the sequence's last key, and the panels need rows for these keys. */
    int64_t more = a->args->window > 0 ? 128 : 0;
    return fsdp_attention_padded_keys(keys) + more;
}

int64_t fsdp_attention_block_rows(int64_t panel_keys, int64_t elements)
{
    int64_t rows = MAX_BLOCK_ROWS;
    while (rows > ROUND && rows * panel_keys > elements)
        rows /= 2;
    return rows;
}

static const fsdp_cpu_attention_rows *rows_of(const fsdp_kernel_context *c)
{
    static const fsdp_cpu_attention_rows *const rows[FSDP_CPU_ISA_COUNT] = {
        &fsdp_cpu_attention_rows_x86_64, &fsdp_cpu_attention_rows_x86_64_v3,
        &fsdp_cpu_attention_rows_x86_64_v4};
    return rows[fsdp_kernel_context_isa(c)];
}

fsdp_status fsdp_cpu_attention_init(fsdp_cpu_attention *a, fsdp_kernel_context *c,
                                    const fsdp_attention_args *args)
{
    bool bf16 = args->dtype == FSDP_DTYPE_BF16 && fsdp_cpu_multiplies_bf16(c);
    const fsdp_cpu_tiles *tiles = fsdp_cpu_tiles_of(c, args->dtype);
    *a = (fsdp_cpu_attention){.args = args,
                              .context = c,
                              .tiles = tiles,
                              .panels = fsdp_cpu_panels_of(c),
                              .rows = rows_of(c),
                              .panel_dtype = bf16 ? FSDP_DTYPE_BF16 : FSDP_DTYPE_F32,
                              .padded_dim = fsdp_attention_round(args->head_dim, ROUND)};
    return tiles ? FSDP_OK : fsdp_kernel_context_products(c, &a->products);
}

fsdp_attention_block fsdp_attention_block_at(const fsdp_cpu_attention *a, int64_t b, int64_t h,
                                             int64_t first, int64_t rows)
{
    const fsdp_attention_args *args = a->args;
    int64_t queries = args->q_offsets[b + 1] - args->q_offsets[b];
    int64_t keys = fsdp_attention_keys(args, b);
    fsdp_attention_block block = {.first_query = first,
                                  .shift = args->causal ? keys - queries : 0,
                                  .sequence_keys = keys,
                                  .window = args->window,
                                  .causal = args->causal,
                                  .scale = args->scale,
                                  .bias_span = args->bias_span,
                                  .dropout_p = args->dropout_p,
                                  .dropout_key = args->dropout_key,
                                  .panel_dtype = a->panel_dtype};
    block.rows = rows < queries - first ? rows : queries - first;
    block.padded_rows = fsdp_attention_round(block.rows, ROUND);
    if (args->position_bias)
        block.bias = args->position_bias + (h * (2 * args->bias_span - 1) + args->bias_span - 1);
    int64_t row = args->q_offsets[b] + first, tokens = args->q_offsets[args->n_sequences];
    block.dropout_element = ((uint64_t)h << 40) + ((uint64_t)row << 20);
    block.lse = args->lse + h * tokens + row;
    /* The range [begin, end) of keys includes every key that at least one query of the block sees.
     * `begin` is rounded down to a multiple of 16. */
    int64_t begin = args->window > 0 ? first + block.shift - args->window + 1 : 0;
    int64_t end = args->causal ? first + block.rows + block.shift : keys;
    begin = begin > 0 ? begin & -ROUND : 0;
    end = end < keys ? end : keys;
    block.first_key = begin;
    block.keys = end > begin ? end - begin : 0;
    block.padded_keys = fsdp_attention_padded_keys(block.keys);
    return block;
}

/* --- forward --- */

/* The buffers for one head, in the worker's scratch memory. */
typedef struct forward_panels {
    char *left, *k, *v, *p;
    float *scores, *out, *bias_strip, *inverse;
} forward_panels;

static bool reserve_forward(const fsdp_cpu_attention *a, int worker, int64_t block_rows,
                            int64_t panel_keys, forward_panels *panels)
{
    size_t size = fsdp_dtype_size(a->panel_dtype), bytes = 0;
    size_t dim = (size_t)a->padded_dim, rows = (size_t)block_rows, keys = (size_t)panel_keys;
    size_t left = fsdp_scratch_part(&bytes, fsdp_attention_panel_bytes(a, block_rows));
    size_t k = fsdp_scratch_part(&bytes, fsdp_attention_panel_bytes(a, panel_keys));
    size_t v = fsdp_scratch_part(&bytes, fsdp_attention_panel_bytes(a, panel_keys));
    size_t scores = fsdp_scratch_part(&bytes, rows * keys * sizeof(float));
    size_t p = size == sizeof(float) ? scores : fsdp_scratch_part(&bytes, rows * keys * size);
    size_t out = fsdp_scratch_part(&bytes, rows * dim * sizeof(float));
    size_t strip = fsdp_scratch_part(&bytes, (rows + keys) * sizeof(float));
    size_t inverse = fsdp_scratch_part(&bytes, rows * sizeof(float));
    char *base = fsdp_kernel_scratch(a->context, worker, bytes);
    if (!base)
        return false;
    *panels = (forward_panels){.left = base + left,
                               .k = base + k,
                               .v = base + v,
                               .p = base + p,
                               .scores = (float *)(void *)(base + scores),
                               .out = (float *)(void *)(base + out),
                               .bias_strip = (float *)(void *)(base + strip),
                               .inverse = (float *)(void *)(base + inverse)};
    return true;
}

static fsdp_status forward_block(const fsdp_cpu_attention *a, int worker, int64_t b, int64_t h,
                                 fsdp_attention_block *block, const forward_panels *panels)
{
    const fsdp_attention_args *args = a->args;
    int64_t row = args->q_offsets[b] + block->first_query, dim = a->padded_dim;
    int64_t out_ld = args->heads * args->head_dim;
    block->scores = panels->scores;
    block->p = panels->p;
    block->bias_strip = panels->bias_strip;
    block->inverse = panels->inverse;
    if (block->keys > 0)
        FSDP_TRY(fsdp_attention_block_scores(
            a, worker, block, &(fsdp_attention_slice){args->q, args->q_ld, row, h, block->rows},
            panels->k, panels->left, panels->scores));
    a->rows->forward(block);
    if (block->keys > 0)
        FSDP_TRY(fsdp_attention_block_combine(a, worker, block, panels->p, panels->v, panels->out));
    else
        memset(panels->out, 0, (size_t)(block->rows * dim) * sizeof(float));
    char *out = (char *)args->out +
                (row * out_ld + h * args->head_dim) * (int64_t)fsdp_dtype_size(args->dtype);
    a->rows->store(out, args->dtype, out_ld, panels->out, dim, panels->inverse, 1.0f, block->rows,
                   args->head_dim);
    return FSDP_OK;
}

static fsdp_status forward_head(const fsdp_cpu_attention *a, int worker, int64_t b, int64_t h)
{
    const fsdp_attention_args *args = a->args;
    int64_t queries = args->q_offsets[b + 1] - args->q_offsets[b];
    int64_t keys = fsdp_attention_keys(args, b);
    int64_t panel_keys = fsdp_attention_panel_keys(a, keys);
    int64_t block_rows = fsdp_attention_block_rows(panel_keys, FORWARD_SCORES);
    int64_t kv_head = h / (args->heads / args->kv_heads);
    forward_panels panels;
    if (queries == 0)
        return FSDP_OK;
    if (!reserve_forward(a, worker, block_rows, panel_keys, &panels))
        return fsdp_error_nomem();
    fsdp_attention_slice k = {args->k, args->k_ld, args->k_offsets[b], kv_head, keys};
    fsdp_attention_slice v = {args->v, args->v_ld, args->k_offsets[b], kv_head, keys};
    fsdp_attention_pack(a, panels.k, panel_keys, &k);
    fsdp_attention_pack(a, panels.v, panel_keys, &v);
    for (int64_t first = 0; first < queries; first += block_rows) {
        fsdp_attention_block block = fsdp_attention_block_at(a, b, h, first, block_rows);
        FSDP_TRY(forward_block(a, worker, b, h, &block, &panels));
    }
    return FSDP_OK;
}

static void forward_task(void *arg, int64_t i, int worker)
{
    fsdp_cpu_attention *a = arg;
    if (fsdp_cpu_failure_any(&a->failure))
        return;
    int64_t b = i / a->args->heads, h = i % a->args->heads;
    fsdp_cpu_failure_note(&a->failure, a->tiles ? fsdp_attention_tiles_forward(a, worker, b, h)
                                                : forward_head(a, worker, b, h));
}

fsdp_status fsdp_cpu_attention_forward(fsdp_kernel_context *c, const fsdp_attention_args *args)
{
    fsdp_cpu_attention a;
    FSDP_TRY(fsdp_cpu_attention_init(&a, c, args));
    fsdp_parallel_for(fsdp_kernel_context_pool(c), args->n_sequences * args->heads, forward_task,
                      &a);
    return fsdp_cpu_failure_raise(&a.failure);
}
