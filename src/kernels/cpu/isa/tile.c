/* Matrix products in register tiles with AVX-512; see tile.h. tile_pack.h packs the operands. */
#include "src/kernels/cpu/tile.h"

#include "src/kernels/cpu/isa/isa.h"

#if defined(__AVX512F__) && defined(__AVX512BW__)
#include "src/kernels/cpu/isa/inner_loop.h"
#include "src/kernels/cpu/isa/tile_block.h"
#include "src/kernels/cpu/isa/tile_pack.h"

enum {
    ROWS = FSDP_TILE_ROWS,
    VECTORS = FSDP_TILE_COLUMNS / 16,
    LANE = FSDP_TILE_LANE_BYTES,
    /* A tile prefetches memory only if it has at least this many lanes along k (Note [Lanes] in
     * tile.h). The computation of a tile with fewer lanes would end before the prefetched data
     * arrives. */
    FAR_DEPTH = 128,
    /* The size in bytes of a group of panels of B. All rows of a block of A are multiplied with one
     * group, and then with the next group. So a group stays in the second-level cache while it is
     * used. */
    GROUP_BYTES = 256 << 10
};

/* --- packing --- */

static target target_of_b(void *panels, int64_t depth, int64_t width, int64_t i)
{
    int64_t stride = width * FSDP_TILE_LANE_BYTES, vectors = width / 16;
    return (target){(char *)panels + i / vectors * depth * stride +
                        i % vectors * 16 * FSDP_TILE_LANE_BYTES,
                    stride, 8 * FSDP_TILE_LANE_BYTES};
}

static target target_of_a(void *tiles, int64_t depth, int64_t width, int64_t i)
{
    (void)width;
    int64_t tile_bytes = fsdp_tile_a_stride(depth);
    return (target){(char *)tiles + 2 * i * tile_bytes, FSDP_TILE_ROWS * FSDP_TILE_LANE_BYTES,
                    tile_bytes};
}

FSDP_INLINE void pack(target_fn *target_of, bool widened, void *dst, fsdp_dtype dtype,
                      const char *src, int64_t ld, bool k_is_row, int64_t k, int64_t n)
{
    if (dtype == FSDP_DTYPE_F32)
        pack_as(PACK_F32, target_of, dst, src, ld, k_is_row, k, n);
    else if (widened)
        pack_as(PACK_WIDENED, target_of, dst, src, ld, k_is_row, k, n);
    else
        pack_as(PACK_PAIRS, target_of, dst, src, ld, k_is_row, k, n);
}

static void pack_b(void *panels, fsdp_dtype dtype, const void *src, int64_t ld, bool k_is_row,
                   int64_t k, int64_t n)
{
    pack(target_of_b, false, panels, dtype, src, ld, k_is_row, k, n);
}

static void pack_a(void *tiles, fsdp_dtype dtype, const void *src, int64_t ld, bool k_is_row,
                   int64_t k, int64_t m)
{
    pack(target_of_a, false, tiles, dtype, src, ld, k_is_row, k, m);
}

static void pack_b_widened(void *panels, fsdp_dtype dtype, const void *src, int64_t ld,
                           bool k_is_row, int64_t k, int64_t n)
{
    pack(target_of_b, true, panels, dtype, src, ld, k_is_row, k, n);
}

static void pack_a_widened(void *tiles, fsdp_dtype dtype, const void *src, int64_t ld,
                           bool k_is_row, int64_t k, int64_t m)
{
    pack(target_of_a, true, tiles, dtype, src, ld, k_is_row, k, m);
}

/* --- one tile --- */

/* In f32, each 4-byte lane of a and b has one element: returns acc + a * b. In bf16, each lane of a
 * and b has two elements: returns acc plus the sum of the two products. */
FSDP_INNER_LOOP FSDP_INLINE BF16_TARGET __m512 multiply_add(bool bf16, __m512i a, __m512i b,
                                                            __m512 acc)
{
    return bf16 ? _mm512_dpbf16_ps(acc, (__m512bh)a, (__m512bh)b)
                : _mm512_fmadd_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b), acc);
}

