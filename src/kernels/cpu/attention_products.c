/* Computes the products of attention's blocks with oneDNN. The operands are panels: contiguous
 * copies that are padded with zeros, so that only a few different sizes occur. */
#include "src/kernels/cpu/attention.h"

enum {
    ROUND = 16
};

int64_t fsdp_attention_round(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

int64_t fsdp_attention_padded_keys(int64_t keys)
{
    return fsdp_attention_round(keys, keys <= 128    ? ROUND
                                      : keys <= 256  ? 32
                                      : keys <= 1024 ? 64
                                                     : 128);
}

size_t fsdp_attention_panel_bytes(const fsdp_cpu_attention *a, int64_t rows)
{
    return (size_t)(rows * a->padded_dim) * fsdp_dtype_size(a->panel_dtype);
}

void fsdp_attention_pack(const fsdp_cpu_attention *a, void *panel, int64_t padded_rows,
                         const fsdp_attention_slice *r)
{
    int64_t first = r->row * r->ld + r->head * a->args->head_dim;
    a->panels->pack(panel, a->panel_dtype, padded_rows, a->padded_dim,
                    (const char *)r->x + first * (int64_t)fsdp_dtype_size(a->args->dtype),
                    a->args->dtype, r->ld, r->n, a->args->head_dim);
}

static fsdp_status run_product(const fsdp_cpu_attention *a, int worker, int64_t m, int64_t n,
                               int64_t k, bool trans_a, bool trans_b, bool accumulate,
                               const void *x, const void *y, float *c)
{
    fsdp_cpu_product product = {.m = m,
                                .n = n,
                                .k = k,
                                .lda = trans_a ? m : k,
                                .ldb = trans_b ? k : n,
                                .ldc = n,
                                .ab_dtype = a->panel_dtype,
                                .c_dtype = FSDP_DTYPE_F32,
                                .trans_a = trans_a,
                                .trans_b = trans_b,
                                .accumulate = accumulate};
    return fsdp_cpu_product_run(a->products, worker, &product, x, y, c, NULL);
}

/* Returns the address of the block's first key in `panel`, which contains all keys of the
 * sequence. */
static const char *from_first(const fsdp_cpu_attention *a, const fsdp_attention_block *block,
                              const void *panel)
{
    return (const char *)panel + fsdp_attention_panel_bytes(a, block->first_key);
}

fsdp_status fsdp_attention_block_scores(const fsdp_cpu_attention *a, int worker,
                                        const fsdp_attention_block *block,
                                        const fsdp_attention_slice *x, const void *keys, void *left,
                                        float *scores)
{
    fsdp_attention_pack(a, left, block->padded_rows, x);
    return run_product(a, worker, block->padded_rows, block->padded_keys, a->padded_dim, false,
                       true, false, left, from_first(a, block, keys), scores);
}

fsdp_status fsdp_attention_block_combine(const fsdp_cpu_attention *a, int worker,
                                         const fsdp_attention_block *block, const void *p,
                                         const void *values, float *out)
{
    return run_product(a, worker, block->padded_rows, a->padded_dim, block->padded_keys, false,
                       false, false, p, from_first(a, block, values), out);
}

fsdp_status fsdp_attention_block_spread(const fsdp_cpu_attention *a, int worker,
                                        const fsdp_attention_block *block, const void *p,
                                        const void *x, float *d_keys)
{
    return run_product(a, worker, block->padded_keys, a->padded_dim, block->padded_rows, true,
                       false, true, p, x, d_keys + block->first_key * a->padded_dim);
}
