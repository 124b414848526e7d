/* Packing and tiles of matrix products with AVX-512; see tile.h. */
#include "src/kernels/cpu/tile.h"

#include "src/kernels/cpu/isa/isa.h"

#if defined(__AVX512F__) && defined(__AVX512BW__)
#include "src/kernels/cpu/isa/block.h"
#include "src/kernels/cpu/isa/vec16.h"

/* Loops of constant length over registers. */
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

enum {
    ROWS = FSDP_TILE_ROWS,
    VECTORS = FSDP_TILE_COLUMNS / 16,
    LANE = FSDP_TILE_LANE_BYTES,
    LINE = 64,
    /* Lanes. A shorter tile is over before memory answers, and what it reads lies in the cache. */
    FAR_DEPTH = 128,
    STRIP = 512,            /* columns of B, rows of A that a row of k is packed for at a time */
    AHEAD = 4096,           /* elements that packing asks for ahead of time */
    AHEAD_ALONG = 512,      /* bytes of each of sixteen rows, */
    SHORT_ROW = 2048,       /* unless they are shorter than this: then the next sixteen */
    GROUP_BYTES = 256 << 10 /* of B that all rows of a block see in turn, in the second cache */
};

/* --- packing --- */

/* Sixteen columns of a panel of B, or the rows of two tiles of A, at one lane of k. */
typedef struct target {
    char *at;       /* of lane 0 */
    int64_t stride; /* bytes from a lane of k to the next */
    int64_t upper;  /* bytes from the lower 8 to the upper 8 of the sixteen */
} target;

FSDP_INLINE void put(const target *t, int64_t lane, __m512i x)
{
    char *at = t->at + lane * t->stride;
    _mm256_storeu_si256((__m256i *)(void *)at, _mm512_castsi512_si256(x));
    _mm256_storeu_si256((__m256i *)(void *)(at + t->upper), _mm512_extracti64x4_epi64(x, 1));
}

/* What packing will read, into the second cache: rows a multiple of 4096 bytes apart would push
 * each other out of the first before their turn. An address past the end does no harm. */
FSDP_INLINE void ask(uintptr_t address)
{
    __builtin_prefetch((const void *)address, 0, 2);
}

FSDP_INLINE uint32_t first_bits(int64_t n)
{
    return n >= 32 ? ~(uint32_t)0 : ((uint32_t)1 << n) - 1;
}

/* 16 x 16 lanes, rows to columns. */
FSDP_INLINE void transpose(__m512i r[16])
{
    __m512i t[16];
    UNROLL
    for (int i = 0; i < 8; i++) {
        t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
    }
    UNROLL
    for (int i = 0; i < 4; i++) {
        r[4 * i] = _mm512_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
        r[4 * i + 1] = _mm512_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
        r[4 * i + 2] = _mm512_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
        r[4 * i + 3] = _mm512_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
    }
    UNROLL
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_i32x4(r[i], r[4 + i], 0x88);
        t[4 + i] = _mm512_shuffle_i32x4(r[i], r[4 + i], 0xdd);
        t[8 + i] = _mm512_shuffle_i32x4(r[8 + i], r[12 + i], 0x88);
        t[12 + i] = _mm512_shuffle_i32x4(r[8 + i], r[12 + i], 0xdd);
    }
    UNROLL
    for (int i = 0; i < 8; i++) {
        int high = i & 4, low = i & 3;
        r[high + low] = _mm512_shuffle_i32x4(t[high + low], t[8 + high + low], 0x88);
        r[8 + high + low] = _mm512_shuffle_i32x4(t[high + low], t[8 + high + low], 0xdd);
    }
}

/* `rows` rows and `lanes` lanes of k, the last one's `mask` of 2-byte elements; constants where it
 * is inlined for whole blocks. */