FSDP_INNER_LOOP FSDP_INLINE __m512i broadcast(const char *a)
{
    int lane;
    memcpy(&lane, a, sizeof lane);
    return _mm512_set1_epi32(lane);
}

/* The destination of a tile's results: a part of C or of a buffer. */
typedef struct output {
    void *c; /* bf16 for F32_TO_BF16 and BF16_TO_BF16, otherwise f32 */
    int64_t ldc;
    bool add;            /* add the results to the previous values of c, which are f32 */
    unsigned last_lanes; /* a mask of the columns that exist in the last vector of each row */
} output;

/* A function that computes one tile. The array `tiles` below contains these functions:
 * tiles[kind][1] requires that `a` is packed, and tiles[kind][0] reads A in place, where its rows
 * are a_stride bytes apart. */
typedef void tile_fn(int64_t depth, const char *a, int64_t a_stride, const char *b,
                     int64_t b_stride, const output *out);

typedef enum tile_kind {
    F32,          /* A, B and C are f32 */
    F32_TO_BF16,  /* C is bf16 and overwritten; A and B are f32, A is packed */
    BF16,         /* A and B are bf16, C is f32 */
    BF16_TO_BF16, /* A, B and C are bf16; C is overwritten */
    KINDS
} tile_kind;

/* Returns true if A and B are bf16, with two elements in each lane. */
FSDP_INLINE bool has_pairs(tile_kind kind)
{
    return kind == BF16 || kind == BF16_TO_BF16;
}

FSDP_INNER_LOOP FSDP_INLINE void store_f32(const output *out, int i, int j, bool last, __m512 x)
{
    float *to = (float *)out->c + i * out->ldc + 16 * j;
    if (!last || out->last_lanes == 0xffffu) {
        if (out->add)
            x = _mm512_add_ps(_mm512_loadu_ps(to), x);
        _mm512_storeu_ps(to, x);
    } else {
        __mmask16 lanes = (__mmask16)out->last_lanes;
        if (out->add)
            x = _mm512_add_ps(_mm512_maskz_loadu_ps(lanes, to), x);
        _mm512_mask_storeu_ps(to, lanes, x);
    }
}

FSDP_INNER_LOOP FSDP_INLINE BF16_TARGET void store_bf16(const output *out, int i, int j, bool last,
                                                        __m256i x)
{
    uint16_t *to = (uint16_t *)out->c + i * out->ldc + 16 * j;
    if (!last || out->last_lanes == 0xffffu) /* masked stores of 2-byte elements are slow */
        _mm256_storeu_si256((__m256i *)(void *)to, x);
    else
        _mm256_mask_storeu_epi16(to, (__mmask16)out->last_lanes, x);
}

FSDP_INNER_LOOP FSDP_INLINE BF16_TARGET void tile(tile_kind kind, bool packed, int rows,
                                                  int vectors, int64_t depth, const char *a,
                                                  int64_t a_stride, const char *b, int64_t b_stride,
                                                  const output *out)
{
    __m512 acc[ROWS][VECTORS];
    UNROLL
    for (int i = 0; i < rows; i++) {
        UNROLL
        for (int j = 0; j < vectors; j++)
            acc[i][j] = _mm512_setzero_ps();
    }
    for (int64_t l = 0; l < depth; l++) {
        __m512i x[VECTORS];
        UNROLL
        for (int j = 0; j < vectors; j++)
            x[j] = _mm512_loadu_si512(b + 64 * j);
        UNROLL
        for (int i = 0; i < rows; i++) {
            __m512i y = broadcast(packed ? a + LANE * i : a + i * a_stride);
            UNROLL
            for (int j = 0; j < vectors; j++)
                acc[i][j] = multiply_add(has_pairs(kind), y, x[j], acc[i][j]);
        }
        a += packed ? LANE * ROWS : LANE;
        b += b_stride;
    }
    UNROLL
    for (int i = 0; i < rows; i++) {
        UNROLL
        for (int j = 0; j < vectors; j++) {
            if (kind == BF16_TO_BF16 || kind == F32_TO_BF16)
                store_bf16(out, i, j, j == vectors - 1,
                           fsdp_avx512_round_bf16(has_pairs(kind), acc[i][j]));
            else
                store_f32(out, i, j, j == vectors - 1, acc[i][j]);
        }
    }
}

