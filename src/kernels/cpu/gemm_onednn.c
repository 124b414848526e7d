/* Computes a GEMM with oneDNN. C is divided into tiles, in a way that depends only on its shape.
 * oneDNN computes each tile as one product on one thread.
 *
 * oneDNN compiles a primitive for each shape of a product. The shapes of weights do not change, but
 * the number of tokens changes from step to step. The number of tokens is m in the products of
 * forward, and k in the products that compute gradients of weights. Two kinds of padding keep the
 * number of different shapes small.
 *
 * Padding of m: all tiles have the same number of rows, except the tiles at the end of C, whose
 * number of rows is rounded up to a multiple of 16. For such a tile, the product is computed in
 * panels, which are copies in scratch memory that are padded with zeros, and only the valid part of
 * the result is copied to C.
 *
 * Padding of k: in the products that compute gradients of weights, zeros pad k to a multiple of 16.
 * If copying is cheap, both operands are copied completely. Otherwise only the last k % 16 tokens
 * are copied, and a second product adds their terms to C. A large product is not padded, because
 * compiling a primitive for its exact shape costs less.
 *
 * Nothing outside the matrices is read or written. If the CPU cannot multiply the dtype (f16; bf16
 * without AVX512-BF16), blocks of A and B are widened to f32 panels. C is rounded once, at the
 * end. */
#include "src/kernels/cpu/gemm.h"

#include <string.h>

#include "src/base/alloc.h"
#include "src/kernels/cpu/panel.h"
#include "src/kernels/cpu/product.h"
#include "src/kernels/cpu/scratch.h"

enum {
    ROUND = 16, /* numbers of tokens are rounded up to a multiple of this */
    /* Number of rows of a tile of C. In measurements, tiles with more rows were less than 1 %
     * faster, and tiles with 128 rows were 4 % slower. */
    TILE_ROWS = 256,
    /* If C has at most this many rows, as in generation, it is divided into groups of columns
     * instead of groups of rows. */
    SMALL_ROWS = 128,
    TILE_COLUMNS = 512, /* columns of a tile if C has at most SMALL_ROWS rows */
    WIDE_COLUMNS = 512, /* columns of a block if operands are widened to f32 */
    WIDE_DEPTH = 1024,  /* length of a block along k if operands are widened to f32 */
};

/* If a product has at least this many multiplications (about 10 ms), compiling a primitive for its
 * exact shape (0.2 ms) costs less than padding. */
static const int64_t exact_work = INT64_C(1) << 31;

typedef struct gemm {
    const fsdp_gemm_args *args;
    fsdp_kernel_context *context;
    fsdp_cpu_products *products;
    const fsdp_cpu_panels *panels;
    int64_t tile_rows, tile_columns, row_tiles;
    bool widen;
    fsdp_cpu_failure failure;
} gemm;

typedef struct tile {
    int64_t m0, m, n0, n;
} tile;

static int64_t round_up(int64_t x, int64_t to)
{
    return (x + to - 1) / to * to;
}

/* Packs a block of `m` x `k` elements of x into a panel of `to_m` x `to_k` elements, and pads it
 * with zeros. If k_is_row, x and the panel are stored as [k, m], otherwise as [m, k]. Returns the
 * panel's leading dimension. */
static int64_t pack_panel(const gemm *g, void *panel, fsdp_dtype to, const void *x, int64_t ld,
                          bool k_is_row, int64_t m, int64_t k, int64_t to_m, int64_t to_k)
{
    fsdp_dtype from = g->args->ab_dtype;
    if (k_is_row)
        g->panels->pack(panel, to, to_k, to_m, x, from, ld, k, m);
    else
        g->panels->pack(panel, to, to_m, to_k, x, from, ld, m, k);
    return k_is_row ? to_m : to_k;
}

/* --- the direct path: panels are used only where padding is needed --- */

/* Says which matrices are copied to panels to compute one tile of C, and the offsets of the panels
 * in scratch memory. */