FSDP_INLINE void pack_block(const target *to, const char *src, int64_t row_bytes, int64_t lane,
                            int rows, int lanes, __mmask32 mask, int64_t ahead)
{
    __m512i r[16];
    const char *at = src + lane * LANE;
    __asm__("" : "+r"(at)); /* one pointer, not sixteen that do not fit the registers */
    UNROLL
    for (int i = 0; i < 16; i++) {
        r[i] = i < rows ? _mm512_maskz_loadu_epi16(mask, at) : _mm512_setzero_si512();
        ask((uintptr_t)at + (uintptr_t)ahead);
        at = (const char *)((uintptr_t)at + (uintptr_t)row_bytes);
    }
    transpose(r);
    UNROLL
    for (int i = 0; i < 16; i++)
        if (i < lanes)
            put(to, lane + i, r[i]);
}

/* Up to sixteen rows of k contiguous elements, `halves` of 2 bytes each. */
static void pack_contiguous(const target *to, const char *src, int64_t row_bytes, int64_t halves,
                            int64_t rows)
{
    int64_t ahead = 2 * halves <= SHORT_ROW ? 16 * row_bytes : AHEAD_ALONG;
    for (int64_t lane = 0; 2 * lane < halves; lane += 16) {
        int64_t left = halves - 2 * lane;
        if (rows == 16 && left >= 32)
            pack_block(to, src, row_bytes, lane, 16, 16, ~(uint32_t)0, ahead);
        else
            pack_block(to, src, row_bytes, lane, (int)rows, (int)fsdp_min_i64(16, (left + 1) / 2),
                       first_bits(left), ahead);
    }
}

/* Where columns [16 i, 16 i + 16) of B, or rows of A, go. */
typedef target target_fn(void *packed, int64_t depth, int64_t width, int64_t i);

static target target_of_b(void *panels, int64_t depth, int64_t width, int64_t i)
{
    int64_t stride = width * LANE, vectors = width / 16;
    return (target){(char *)panels + i / vectors * depth * stride + i % vectors * 16 * LANE, stride,
                    8 * LANE};
}

static target target_of_a(void *tiles, int64_t depth, int64_t width, int64_t i)
{
    (void)width;
    int64_t tile_bytes = fsdp_tile_a_stride(depth);
    return (target){(char *)tiles + 2 * i * tile_bytes, ROWS * LANE, tile_bytes};
}

/* How many rows further on what packing asks for lies. */
static int64_t rows_ahead(int64_t columns)
{
    return AHEAD / columns < 8 ? 8 : AHEAD / columns;
}

/* Rows of k with `columns` neighbouring columns: read along the rows, as memory likes it best. */
static void pack_rows_f32(const target *to, const char *src, int64_t row_bytes, int64_t k,
                          int64_t columns)
{
    int64_t ahead = rows_ahead(columns) * row_bytes;
    for (int64_t lane = 0; lane < k; lane++)
        for (int64_t j = 0; j < columns; j += 16) {
            const char *at = src + lane * row_bytes + j * LANE;
            ask((uintptr_t)at + (uintptr_t)ahead);
            put(&to[j / 16], lane,
                _mm512_maskz_loadu_epi32((__mmask16)first_bits(columns - j), at));
        }
}

/* Two rows of k, or one and zeros; up to 32 columns. Constants where whole ones are inlined. */
FSDP_INLINE void pack_pair(const target *to, int64_t lane, const char *at, int64_t row_bytes,
                           bool second, int64_t columns)
{
    const __m512i pairs =
        _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6,
                         37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    const __m512i upper_pairs = _mm512_add_epi16(pairs, _mm512_set1_epi16(16));
    __mmask32 mask = first_bits(columns);
    __m512i x = _mm512_maskz_loadu_epi16(mask, at);
    __m512i y = _mm512_maskz_loadu_epi16(second ? mask : 0, second ? at + row_bytes : at);
    put(&to[0], lane, _mm512_permutex2var_epi16(x, pairs, y));
    if (columns > 16)
        put(&to[1], lane, _mm512_permutex2var_epi16(x, upper_pairs, y));
}