#define TILE(kind, packed, rows, vectors)                                                          \
    BF16_TARGET FSDP_INNER_LOOP static void tile_##kind##_##packed##rows##vectors(                 \
        int64_t depth, const char *a, int64_t a_stride, const char *b, int64_t b_stride,           \
        const output *out)                                                                         \
    {                                                                                              \
        tile(kind, packed, rows, vectors, depth, a, a_stride, b, b_stride, out);                   \
    }
#define TILES_OF_ROWS(kind, packed, rows)                                                          \
    TILE(kind, packed, rows, 1) TILE(kind, packed, rows, 2) TILE(kind, packed, rows, 3)
#define TILES(kind, packed)                                                                        \
    TILES_OF_ROWS(kind, packed, 1)                                                                 \
    TILES_OF_ROWS(kind, packed, 2)                                                                 \
    TILES_OF_ROWS(kind, packed, 3)                                                                 \
    TILES_OF_ROWS(kind, packed, 4)                                                                 \
    TILES_OF_ROWS(kind, packed, 5)                                                                 \
    TILES_OF_ROWS(kind, packed, 6)                                                                 \
    TILES_OF_ROWS(kind, packed, 7) TILES_OF_ROWS(kind, packed, 8)
TILES(F32, 0)
TILES(F32, 1)
TILES(F32_TO_BF16, 1)
TILES(BF16, 0)
TILES(BF16, 1)
TILES(BF16_TO_BF16, 0)
TILES(BF16_TO_BF16, 1)

#define NAME(kind, packed, rows, vectors) tile_##kind##_##packed##rows##vectors
#define NAMES_OF_ROWS(kind, packed, rows)                                                          \
    {                                                                                              \
        NAME(kind, packed, rows, 1), NAME(kind, packed, rows, 2), NAME(kind, packed, rows, 3)      \
    }
#define NAMES(kind, packed)                                                                        \
    {                                                                                              \
        NAMES_OF_ROWS(kind, packed, 1), NAMES_OF_ROWS(kind, packed, 2),                            \
            NAMES_OF_ROWS(kind, packed, 3), NAMES_OF_ROWS(kind, packed, 4),                        \
            NAMES_OF_ROWS(kind, packed, 5), NAMES_OF_ROWS(kind, packed, 6),                        \
            NAMES_OF_ROWS(kind, packed, 7), NAMES_OF_ROWS(kind, packed, 8)                         \
    }
static tile_fn *const tiles[KINDS][2][ROWS][VECTORS] = {
    {NAMES(F32, 0), NAMES(F32, 1)},
    {{{NULL}}, NAMES(F32_TO_BF16, 1)},
    {NAMES(BF16, 0), NAMES(BF16, 1)},
    {NAMES(BF16_TO_BF16, 0), NAMES(BF16_TO_BF16, 1)}};

FSDP_INLINE int64_t size_of(fsdp_dtype dtype)
{
    return dtype == FSDP_DTYPE_F32 ? 4 : 2;
}

/* Compute a tile of C with `rows` rows and `vectors` vectors of columns by its tile_fn. A row of C
 * has c_bytes bytes. */
