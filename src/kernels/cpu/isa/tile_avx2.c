/* Matrix products in register tiles with AVX2; see tile.h. Packing widens bf16 to float32, so all
 * products are float32, and a lane (Note [Lanes] in tile.h) is always one element.
 *
 * Note [Tiles of AVX2]. The sixteen registers contain 4 x 24 sums, three vectors of B and one
 * element of A. A panel of B has 24 columns, stored as [depth][width]. The last panel may be
 * narrower, but it never has only 8 columns after a panel of 24. Instead of 24 and 8 columns, the
 * last two panels have 16 columns each. A panel of 8 columns would have only 4 x 8 sums, in four
 * registers, so each addition would have to wait for the result of an earlier one. A panel stays in
 * the first-level cache while all rows of a block of A are multiplied with it.
 *
 * A packed tile of A has FSDP_TILE_ROWS rows. Its upper and lower half are multiplied separately.
 * GEMM always packs A: reading its rows in place, from far apart, took 5 to 25 % longer. The rows
 * of attention's probabilities are read in place, since they are in the first-level cache. */
#include "src/kernels/cpu/tile.h"

#include "src/kernels/cpu/isa/isa.h"

#if defined(__AVX2__) && defined(__FMA__) && !defined(__AVX512F__)
#include "src/kernels/cpu/isa/avx2.h"
#include "src/kernels/cpu/isa/inner_loop.h"

enum {
    ROWS = 4,
    WIDTH = 24,
    VECTORS = WIDTH / 8,
    /* pack_rows() packs this many neighboring elements of one row of its source, then the elements
     * in the same columns of the next row, and so on. Each column of the source is a column of B or
     * a row of A. */
    STRIP = 72,
    /* A tile prefetches its part of C only if it has at least this many lanes along k. With fewer
     * lanes, prefetching would take a noticeable part of the time. */
    FAR_DEPTH = 128,
    AHEAD = 2048 /* prefetch distance of pack_rows(), in elements */
};

/* --- panels of B --- */

/* A panel of B: columns [first, first + width). */
typedef struct panel {
    int64_t first, width;
} panel;

/* Returns the panel that contains column j. j is a multiple of 8. n is the number of columns of B,
 * rounded up to a multiple of 8. */
static panel panel_of(int64_t j, int64_t n)
{
    int64_t rest = n % WIDTH, full = n - rest;
    if (rest == 8 && full > 0) {
        full -= WIDTH;
        rest += WIDTH;
    }
    if (j < full)
        return (panel){j - j % WIDTH, WIDTH};
    int64_t first = full + (j - full) / 16 * 16;
    return (panel){first, fsdp_min_i64(16, n - first)};
}

static int64_t rounded(int64_t n)
{
    return (n + 7) & -8;
}

/* --- packing --- */

/* The address at which packing stores eight columns of B (in their panel) or eight rows of A (in
 * their tile). */
typedef struct target {
    float *at;      /* address of the first lane along k */
    int64_t stride; /* distance in floats from one lane along k to the next */
} target;

/* Returns the place of columns [8 i, 8 i + 8) of B in the packed panels, or of rows [8 i, 8 i + 8)
 * of A in the packed tiles. n is the number of columns of B, or of rows of A. */
typedef target target_fn(void *packed, int64_t depth, int64_t n, int64_t i);

static target target_of_b(void *panels, int64_t depth, int64_t n, int64_t i)
{
    panel p = panel_of(8 * i, rounded(n));
    return (target){(float *)panels + p.first * depth + (8 * i - p.first), p.width};
}

static target target_of_a(void *tiles, int64_t depth, int64_t n, int64_t i)
{
    (void)n;
    return (target){(float *)(void *)((char *)tiles + i * fsdp_tile_a_stride(depth)),
                    FSDP_TILE_ROWS};
}

/* Transposes the square of 8 x 8 lanes in place. */
FSDP_INLINE void transpose(__m256 r[8])
{
    __m256 t[8];
    UNROLL
    for (int i = 0; i < 4; i++) {
        t[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
    }
    UNROLL
    for (int i = 0; i < 2; i++) {
        r[4 * i] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0x44);
        r[4 * i + 1] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0xee);
        r[4 * i + 2] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0x44);
        r[4 * i + 3] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0xee);
    }
    UNROLL
    for (int i = 0; i < 4; i++) {
        t[i] = _mm256_permute2f128_ps(r[i], r[4 + i], 0x20);
        t[4 + i] = _mm256_permute2f128_ps(r[i], r[4 + i], 0x31);
    }
    UNROLL
    for (int i = 0; i < 8; i++)
        r[i] = t[i];
}