typedef struct plan {
    bool pack_a, pack_b, pack_c;
    int64_t m, k; /* size of the product, after padding */
    /* The first product leaves out the last `tail` indices along k, and a second product adds their
     * terms to C. If `tail` is 0, there is no second product. `tail` is less than ROUND. */
    int64_t tail;
    size_t a, b, c, scratch_bytes;
} plan;

static plan plan_tile(const gemm *g, const tile *t)
{
    const fsdp_gemm_args *args = g->args;
    size_t ab_size = fsdp_dtype_size(args->ab_dtype), c_size = fsdp_dtype_size(args->c_dtype);
    plan p = {.m = t->m, .k = args->k};
    if (!args->trans_a && t->m > ROUND && t->m % ROUND) {
        p.m = round_up(t->m, ROUND);
        p.pack_a = p.pack_c = true;
    }
    /* oneDNN's fast path requires a C whose rows follow each other without gaps. If C has few rows,
     * copying C to a panel without gaps and back costs less time than the fast path saves. */
    if (t->m <= SMALL_ROWS && t->n < args->ldc && g->tile_columns < args->n)
        p.pack_c = true;
    if (args->trans_a && args->k % ROUND && args->m * args->n * args->k < exact_work) {
        /* There are two ways to handle the last k % ROUND tokens. If `copy` is true, both operands
         * are copied and padded, which moves about k (m + n) elements. Otherwise, a second product
         * is computed for these tokens. It reads and writes C once more and, if C is not f32,
         * rounds C a second time. */
        bool copy = args->c_dtype != FSDP_DTYPE_F32 || args->k < ROUND ||
                    args->k * (t->m + t->n) < 2 * t->m * t->n;
        p.tail = copy ? 0 : args->k % ROUND;
        p.k = copy ? round_up(args->k, ROUND) : args->k - p.tail;
        p.pack_a = p.pack_b = copy;
    }
    int64_t panel_k = p.tail ? ROUND : p.k;
    if (p.pack_a || p.tail)
        p.a = fsdp_scratch_part(&p.scratch_bytes, (size_t)(p.m * panel_k) * ab_size);
    if (p.pack_b || p.tail)
        p.b = fsdp_scratch_part(&p.scratch_bytes, (size_t)(t->n * panel_k) * ab_size);
    if (p.pack_c)
        p.c = fsdp_scratch_part(&p.scratch_bytes, (size_t)(p.m * t->n) * c_size);
    return p;
}

static fsdp_status run_tail(const gemm *g, int worker, const tile *t, const plan *p, char *scratch,
                            fsdp_cpu_product product, void *c)
{
    const fsdp_gemm_args *args = g->args;
    product.k = ROUND;
    product.accumulate = true;
    product.bias = false;
    product.lda = pack_panel(g, scratch + p->a, args->ab_dtype, fsdp_gemm_a_at(args, t->m0, p->k),
                             args->lda, args->trans_a, t->m, p->tail, t->m, ROUND);
    product.ldb = pack_panel(g, scratch + p->b, args->ab_dtype, fsdp_gemm_b_at(args, p->k, t->n0),
                             args->ldb, !args->trans_b, t->n, p->tail, t->n, ROUND);
    return fsdp_cpu_product_run(g->products, worker, &product, scratch + p->a, scratch + p->b, c,
                                NULL);
}