FSDP_INLINE void run_tile(tile_kind kind, bool packed, int rows, int vectors, int64_t depth,
                          const char *a, int64_t a_stride, const char *b, int64_t b_stride,
                          const output *out, int64_t c_bytes)
{
    if (packed && depth > 0)
        fsdp_check_read(a, ((depth - 1) * ROWS + rows) * LANE);
    for (int i = 0; i < rows && !packed; i++)
        fsdp_check_read(a + i * a_stride, depth * LANE);
    if (depth > 0)
        fsdp_check_read(b, (depth - 1) * b_stride + (int64_t)vectors * 64);
    int64_t size = kind == F32_TO_BF16 || kind == BF16_TO_BF16 ? 2 : 4;
    for (int i = 0; i < rows; i++)
        fsdp_check_write((char *)out->c + i * out->ldc * size, c_bytes);
    tiles[kind][packed][rows - 1][vectors - 1](depth, a, a_stride, b, b_stride, out);
}

/* --- blocks --- */

BF16_TARGET static void finish_tile(const fsdp_tile_block *b, float x[ROWS][FSDP_TILE_COLUMNS],
                                    int64_t i0, int rows, int64_t j0, int columns)
{
    fsdp_finish_tile(true, b, &x[0][0], FSDP_TILE_COLUMNS, i0, rows, j0, columns);
}

BF16_TARGET static void finish_widened_tile(const fsdp_tile_block *b,
                                            float x[ROWS][FSDP_TILE_COLUMNS], int64_t i0, int rows,
                                            int64_t j0, int columns)
{
    fsdp_finish_tile(false, b, &x[0][0], FSDP_TILE_COLUMNS, i0, rows, j0, columns);
}

/* Computes the tile of C that begins at row i and column j. `panel` contains `width` columns of
 * packed B, and the first of these columns belongs to column j of C. */
FSDP_INLINE void multiply_tile(bool widened, const fsdp_tile_block *b, const char *panel,
                               int64_t width, int64_t i, int64_t j)
{
    int rows = (int)fsdp_min_i64(b->m - i, ROWS);
    int columns = (int)fsdp_min_i64(b->n - j, width), vectors = (columns + 15) / 16;
    bool packed = b->a_stride == 0, bf16_c = b->c_dtype == FSDP_DTYPE_BF16;
    const char *a =
        (const char *)b->a + (packed ? i / ROWS * fsdp_tile_a_stride(b->depth) : i * b->a_stride);
    tile_kind kind = widened || b->dtype == FSDP_DTYPE_F32 ? F32 : BF16;
    if (b->sum || b->bias || (b->add && bf16_c)) {
        float buffer[ROWS][FSDP_TILE_COLUMNS] __attribute__((aligned(64)));
        run_tile(kind, packed, rows, vectors, b->depth, a, b->a_stride, panel, width * LANE,
                 &(output){buffer, FSDP_TILE_COLUMNS, false, 0xffffu}, vectors * 64);
        (widened ? finish_widened_tile : finish_tile)(b, buffer, i, rows, j, columns);
        return;
    }
    output out = {(char *)b->c + (i * b->ldc + j) * size_of(b->c_dtype), b->ldc, b->add,
                  first_bits(columns - 16 * (vectors - 1))};
    kind = !bf16_c ? kind : widened ? F32_TO_BF16 : BF16_TO_BF16;
    run_tile(kind, packed, rows, vectors, b->depth, a, b->a_stride, panel, width * LANE, &out,
             columns * size_of(b->c_dtype));
}

/* Note [Ahead of the tile]. The hardware prefetcher does not predict accesses to short pieces of
 * memory that are far apart. A tile accesses two such parts of memory. The first is the tile's part
 * of C. Each tile prefetches its part of C before it computes its sums. The second is the rows of
 * A, if A is not packed. While the tiles of one row of tiles are computed, each of them prefetches
 * a share of the rows of A that the next row of tiles will use. */