/* Prefetches the cache line at address src + bytes into the second-level cache. An address past the
 * end of the array does no harm. */
FSDP_INLINE void prefetch_l2(const char *src, int64_t bytes)
{
    __builtin_prefetch((const void *)((uintptr_t)src + (uintptr_t)bytes), 0, 2);
}

/* Packs up to eight lanes along k from each of `rows` rows. `rows` is at most eight. The first of
 * these lanes is number `lane` of a row, and the row has `lanes` more lanes from there on. For
 * whole blocks (8 x 8), callers pass constants, so the compiler makes a copy of this function
 * without conditions. */
FSDP_INLINE void pack_block(const target *to, const char *src, int64_t row_bytes, int64_t lane,
                            bool bf16, int64_t rows, int64_t lanes)
{
    __m256 r[8];
    const char *at = src + lane * (bf16 ? 2 : 4);
    UNROLL
    for (int i = 0; i < 8; i++)
        r[i] = i < rows ? fsdp_avx2_load(at + i * row_bytes, bf16, lanes) : _mm256_setzero_ps();
    transpose(r);
    UNROLL
    for (int i = 0; i < 8; i++)
        if (i < lanes)
            _mm256_storeu_ps(to->at + (lane + i) * to->stride, r[i]);
}

/* Packs `rows` rows. `rows` is at most eight. Each row has k elements, which are contiguous in
 * memory. */
FSDP_INLINE void pack_contiguous(const target *to, const char *src, int64_t row_bytes, bool bf16,
                                 int64_t k, int64_t rows)
{
    int64_t size = bf16 ? 2 : 4;
    for (int64_t lane = 0; lane < k; lane += 8) {
        for (int64_t i = 0; i < 8 && lane * size % 64 == 0; i++)
            prefetch_l2(src + lane * size, (8 + i) * row_bytes);
        if (rows == 8 && k - lane >= 8)
            pack_block(to, src, row_bytes, lane, bf16, 8, 8);
        else
            pack_block(to, src, row_bytes, lane, bf16, rows, k - lane);
    }
}

/* Packs a matrix that is stored as k rows of `columns` neighboring elements. It is read row by
 * row, because this order is the fastest. */
FSDP_INLINE void pack_rows(const target *to, const char *src, int64_t row_bytes, bool bf16,
                           int64_t k, int64_t columns)
{
    int64_t ahead = (AHEAD / columns < 8 ? 8 : AHEAD / columns) * row_bytes;
    for (int64_t lane = 0; lane < k; lane++)
        for (int64_t j = 0; j < columns; j += 8) {
            const char *at = src + lane * row_bytes + j * (bf16 ? 2 : 4);
            if (j % 16 == 0)
                prefetch_l2(at, ahead);
            _mm256_storeu_ps(to[j / 8].at + lane * to[j / 8].stride,
                             fsdp_avx2_load(at, bf16, columns - j));
        }
}

FSDP_INLINE void pack_all(target_fn *target_of, void *dst, bool bf16, const char *src, int64_t ld,
                          bool k_is_row, int64_t k, int64_t n)
{
    int64_t size = bf16 ? 2 : 4, row_bytes = ld * size, strip = k_is_row ? STRIP : 8;
    for (int64_t first = 0; first < n; first += strip) {
        target to[STRIP / 8];
        int64_t columns = fsdp_min_i64(strip, n - first);
        for (int64_t i = 0; 8 * i < columns; i++)
            to[i] = target_of(dst, k, n, first / 8 + i);
        if (k_is_row)
            pack_rows(to, src + first * size, row_bytes, bf16, k, columns);
        else
            pack_contiguous(to, src + first * row_bytes, row_bytes, bf16, k, columns);
    }
}

static void pack_b(void *panels, fsdp_dtype dtype, const void *src, int64_t ld, bool k_is_row,
                   int64_t k, int64_t n)
{
    if (dtype == FSDP_DTYPE_BF16)
        pack_all(target_of_b, panels, true, src, ld, k_is_row, k, n);
    else
        pack_all(target_of_b, panels, false, src, ld, k_is_row, k, n);
}

