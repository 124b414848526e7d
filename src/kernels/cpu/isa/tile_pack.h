/* Packing of matrices for the AVX-512 tiles (tile.c) and the AMX tiles (tile_amx.c); see tile.h.
 * The functions exist only if the ISA of the compilation has AVX-512. */
#pragma once
#include "src/kernels/cpu/isa/avx512.h"
#include "src/kernels/cpu/isa/inner_loop.h"
#include "src/kernels/cpu/tile.h"

#if defined(__AVX512F__) && defined(__AVX512BW__)
enum {
    /* pack_rows() packs this many neighboring elements of one row of its source, then the elements
     * in the same columns of the next row, and so on. Each column of the source is a column of B or
     * a row of A. */
    PACK_STRIP = 512,
    PACK_AHEAD = 4096,      /* prefetch distance of pack_rows(), in elements */
    PACK_AHEAD_ALONG = 512, /* prefetch distance of pack_contiguous() along each row, in bytes */
    /* If a row has at most this many bytes, pack_contiguous() prefetches parts of the next sixteen
     * rows instead of further parts of the same row. */
    PACK_SHORT_ROW = 2048
};

/* The contents of a packed lane of 4 bytes. */
typedef enum pack_form {
    PACK_F32,
    PACK_PAIRS,  /* two bf16 elements: Note [Lanes] in tile.h */
    PACK_WIDENED /* one bf16 element, widened to f32 */
} pack_form;

/* The address at which packing stores sixteen columns of B (in their panel) or sixteen rows of A
 * (in their two tiles). */
typedef struct target {
    char *at;       /* address of the first lane along k */
    int64_t stride; /* bytes from one lane along k to the next */
    /* The distance in bytes from the first eight of the sixteen columns (or rows) to the last
     * eight, at the same lane along k. */
    int64_t upper;
} target;

FSDP_INLINE void store_lanes(const target *t, int64_t lane, __m512i x)
{
    char *at = t->at + lane * t->stride;
    _mm256_storeu_si256((__m256i *)(void *)at, _mm512_castsi512_si256(x));
    _mm256_storeu_si256((__m256i *)(void *)(at + t->upper), _mm512_extracti64x4_epi64(x, 1));
}

/* Prefetch the cache line at `address` into the second-level cache. In the first-level cache, rows
 * that are a multiple of 4096 bytes apart would evict each other before they are used. An address
 * past the end of the array does no harm. */
FSDP_INLINE void prefetch_l2(uintptr_t address)
{
    __builtin_prefetch((const void *)address, 0, 2);
}

FSDP_INLINE uint32_t first_bits(int64_t n)
{
    return n >= 32 ? ~(uint32_t)0 : ((uint32_t)1 << n) - 1;
}

/* Return the number of elements along k that one lane contains. */
FSDP_INLINE int64_t per_lane(pack_form form)
{
    return form == PACK_PAIRS ? 2 : 1;
}

/* Return the number of bytes that the elements of a lane occupy in memory, before packing. */
FSDP_INLINE int64_t lane_bytes(pack_form form)
{
    return form == PACK_WIDENED ? 2 : 4;
}

/* Load up to `left` elements along k into sixteen lanes. With PACK_PAIRS, a lane has two elements,
 * so the last lane may be only half full. Everything after the last element is set to zero. */
FSDP_INLINE __m512i load_lanes(pack_form form, const char *at, int64_t left)
{
    if (form == PACK_F32)
        return _mm512_maskz_loadu_epi32((__mmask16)first_bits(left), at);
    if (form == PACK_PAIRS)
        return _mm512_maskz_loadu_epi16(first_bits(left), at);
    return _mm512_castps_si512(
        fsdp_avx512_load(at, FSDP_DTYPE_BF16, 0, (__mmask16)first_bits(left)));
}

/* Pack `rows` rows. Each row has `left` elements along k, which take at most sixteen lanes. For
 * whole blocks, callers pass `rows` and `left` as constants. The compiler then makes a copy of this
 * function without conditions. */
FSDP_INLINE void pack_block(pack_form form, const target *to, const char *src, int64_t row_bytes,
                            int64_t lane, int rows, int64_t left, int64_t ahead)
{
    __m512i r[16];
    const char *at = src + lane * lane_bytes(form);
    /* This statement makes the compiler advance a single pointer from row to row. Without it, the
     * compiler would keep sixteen pointers, for which there are not enough registers. */
    __asm__("" : "+r"(at));
    UNROLL
    for (int i = 0; i < 16; i++) {
        r[i] = i < rows ? load_lanes(form, at, left) : _mm512_setzero_si512();
        prefetch_l2((uintptr_t)at + (uintptr_t)ahead);
        at = (const char *)((uintptr_t)at + (uintptr_t)row_bytes);
    }
    fsdp_avx512_transpose(r);
    UNROLL
    for (int i = 0; i < 16; i++)
        if (i * per_lane(form) < left)
            store_lanes(to, lane + i, r[i]);
}

/* Pack `rows` rows. `rows` is at most sixteen. Each row has k elements, which are contiguous in
 * memory. */
FSDP_INLINE void pack_contiguous(pack_form form, const target *to, const char *src,
                                 int64_t row_bytes, int64_t k, int64_t rows)
{
    const int64_t whole = 16 * per_lane(form), bytes = k * lane_bytes(form) / per_lane(form);
    int64_t ahead = bytes <= PACK_SHORT_ROW ? 16 * row_bytes : PACK_AHEAD_ALONG;
    for (int64_t lane = 0; lane * per_lane(form) < k; lane += 16) {
        int64_t left = k - lane * per_lane(form);
        if (rows == 16 && left >= whole)
            pack_block(form, to, src, row_bytes, lane, 16, whole, ahead);
        else
            pack_block(form, to, src, row_bytes, lane, (int)rows, fsdp_min_i64(left, whole), ahead);
    }
}