static void pack_rows_bf16(const target *to, const char *src, int64_t row_bytes, int64_t k,
                           int64_t columns)
{
    int64_t ahead = rows_ahead(columns) * row_bytes;
    for (int64_t row = 0; row < k; row += 2)
        for (int64_t j = 0; j < columns; j += 32) {
            const char *at = src + row * row_bytes + 2 * j;
            ask((uintptr_t)at + (uintptr_t)ahead);
            ask((uintptr_t)at + (uintptr_t)(ahead + row_bytes));
            if (row + 1 < k && columns - j >= 32)
                pack_pair(&to[j / 16], row / 2, at, row_bytes, true, 32);
            else
                pack_pair(&to[j / 16], row / 2, at, row_bytes, row + 1 < k, columns - j);
        }
}

FSDP_INLINE void pack(target_fn *target_of, void *dst, fsdp_dtype dtype, const char *src,
                      int64_t ld, bool k_is_row, int64_t k, int64_t n)
{
    int64_t size = (int64_t)fsdp_dtype_size(dtype), row_bytes = ld * size;
    int64_t depth = fsdp_tile_depth(dtype, k), strip = k_is_row ? STRIP : 16;
    int64_t width = fsdp_tile_width(n);
    for (int64_t first = 0; first < n; first += strip) {
        target to[STRIP / 16];
        int64_t columns = fsdp_min_i64(strip, n - first);
        const char *from = src + (k_is_row ? first * size : first * row_bytes);
        for (int64_t i = 0; 16 * i < columns; i++)
            to[i] = target_of(dst, depth, width, first / 16 + i);
        if (!k_is_row)
            pack_contiguous(to, from, row_bytes, k * size / 2, columns);
        else if (dtype == FSDP_DTYPE_F32)
            pack_rows_f32(to, from, row_bytes, k, columns);
        else
            pack_rows_bf16(to, from, row_bytes, k, columns);
    }
}

static void pack_b(void *panels, fsdp_dtype dtype, const void *src, int64_t ld, bool k_is_row,
                   int64_t k, int64_t n)
{
    pack(target_of_b, panels, dtype, src, ld, k_is_row, k, n);
}

static void pack_a(void *tiles, fsdp_dtype dtype, const void *src, int64_t ld, bool k_is_row,
                   int64_t k, int64_t m)
{
    pack(target_of_a, tiles, dtype, src, ld, k_is_row, k, m);
}

/* --- one tile --- */

/* What uses the instructions of AVX512-BF16: it is inlined into functions of the same target, and
 * called for bf16 alone where the CPU has them. */
#define BF16_TARGET __attribute__((target("avx512bf16")))

/* acc += products of a lane. */
FSDP_INLINE BF16_TARGET __m512 multiply_add(bool bf16, __m512i a, __m512i b, __m512 acc)
{
    return bf16 ? _mm512_dpbf16_ps(acc, (__m512bh)a, (__m512bh)b)
                : _mm512_fmadd_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b), acc);
}

/* Rounded to nearest even; what is not normal becomes zero, as it does in products. */
FSDP_INLINE BF16_TARGET __m256i round_bf16(__m512 x)
{
    return (__m256i)_mm512_cvtneps_pbh(x);
}

FSDP_INLINE __m512i broadcast(const char *a)
{
    int lane;
    memcpy(&lane, a, sizeof lane);
    return _mm512_set1_epi32(lane);
}

/* Where a tile's results go. */
typedef struct output {
    void *c; /* f32, or bf16 for the kernels that write it */
    int64_t ldc;
    bool add;            /* to what is there; f32 */
    unsigned last_lanes; /* of the last vector of each row; the others are not touched */
} output;

/* `a`: rows a_stride bytes apart, or packed. */
typedef void tile_fn(int64_t depth, const char *a, int64_t a_stride, const char *b,
                     int64_t b_stride, const output *out);

typedef enum tile_kind {
    F32,          /* of A and B and C */
    BF16,         /* C is f32 */
    BF16_TO_BF16, /* and overwritten */
    KINDS
} tile_kind;

FSDP_INLINE void store_f32(const output *out, int i, int j, bool last, __m512 x)
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