static void pack_a(void *tiles, fsdp_dtype dtype, const void *src, int64_t ld, bool k_is_row,
                   int64_t k, int64_t m)
{
    if (dtype == FSDP_DTYPE_BF16)
        pack_all(target_of_a, tiles, true, src, ld, k_is_row, k, m);
    else
        pack_all(target_of_a, tiles, false, src, ld, k_is_row, k, m);
}

/* --- one tile --- */

/* A function that computes a part of C with `rows` rows and 8 * `vectors` columns. The row stride
 * of C is ldc. If a_ld is 0, `a` is packed. Otherwise the rows of A are a_ld elements apart. */
typedef void tile_fn(int64_t depth, const float *a, int64_t a_ld, const float *b, float *c,
                     int64_t ldc, bool add);

FSDP_INNER_LOOP FSDP_INLINE void tile(bool packed, int rows, int vectors, int64_t depth,
                                      const float *a, int64_t a_ld, const float *b, float *c,
                                      int64_t ldc, bool add)
{
    __m256 acc[ROWS][VECTORS];
    UNROLL
    for (int i = 0; i < rows; i++) {
        UNROLL
        for (int j = 0; j < vectors; j++)
            acc[i][j] = _mm256_setzero_ps();
    }
    for (int64_t l = 0; l < depth; l++) {
        __m256 x[VECTORS];
        UNROLL
        for (int j = 0; j < vectors; j++)
            x[j] = _mm256_loadu_ps(b + 8 * j);
        UNROLL
        for (int i = 0; i < rows; i++) {
            __m256 y = _mm256_broadcast_ss(packed ? a + i : a + i * a_ld);
            UNROLL
            for (int j = 0; j < vectors; j++)
                acc[i][j] = _mm256_fmadd_ps(y, x[j], acc[i][j]);
        }
        a += packed ? FSDP_TILE_ROWS : 1;
        b += 8 * vectors;
    }
    UNROLL
    for (int i = 0; i < rows; i++) {
        UNROLL
        for (int j = 0; j < vectors; j++) {
            float *to = c + i * ldc + 8 * j;
            _mm256_storeu_ps(to, add ? _mm256_add_ps(_mm256_loadu_ps(to), acc[i][j]) : acc[i][j]);
        }
    }
}

#define TILE(rows, vectors)                                                                        \
    FSDP_INNER_LOOP static void tile_##rows##vectors(int64_t depth, const float *a, int64_t a_ld,  \
                                                     const float *b, float *c, int64_t ldc,        \
                                                     bool add)                                     \
    {                                                                                              \
        if (a_ld == 0)                                                                             \
            tile(true, rows, vectors, depth, a, 0, b, c, ldc, add);                                \
        else                                                                                       \
            tile(false, rows, vectors, depth, a, a_ld, b, c, ldc, add);                            \
    }
#define TILES(rows) TILE(rows, 1) TILE(rows, 2) TILE(rows, 3)
TILES(1)
TILES(2)
TILES(3)
TILES(4)

static tile_fn *const tiles[ROWS][VECTORS] = {{tile_11, tile_12, tile_13},
                                              {tile_21, tile_22, tile_23},
                                              {tile_31, tile_32, tile_33},
                                              {tile_41, tile_42, tile_43}};

/* Compute a tile of C with `rows` rows and `columns` columns, a multiple of 8, by its tile_fn. */
static void run_tile(int64_t rows, int64_t columns, int64_t depth, const float *a, int64_t a_ld,
                     const float *b, float *c, int64_t ldc, bool add)
{
    const int64_t size = sizeof(float);
    if (a_ld == 0 && depth > 0)
        fsdp_check_read(a, ((depth - 1) * FSDP_TILE_ROWS + rows) * size);
    for (int64_t i = 0; i < rows && a_ld != 0; i++)
        fsdp_check_read(a + i * a_ld, depth * size);
    fsdp_check_read(b, depth * columns * size);
    for (int64_t i = 0; i < rows; i++)
        fsdp_check_write(c + i * ldc, columns * size);
    tiles[rows - 1][columns / 8 - 1](depth, a, a_ld, b, c, ldc, add);
}

/* --- blocks --- */

/* Finishes a tile of results x [rows, columns]: adds fsdp_tile_block.sum, the bias and the previous
 * C, if the block requests them, and stores the tile at row i0 and column j0 of C. */
