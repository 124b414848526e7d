/* The products of attention's blocks: by our own tiles, which read queries and probabilities where
 * they lie and take any size; or by oneDNN on dense panels, zero-padded to a few sizes. */
#include "src/kernels/cpu/attention.h"

enum {
    ROUND = 16
};

int64_t fsdp_attention_round(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

int64_t fsdp_attention_padded_keys(const fsdp_cpu_attention *a, int64_t keys)
{
    int64_t to = a->tiles || keys <= 128 ? ROUND : keys <= 256 ? 32 : keys <= 1024 ? 64 : 128;
    return fsdp_attention_round(keys, to);
}

static size_t dense_bytes(const fsdp_cpu_attention *a, int64_t rows)
{
    return (size_t)(rows * a->padded_dim) * fsdp_dtype_size(a->panel_dtype);
}

static const char *first_of(const fsdp_cpu_attention *a, const fsdp_attention_slice *r)
{
    int64_t first = r->row * r->ld + r->head * a->args->head_dim;
    return (const char *)r->x + first * (int64_t)fsdp_dtype_size(a->args->dtype);
}

static void pack_dense(const fsdp_cpu_attention *a, void *panel, int64_t padded_rows,
                       const fsdp_attention_slice *r)
{
    a->panels->pack(panel, a->panel_dtype, padded_rows, a->padded_dim, first_of(a, r),
                    a->args->dtype, r->ld, r->n, a->args->head_dim);
}

/* --- packing --- */

static int64_t dim_depth(const fsdp_cpu_attention *a)
{
    return fsdp_tile_depth(a->panel_dtype, a->args->head_dim);
}

size_t fsdp_attention_columns_bytes(const fsdp_cpu_attention *a, int64_t rows)
{
    return a->tiles ? fsdp_tile_b_bytes(rows, dim_depth(a)) : dense_bytes(a, rows);
}

void fsdp_attention_pack_columns(const fsdp_cpu_attention *a, void *panel, int64_t padded_rows,
                                 const fsdp_attention_slice *r)
{
    if (a->tiles)
        a->tiles->pack_b(panel, a->panel_dtype, first_of(a, r), r->ld, false, a->args->head_dim,
                         r->n);
    else
        pack_dense(a, panel, padded_rows, r);
}

size_t fsdp_attention_depth_bytes(const fsdp_cpu_attention *a, int64_t rows)
{
    return a->tiles ? fsdp_tile_b_bytes(a->args->head_dim, fsdp_tile_depth(a->panel_dtype, rows))
                    : dense_bytes(a, rows);
}

void fsdp_attention_pack_depth(const fsdp_cpu_attention *a, void *panel, int64_t padded_rows,
                               const fsdp_attention_slice *r)
{
    if (a->tiles)
        a->tiles->pack_b(panel, a->panel_dtype, first_of(a, r), r->ld, true, r->n,
                         a->args->head_dim);
    else
        pack_dense(a, panel, padded_rows, r);
}

size_t fsdp_attention_left_bytes(const fsdp_cpu_attention *a, int64_t rows, int64_t keys)
{
    size_t of_rows = fsdp_tile_a_bytes(rows, dim_depth(a));
    size_t of_keys = fsdp_tile_a_bytes(keys, fsdp_tile_depth(a->panel_dtype, rows));
    if (!a->tiles)
        return dense_bytes(a, rows);
    return of_rows > of_keys ? of_rows : of_keys;
}

/* --- products --- */

static fsdp_status dense_product(const fsdp_cpu_attention *a, int worker, int64_t m, int64_t n,
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

fsdp_status fsdp_attention_scores(const fsdp_cpu_attention *a, int worker,
                                  const fsdp_attention_block *block, const fsdp_attention_slice *x,
                                  const void *keys, int64_t panel_keys, void *left, float *scores)
{
    int64_t dim = a->args->head_dim, size = (int64_t)fsdp_dtype_size(a->panel_dtype);
    if (!a->tiles) {
        pack_dense(a, left, block->padded_rows, x);
        return dense_product(a, worker, block->padded_rows, block->padded_keys, a->padded_dim,
                             false, true, false, left,
                             (const char *)keys + block->first_key * a->padded_dim * size, scores);
    }
    fsdp_tile_block tiles = {.dtype = a->panel_dtype,
                             .m = block->rows,
                             .n = block->keys,
                             .depth = dim_depth(a),
                             .a = first_of(a, x),
                             .a_stride = x->ld * size,
                             .b = (const char *)keys +
                                  block->first_key * dim_depth(a) * FSDP_TILE_LANE_BYTES,
                             .b_columns = panel_keys,
                             .c = scores,
                             .c_dtype = FSDP_DTYPE_F32,
                             .ldc = block->padded_keys};
    if (dim * size % FSDP_TILE_LANE_BYTES) {
        a->tiles->pack_a(left, a->panel_dtype, tiles.a, x->ld, false, dim, block->rows);
        tiles.a = left;
        tiles.a_stride = 0;
    }
    a->tiles->multiply(&tiles);
    return FSDP_OK;
}

fsdp_status fsdp_attention_combine(const fsdp_cpu_attention *a, int worker,
                                   const fsdp_attention_block *block, const void *p,
                                   const void *values, int64_t panel_keys, float *out)
{
    int64_t size = (int64_t)fsdp_dtype_size(a->panel_dtype);
    if (!a->tiles)
        return dense_product(a, worker, block->padded_rows, a->padded_dim, block->padded_keys,
                             false, false, false, p,
                             (const char *)values + block->first_key * a->padded_dim * size, out);
    int64_t lane = fsdp_tile_width(a->args->head_dim) * FSDP_TILE_LANE_BYTES;
    a->tiles->multiply(&(fsdp_tile_block){
        .dtype = a->panel_dtype,
        .m = block->rows,
        .n = a->args->head_dim,
        .depth = fsdp_tile_depth(a->panel_dtype, block->keys),
        .a = p,
        .a_stride = block->padded_keys * size,
        .b = (const char *)values + fsdp_tile_depth(a->panel_dtype, block->first_key) * lane,
        .b_stride = fsdp_tile_depth(a->panel_dtype, panel_keys) * lane,
        .c = out,
        .c_dtype = FSDP_DTYPE_F32,
        .ldc = a->padded_dim});
    return FSDP_OK;
}

fsdp_status fsdp_attention_spread(const fsdp_cpu_attention *a, int worker,
                                  const fsdp_attention_block *block, const void *p, const void *x,
                                  void *left, float *d_keys)
{
    float *first = d_keys + block->first_key * a->padded_dim;
    if (!a->tiles)
        return dense_product(a, worker, block->padded_keys, a->padded_dim, block->padded_rows, true,
                             false, true, p, x, first);
    a->tiles->pack_a(left, a->panel_dtype, p, block->padded_keys, true, block->rows, block->keys);
    a->tiles->multiply(&(fsdp_tile_block){.dtype = a->panel_dtype,
                                          .m = block->keys,
                                          .n = a->args->head_dim,
                                          .depth = fsdp_tile_depth(a->panel_dtype, block->rows),
                                          .a = left,
                                          .b = x,
                                          .c = first,
                                          .c_dtype = FSDP_DTYPE_F32,
                                          .ldc = a->padded_dim,
                                          .add = true});
    return FSDP_OK;
}