static fsdp_status run_direct(const gemm *g, int worker, const tile *t)
{
    const fsdp_gemm_args *args = g->args;
    plan p = plan_tile(g, t);
    char *scratch = fsdp_kernel_scratch(g->context, worker, p.scratch_bytes);
    if (!scratch)
        return fsdp_error_nomem();
    fsdp_cpu_product product = {.m = p.m,
                                .n = t->n,
                                .k = p.k,
                                .lda = args->lda,
                                .ldb = args->ldb,
                                .ldc = args->ldc,
                                .ab_dtype = args->ab_dtype,
                                .c_dtype = args->c_dtype,
                                .trans_a = args->trans_a,
                                .trans_b = args->trans_b,
                                .accumulate = args->beta != 0.0f,
                                .bias = args->bias != NULL};
    const void *a = fsdp_gemm_a_at(args, t->m0, 0), *b = fsdp_gemm_b_at(args, 0, t->n0);
    void *c_tile = fsdp_gemm_c_at(args, t->m0, t->n0), *c = c_tile;
    if (p.pack_a) {
        product.lda = pack_panel(g, scratch + p.a, args->ab_dtype, a, args->lda, args->trans_a,
                                 t->m, args->k, p.m, p.k);
        a = scratch + p.a;
    }
    if (p.pack_b) {
        product.ldb = pack_panel(g, scratch + p.b, args->ab_dtype, b, args->ldb, !args->trans_b,
                                 t->n, args->k, t->n, p.k);
        b = scratch + p.b;
    }
    if (p.pack_c) {
        c = scratch + p.c;
        product.ldc = t->n;
        if (product.accumulate)
            g->panels->pack(c, args->c_dtype, p.m, t->n, c_tile, args->c_dtype, args->ldc, t->m,
                            t->n);
    }
    const void *bias = fsdp_gemm_bias_at(args, t->n0);
    FSDP_TRY(fsdp_cpu_product_run(g->products, worker, &product, a, b, c, bias));
    if (p.tail)
        FSDP_TRY(run_tail(g, worker, t, &p, scratch, product, c));
    if (p.pack_c)
        g->panels->unpack(c_tile, args->c_dtype, args->ldc, c, args->c_dtype, t->n, t->m, t->n);
    return FSDP_OK;
}

/* --- the widening path: blocks of A and B are widened to f32 panels --- */

/* Sets the sums of a block of C to the previous values of C, or to zero if beta is 0, and adds the
 * bias. */
static void widen_c(const gemm *g, float *acc, const float *bias, const void *c_block, int64_t m,
                    int64_t padded_m, int64_t n)
{
    const fsdp_gemm_args *args = g->args;
    if (args->beta != 0.0f)
        g->panels->pack(acc, FSDP_DTYPE_F32, padded_m, n, c_block, args->c_dtype, args->ldc, m, n);
    else
        memset(acc, 0, (size_t)(padded_m * n) * sizeof *acc);
    for (int64_t i = 0; bias && i < m; i++)
        for (int64_t j = 0; j < n; j++)
            acc[i * n + j] += bias[j];
}

static fsdp_status widen_block(const gemm *g, int worker, const tile *t, float *a, float *b,
                               float *acc)
{
    const fsdp_gemm_args *args = g->args;
    int64_t m = t->m > ROUND ? round_up(t->m, ROUND) : t->m;
    for (int64_t k0 = 0; k0 < args->k; k0 += WIDE_DEPTH) {
        int64_t k = fsdp_gemm_min(WIDE_DEPTH, args->k - k0);
        int64_t padded_k = args->trans_a ? round_up(k, ROUND) : k;
        fsdp_cpu_product product = {.m = m,
                                    .n = t->n,
                                    .k = padded_k,
                                    .ldc = t->n,
                                    .ab_dtype = FSDP_DTYPE_F32,
                                    .c_dtype = FSDP_DTYPE_F32,
                                    .trans_a = args->trans_a,
                                    .trans_b = args->trans_b,
                                    .accumulate = true};
        product.lda = pack_panel(g, a, FSDP_DTYPE_F32, fsdp_gemm_a_at(args, t->m0, k0), args->lda,
                                 args->trans_a, t->m, k, m, padded_k);
        product.ldb = pack_panel(g, b, FSDP_DTYPE_F32, fsdp_gemm_b_at(args, k0, t->n0), args->ldb,
                                 !args->trans_b, t->n, k, t->n, padded_k);
        FSDP_TRY(fsdp_cpu_product_run(g->products, worker, &product, a, b, acc, NULL));
    }
    return FSDP_OK;
}