static void finish_tile(const fsdp_tile_block *b, float x[ROWS][WIDTH], int64_t i0, int64_t rows,
                        int64_t j0, int64_t columns)
{
    bool bf16_c = b->c_dtype == FSDP_DTYPE_BF16, bf16 = b->dtype == FSDP_DTYPE_BF16;
    for (int64_t j = 0; j < columns; j += 8) {
        int64_t n = fsdp_min_i64(8, columns - j);
        __m256 bias =
            b->bias ? fsdp_avx2_load((const char *)b->bias + (j0 + j) * (bf16 ? 2 : 4), bf16, n)
                    : _mm256_setzero_ps();
        for (int64_t i = 0; i < rows; i++) {
            char *c = (char *)b->c + ((i0 + i) * b->ldc + j0 + j) * (bf16_c ? 2 : 4);
            __m256 y = _mm256_loadu_ps(&x[i][j]);
            if (b->sum)
                y = _mm256_add_ps(
                    y, fsdp_avx2_load((const char *)(b->sum + (i0 + i) * b->sum_ld + j0 + j), false,
                                      n));
            y = _mm256_add_ps(y, bias);
            if (b->add)
                y = _mm256_add_ps(y, fsdp_avx2_load(c, bf16_c, n));
            float out[8];
            _mm256_storeu_ps(out, y);
            fsdp_store_block(c, b->c_dtype, 0, out, (int)n);
        }
    }
}

/* Returns the address of row i of A; i is a multiple of ROWS. */
static const float *a_at(const fsdp_tile_block *b, int64_t i)
{
    const char *a = b->a;
    if (b->a_stride)
        return (const float *)(const void *)(a + i * b->a_stride);
    a += i / FSDP_TILE_ROWS * fsdp_tile_a_stride(b->depth);
    return (const float *)(const void *)a + i % FSDP_TILE_ROWS;
}

/* Computes rows [i, i + ROWS) of C, in the columns that belong to panel p of B. In C, these columns
 * begin at column j. */
static void multiply_tile(const fsdp_tile_block *b, panel p, int64_t i, int64_t j)
{
    int64_t rows = fsdp_min_i64(b->m - i, ROWS), columns = fsdp_min_i64(b->n - j, p.width);
    int64_t a_ld = b->a_stride / (int64_t)sizeof(float),
            b_depth = b->b_depth ? b->b_depth : b->depth;
    const float *a = a_at(b, i);
    const float *panel_of_b = (const float *)b->b + p.first * b_depth + b->b_lane * p.width;
    if (b->c_dtype == FSDP_DTYPE_F32 && !b->sum && !b->bias && columns == p.width) {
        float *c = (float *)b->c + i * b->ldc + j;
        /* Prefetch the tile's part of C, which then arrives while the sums are computed. */
        for (int64_t r = 0; r < rows && b->depth >= FAR_DEPTH; r++) {
            __builtin_prefetch(c + r * b->ldc, 1);
            __builtin_prefetch(c + r * b->ldc + columns - 1, 1);
        }
        run_tile(rows, columns, b->depth, a, a_ld, panel_of_b, c, b->ldc, b->add);
        return;
    }
    float buffer[ROWS][WIDTH];
    run_tile(rows, p.width, b->depth, a, a_ld, panel_of_b, buffer[0], WIDTH, false);
    finish_tile(b, buffer, i, rows, j, columns);
}

static void multiply(const fsdp_tile_block *b)
{
    int64_t all = rounded(b->b_columns ? b->b_columns : b->n);
    for (int64_t j = 0; j < b->n;) {
        panel p = panel_of(b->b_column + j, all);
        for (int64_t i = 0; i < b->m; i += ROWS)
            multiply_tile(b, p, i, j);
        j += p.width;
    }
}

static int64_t panel_first(int64_t n, int64_t column)
{
    int64_t two = 2 * WIDTH, last = panel_of(rounded(n) - 8, rounded(n)).first;
    return fsdp_min_i64(column, last) / two * two;
}

const fsdp_cpu_tiles FSDP_ISA_NAME_OF(fsdp_cpu_tiles) = {.widens = true,
                                                         .rows = FSDP_TILE_ROWS,
                                                         .columns = FSDP_TILE_COLUMNS,
                                                         .most_depth = 256,
                                                         .most_long_depth = 256,
                                                         .most_packed_k = 256,
                                                         .a_bytes = 192 << 10,
                                                         .b_bytes = 2 << 20,
                                                         .pack_b = pack_b,
                                                         .pack_a = pack_a,
                                                         .multiply = multiply,
                                                         .panel_first = panel_first};
#endif