FSDP_INLINE BF16_TARGET void store_bf16(const output *out, int i, int j, bool last, __m512 x)
{
    uint16_t *to = (uint16_t *)out->c + i * out->ldc + 16 * j;
    if (!last || out->last_lanes == 0xffffu) /* masked stores of 2 bytes are slow */
        _mm256_storeu_si256((__m256i *)(void *)to, round_bf16(x));
    else
        _mm256_mask_storeu_epi16(to, (__mmask16)out->last_lanes, round_bf16(x));
}

FSDP_INLINE BF16_TARGET void tile(tile_kind kind, bool packed, int rows, int vectors, int64_t depth,
                                  const char *a, int64_t a_stride, const char *b, int64_t b_stride,
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
                acc[i][j] = multiply_add(kind != F32, y, x[j], acc[i][j]);
        }
        a += packed ? LANE * ROWS : LANE;
        b += b_stride;
    }
    UNROLL
    for (int i = 0; i < rows; i++) {
        UNROLL
        for (int j = 0; j < vectors; j++) {
            if (kind == BF16_TO_BF16)
                store_bf16(out, i, j, j == vectors - 1, acc[i][j]);
            else
                store_f32(out, i, j, j == vectors - 1, acc[i][j]);
        }
    }
}

#define TILE(kind, packed, rows, vectors)                                                          \
    BF16_TARGET static void tile_##kind##_##packed##rows##vectors(                                 \
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
    {NAMES(BF16, 0), NAMES(BF16, 1)},
    {NAMES(BF16_TO_BF16, 0), NAMES(BF16_TO_BF16, 1)}};

/* --- blocks --- */

FSDP_INLINE int64_t size_of(fsdp_dtype dtype)
{
    return dtype == FSDP_DTYPE_F32 ? 4 : 2;
}

FSDP_INLINE fsdp_v16 load_lanes(const void *x, fsdp_dtype dtype, int64_t i, __mmask16 lanes)
{
    if (dtype == FSDP_DTYPE_F32)
        return (fsdp_v16)_mm512_maskz_loadu_ps(lanes, (const float *)x + i);
    __m256i half = _mm256_maskz_loadu_epi16(lanes, (const uint16_t *)x + i);
    return (fsdp_v16)_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16);
}

/* Sixteen columns of a tile of results to their place (i, j) in C, with what is added. */
FSDP_INLINE BF16_TARGET void finish_row(const fsdp_tile_block *b, bool whole, __mmask16 lanes,
                                        fsdp_v16 y, fsdp_v16 bias, int64_t i, int64_t j)
{
    int64_t at = i * b->ldc + j;
    if (b->sum)
        y += load_lanes(b->sum, FSDP_DTYPE_F32, i * b->sum_ld + j, lanes);
    y += bias;
    if (b->add)
        y += load_lanes(b->c, b->c_dtype, at, lanes);
    if (b->c_dtype == FSDP_DTYPE_F32)
        _mm512_mask_storeu_ps((float *)b->c + at, lanes, (__m512)y);
    else if (whole) /* masked stores of 2 bytes are slow */
        _mm256_storeu_si256((__m256i *)(void *)((uint16_t *)b->c + at), round_bf16((__m512)y));
    else
        _mm256_mask_storeu_epi16((uint16_t *)b->c + at, lanes, round_bf16((__m512)y));
}

/* A tile of results [rows, columns] in `x` to its place (i0, j0). */
BF16_TARGET static void finish(const fsdp_tile_block *b, float x[ROWS][FSDP_TILE_COLUMNS],
                               int64_t i0, int rows, int64_t j0, int columns)
{
    for (int j = 0; j < columns; j += 16) {
        __mmask16 lanes = (__mmask16)first_bits(columns - j);
        fsdp_v16 bias = b->bias ? load_lanes(b->bias, b->dtype, j0 + j, lanes) : fsdp_set16(0.0f);
        if (columns - j >= 16) {
            for (int i = 0; i < rows; i++)
                finish_row(b, true, 0xffff, fsdp_load16(&x[i][j]), bias, i0 + i, j0 + j);
        } else {
            for (int i = 0; i < rows; i++)
                finish_row(b, false, lanes, fsdp_load16(&x[i][j]), bias, i0 + i, j0 + j);
        }
    }
}