static fsdp_status run_widened(const gemm *g, int worker, const tile *t)
{
    const fsdp_gemm_args *args = g->args;
    int64_t m = round_up(t->m, ROUND), n = fsdp_gemm_min(WIDE_COLUMNS, t->n);
    int64_t k = fsdp_gemm_min(WIDE_DEPTH, round_up(args->k, ROUND));
    size_t bytes = 0;
    size_t a = fsdp_scratch_part(&bytes, (size_t)(m * k) * sizeof(float));
    size_t b = fsdp_scratch_part(&bytes, (size_t)(n * k) * sizeof(float));
    size_t acc = fsdp_scratch_part(&bytes, (size_t)(m * n) * sizeof(float));
    size_t bias = fsdp_scratch_part(&bytes, (size_t)n * sizeof(float));
    char *scratch = fsdp_kernel_scratch(g->context, worker, bytes);
    if (!scratch)
        return fsdp_error_nomem();
    float *acc_f32 = (float *)(void *)(scratch + acc),
          *bias_f32 = (float *)(void *)(scratch + bias);
    for (int64_t n0 = 0; n0 < t->n; n0 += n) {
        tile block = {t->m0, t->m, t->n0 + n0, fsdp_gemm_min(n, t->n - n0)};
        void *c = fsdp_gemm_c_at(args, block.m0, block.n0);
        if (args->bias)
            g->panels->pack(bias_f32, FSDP_DTYPE_F32, 1, block.n, fsdp_gemm_bias_at(args, block.n0),
                            args->ab_dtype, block.n, 1, block.n);
        widen_c(g, acc_f32, args->bias ? bias_f32 : NULL, c, block.m, m, block.n);
        FSDP_TRY(widen_block(g, worker, &block, (float *)(void *)(scratch + a),
                             (float *)(void *)(scratch + b), acc_f32));
        g->panels->unpack(c, args->c_dtype, args->ldc, acc_f32, FSDP_DTYPE_F32, block.n, block.m,
                          block.n);
    }
    return FSDP_OK;
}

/* --- tiles --- */

static void run_tile(void *arg, int64_t i, int worker)
{
    gemm *g = arg;
    tile t = {.m0 = i % g->row_tiles * g->tile_rows, .n0 = i / g->row_tiles * g->tile_columns};
    t.m = fsdp_gemm_min(g->tile_rows, g->args->m - t.m0);
    t.n = fsdp_gemm_min(g->tile_columns, g->args->n - t.n0);
    if (fsdp_cpu_failure_any(&g->failure))
        return;
    bool widened = g->widen || g->args->k == 0; /* if k is 0, the result is beta C + bias */
    fsdp_cpu_failure_note(&g->failure,
                          widened ? run_widened(g, worker, &t) : run_direct(g, worker, &t));
}

fsdp_status fsdp_cpu_gemm_onednn(fsdp_kernel_context *c, const fsdp_gemm_args *args,
                                 fsdp_thread_pool *pool)
{
    gemm g = {.args = args,
              .context = c,
              .panels = fsdp_cpu_panels_of(c),
              .tile_rows = TILE_ROWS,
              .tile_columns = args->n};
    FSDP_TRY(fsdp_kernel_context_products(c, &g.products));
    g.widen = args->ab_dtype == FSDP_DTYPE_F16 ||
              (args->ab_dtype == FSDP_DTYPE_BF16 && !fsdp_cpu_multiplies_bf16(c));
    if (args->m <= SMALL_ROWS)
        g.tile_columns = fsdp_gemm_min(TILE_COLUMNS, args->n);
    g.row_tiles = (args->m + g.tile_rows - 1) / g.tile_rows;
    int64_t column_tiles = (args->n + g.tile_columns - 1) / g.tile_columns;
    fsdp_parallel_for(pool, g.row_tiles * column_tiles, run_tile, &g);
    return fsdp_cpu_failure_raise(&g.failure);
}