FSDP_INLINE void prefetch_c(const fsdp_tile_block *b, int rows, int64_t i, int64_t j,
                            int64_t columns)
{
    int64_t size = b->c_dtype == FSDP_DTYPE_F32 ? 4 : 2;
    int64_t stride = b->ldc * size, bytes = columns * size;
    const char *row = (const char *)b->c + i * stride + j * size;
    for (int r = 0; r < rows; r++, row += stride) {
        for (int64_t at = 0; at < bytes; at += 64)
            __builtin_prefetch(row + at, 1);
        __builtin_prefetch(row + bytes - 1, 1);
    }
}

FSDP_INLINE void prefetch_a(const fsdp_tile_block *b, int rows, int64_t i, int64_t part,
                            int64_t parts)
{
    int64_t bytes = b->depth * FSDP_TILE_LANE_BYTES, end = bytes * (part + 1) / parts;
    const char *row = (const char *)b->a + i * b->a_stride;
    for (int r = 0; r < rows; r++, row += b->a_stride)
        for (int64_t at = bytes * part / parts & -64; at < end; at += 64)
            __builtin_prefetch(row + at, 0, 2);
}

FSDP_INLINE void multiply_as(bool widened, const fsdp_tile_block *b)
{
    int64_t width = fsdp_tile_width(b->b_columns ? b->b_columns : b->n);
    int64_t panel_bytes = b->depth * width * LANE; /* 0 if k is 0 */
    int64_t group = GROUP_BYTES / (panel_bytes ? panel_bytes : LANE);
    group = group > 1 ? group : 1;
    int64_t b_stride = (b->b_depth ? b->b_depth : b->depth) * width * LANE;
    const char *panel =
        (const char *)b->b + b->b_column / width * b_stride + b->b_lane * width * LANE;
    int64_t panels = fsdp_ceil_div(b->n, width);
    bool far = b->depth >= FAR_DEPTH;
    for (int64_t p0 = 0; p0 < panels; p0 += group) {
        int64_t end = fsdp_min_i64(p0 + group, panels);
        for (int64_t i = 0; i < b->m; i += ROWS)
            for (int64_t p = p0; p < end; p++) {
                if (far && i + ROWS <= b->m)
                    prefetch_c(b, ROWS, i, p * width, fsdp_min_i64(b->n - p * width, width));
                if (far && p0 == 0 && b->a_stride && i + 2 * ROWS <= b->m)
                    prefetch_a(b, ROWS, i + ROWS, p, end);
                multiply_tile(widened, b, panel + p * b_stride, width, i, p * width);
            }
    }
}

static void multiply(const fsdp_tile_block *b)
{
    multiply_as(false, b);
}

static void multiply_widened(const fsdp_tile_block *b)
{
    multiply_as(true, b);
}

static int64_t panel_first(int64_t n, int64_t column)
{
    int64_t width = fsdp_tile_width(n);
    return column / width * width;
}

const fsdp_cpu_tiles FSDP_ISA_NAME_OF(fsdp_cpu_tiles) = {
    .rows = ROWS,
    .columns = FSDP_TILE_COLUMNS,
    .most_depth = 1024, /* with this depth, a panel of B has at most 192 KiB */
    .most_long_depth = 1024,
    .most_packed_k = 512,
    .a_bytes = 512 << 10,
    .b_bytes = 2 << 20,
    .pack_b = pack_b,
    .pack_a = pack_a,
    .multiply = multiply,
    .panel_first = panel_first};

const fsdp_cpu_tiles FSDP_ISA_NAME_OF(fsdp_cpu_widening_tiles) = {.widens = true,
                                                                  .rows = ROWS,
                                                                  .columns = FSDP_TILE_COLUMNS,
                                                                  .most_depth = 512,
                                                                  .most_long_depth = 512,
                                                                  .most_packed_k = 512,
                                                                  .a_bytes = 512 << 10,
                                                                  .b_bytes = 2 << 20,
                                                                  .pack_b = pack_b_widened,
                                                                  .pack_a = pack_a_widened,
                                                                  .multiply = multiply_widened,
                                                                  .panel_first = panel_first};
#endif