/* Tile (i, j) of C, `columns` wide; `panel` holds columns j onwards, `width` a lane of k. */
static void multiply_tile(const fsdp_tile_block *b, const char *panel, int64_t width, int64_t i,
                          int64_t j)
{
    int rows = (int)fsdp_min_i64(b->m - i, ROWS);
    int columns = (int)fsdp_min_i64(b->n - j, width), vectors = (columns + 15) / 16;
    bool packed = b->a_stride == 0, bf16_c = b->c_dtype == FSDP_DTYPE_BF16;
    const char *a =
        (const char *)b->a + (packed ? i / ROWS * fsdp_tile_a_stride(b->depth) : i * b->a_stride);
    tile_kind kind = b->dtype == FSDP_DTYPE_F32 ? F32 : BF16;
    if (b->sum || b->bias || (b->add && bf16_c)) {
        float buffer[ROWS][FSDP_TILE_COLUMNS] __attribute__((aligned(64)));
        tiles[kind][packed][rows - 1][vectors - 1](
            b->depth, a, b->a_stride, panel, width * LANE,
            &(output){buffer, FSDP_TILE_COLUMNS, false, 0xffffu});
        finish(b, buffer, i, rows, j, columns);
        return;
    }
    output out = {(char *)b->c + (i * b->ldc + j) * size_of(b->c_dtype), b->ldc, b->add,
                  first_bits(columns - 16 * (vectors - 1))};
    tiles[bf16_c ? BF16_TO_BF16 : kind][packed][rows - 1][vectors - 1](b->depth, a, b->a_stride,
                                                                       panel, width * LANE, &out);
}

/* Note [Ahead of the tile]: what a tile adds to or overwrites, and the rows of A that the next row
 * of tiles starts with, lie in short pieces far apart, which the hardware's prefetcher does not
 * foresee. They are asked for a tile and a row of tiles ahead; each tile of a row asks for its
 * part. */
static void prefetch_c(const fsdp_tile_block *b, int64_t i, int64_t j, int64_t columns)
{
    int64_t size = size_of(b->c_dtype), stride = b->ldc * size, bytes = columns * size;
    const char *row = (const char *)b->c + i * stride + j * size;
    for (int r = 0; r < ROWS; r++, row += stride) {
        for (int64_t at = 0; at < bytes; at += LINE)
            __builtin_prefetch(row + at, 1);
        __builtin_prefetch(row + bytes - 1, 1);
    }
}

static void prefetch_a(const fsdp_tile_block *b, int64_t i, int64_t part, int64_t parts)
{
    int64_t bytes = b->depth * LANE, end = bytes * (part + 1) / parts;
    const char *row = (const char *)b->a + i * b->a_stride;
    for (int r = 0; r < ROWS; r++, row += b->a_stride)
        for (int64_t at = bytes * part / parts & -LINE; at < end; at += LINE)
            __builtin_prefetch(row + at, 0, 2);
}

static void multiply(const fsdp_tile_block *b)
{
    int64_t width = fsdp_tile_width(b->b_columns ? b->b_columns : b->n);
    int64_t panel_bytes = b->depth * width * LANE; /* 0: products over nothing */
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
                    prefetch_c(b, i, p * width, fsdp_min_i64(b->n - p * width, width));
                if (far && p0 == 0 && b->a_stride && i + 2 * ROWS <= b->m)
                    prefetch_a(b, i + ROWS, p, end);
                multiply_tile(b, panel + p * b_stride, width, i, p * width);
            }
    }
}

static int64_t panel_first(int64_t n, int64_t column)
{
    int64_t width = fsdp_tile_width(n);
    return column / width * width;
}

const fsdp_cpu_tiles FSDP_ISA_NAME_OF(fsdp_cpu_tiles) = {
    .most_depth = 1024, /* a panel of B is at most 192 KiB */
    .most_packed_k = 512,
    .a_bytes = 512 << 10,
    .pack_b = pack_b,
    .pack_a = pack_a,
    .multiply = multiply,
    .panel_first = panel_first};
#endif