/* Return the place of columns [16 i, 16 i + 16) of B in the packed panels, or of rows [16 i, 16 i +
 * 16) of A in the packed tiles. */
typedef target target_fn(void *packed, int64_t depth, int64_t width, int64_t i);

/* Return the prefetch distance of pack_rows() and pack_row_pairs() in rows of the source. */
static int64_t rows_ahead(int64_t columns)
{
    return PACK_AHEAD / columns < 8 ? 8 : PACK_AHEAD / columns;
}

/* Pack a matrix that is stored as k rows of `columns` neighboring elements. It is read row by row,
 * because this order is the fastest. */
FSDP_INLINE void pack_rows(pack_form form, const target *to, const char *src, int64_t row_bytes,
                           int64_t k, int64_t columns)
{
    int64_t ahead = rows_ahead(columns) * row_bytes;
    for (int64_t lane = 0; lane < k; lane++)
        for (int64_t j = 0; j < columns; j += 16) {
            const char *at = src + lane * row_bytes + j * lane_bytes(form);
            prefetch_l2((uintptr_t)at + (uintptr_t)ahead);
            store_lanes(&to[j / 16], lane, load_lanes(form, at, columns - j));
        }
}

/* Load two rows of the source, which belong to two neighboring indices along k. Both elements of a
 * column are put into one lane. There are up to 32 columns: lanes[0] gets the first 16, and
 * lanes[1] gets the others. If `second` is false, there is only one row, and zeros replace the
 * second one. */
FSDP_INLINE void load_pair(__m512i lanes[2], const char *at, int64_t row_bytes, int64_t columns,
                           bool second)
{
    const __m512i pairs =
        _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6,
                         37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    const __m512i upper_pairs = _mm512_add_epi16(pairs, _mm512_set1_epi16(16));
    __mmask32 mask = first_bits(columns);
    __m512i x = _mm512_maskz_loadu_epi16(mask, at);
    __m512i y = _mm512_maskz_loadu_epi16(second ? mask : 0, second ? at + row_bytes : at);
    lanes[0] = _mm512_permutex2var_epi16(x, pairs, y);
    lanes[1] = _mm512_permutex2var_epi16(x, upper_pairs, y);
}

/* Pack two rows of the source, which load_pair() loads as pairs. For two rows of 32 columns,
 * callers pass `second` and `columns` as constants, so that the compiler compiles a copy of this
 * function that has no branches. */
FSDP_INLINE void pack_pair(const target *to, int64_t lane, const char *at, int64_t row_bytes,
                           bool second, int64_t columns)
{
    __m512i lanes[2];
    load_pair(lanes, at, row_bytes, columns, second);
    store_lanes(&to[0], lane, lanes[0]);
    if (columns > 16)
        store_lanes(&to[1], lane, lanes[1]);
}

/* Pack a bf16 matrix that is stored as k rows of `columns` neighboring elements. Two rows of the
 * source become one row of lanes. */
FSDP_INLINE void pack_row_pairs(const target *to, const char *src, int64_t row_bytes, int64_t k,
                                int64_t columns)
{
    int64_t ahead = rows_ahead(columns) * row_bytes;
    for (int64_t row = 0; row < k; row += 2)
        for (int64_t j = 0; j < columns; j += 32) {
            const char *at = src + row * row_bytes + 2 * j;
            prefetch_l2((uintptr_t)at + (uintptr_t)ahead);
            prefetch_l2((uintptr_t)at + (uintptr_t)(ahead + row_bytes));
            if (row + 1 < k && columns - j >= 32)
                pack_pair(&to[j / 16], row / 2, at, row_bytes, true, 32);
            else
                pack_pair(&to[j / 16], row / 2, at, row_bytes, row + 1 < k, columns - j);
        }
}

/* Masked loads are not instrumented: see Note [Inner loops under sanitizers] in inner_loop.h. */
FSDP_INLINE void check_source(const char *src, int64_t rows, int64_t row_bytes, int64_t read_bytes)
{
    for (int64_t row = 0; row < rows; row++)
        fsdp_check_read(src + row * row_bytes, read_bytes);
}

FSDP_INLINE void pack_as(pack_form form, target_fn *target_of, void *dst, const char *src,
                         int64_t ld, bool k_is_row, int64_t k, int64_t n)
{
    int64_t size = lane_bytes(form) / per_lane(form), row_bytes = ld * size;
    int64_t depth = fsdp_ceil_div(k, per_lane(form)), strip = k_is_row ? PACK_STRIP : 16;
    int64_t width = fsdp_tile_width(n);
    check_source(src, k_is_row ? k : n, row_bytes, (k_is_row ? n : k) * size);
    for (int64_t first = 0; first < n; first += strip) {
        target to[PACK_STRIP / 16];
        int64_t columns = fsdp_min_i64(strip, n - first);
        const char *from = src + (k_is_row ? first * size : first * row_bytes);
        for (int64_t i = 0; 16 * i < columns; i++)
            to[i] = target_of(dst, depth, width, first / 16 + i);
        if (!k_is_row)
            pack_contiguous(form, to, from, row_bytes, k, columns);
        else if (form == PACK_PAIRS)
            pack_row_pairs(to, from, row_bytes, k, columns);
        else
            pack_rows(form, to, from, row_bytes, k, columns);
    }
}
#endif
