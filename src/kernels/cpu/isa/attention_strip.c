/* Softmax of attention and its gradient, on strips of queries, with AVX-512; see Note [Strips] in
 * attention_tiles.h. If the tiles multiply bf16, P and dS are bf16, and the CPU must have
 * AVX512-BF16. If the tiles widen bf16 or the tensors are f32, P and dS are f32, and AVX512-BF16 is
 * not needed. */
#include "src/kernels/cpu/attention_tiles.h"

#include "src/kernels/cpu/isa/isa.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__)
#include "src/kernels/cpu/isa/avx512.h"
#include "src/kernels/cpu/isa/philox.h"

enum {
    ROWS = FSDP_TILE_ROWS,
    /* The number of rows that are packed together. In a packed tile, one column of these rows takes
     * two lanes of 4 bytes in bf16, and four lanes in f32. */
    QUAD = 4,
    COLUMNS = FSDP_AMX_COLUMNS, /* columns of a panel for AMX */
    PANEL_ROW = FSDP_AMX_PANEL_ROW
};

static const float log2_e = 0x1.715476p+0f, ln_2 = 0x1.62e430p-1f;

/* Returns 2^x for x up to 127. The result is 0 for -infinity and NaN for NaN. A polynomial computes
 * 2^r, where r is the fractional part of x. The polynomial is a minimax fit, as in vec.h. There is
 * one polynomial for bf16 and one for f32. The polynomial for bf16 has an error of 2.6e-6. This is
 * small enough, because the callers round the result to bf16. The polynomial for f32 has an error
 * of 2e-9, in addition to the error of rounding the result to f32. */
FSDP_INLINE __m512 exp2_of(fsdp_dtype dtype, __m512 x)
{
    const __m512 r = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    __m512 q;
    if (dtype == FSDP_DTYPE_BF16) {
        q = _mm512_set1_ps(0x1.bb7cd4p-7f);
        q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(0x1.aa13f0p-5f));
        q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(0x1.ee798ap-3f));
        q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(0x1.62d166p-1f));
        q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(0x1.00002cp+0f));
    } else {
        q = _mm512_set1_ps(0x1.c7211ap-13f);
        q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(0x1.461954p-10f));
        q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(0x1.3d2800p-7f));
        q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(0x1.c68500p-5f));
        q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(0x1.ebfd9ep-3f));
        q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(0x1.62e42ap-1f));
        q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(1.0f));
    }
    return _mm512_scalef_ps(q, x);
}

/* Returns a mask of columns [j, j + 16): bit i is set if column j + i is in [begin, end). */
FSDP_INLINE __mmask16 lanes_in(int j, int begin, int end)
{
    uint32_t from = begin <= j ? 0xffffu : begin >= j + 16 ? 0 : 0xffffu << (begin - j);
    uint32_t to = end >= j + 16 ? 0xffffu : end <= j ? 0 : 0xffffu >> (16 - (end - j));
    return (__mmask16)(from & to);
}

FSDP_INLINE BF16_TARGET __m512i round_two(__m512 upper, __m512 lower)
{
    return (__m512i)_mm512_cvtne2ps_pbh(upper, lower);
}

/* --- forward --- */

/* In the visible columns, replaces each score x of a row with scale * x + bias. In all other
 * columns, replaces the score with -infinity. Returns the maximum of the new values. */
FSDP_INLINE float scale_row(const fsdp_attention_strip *s, int row, float *x)
{
    const float *bias = s->bias ? s->bias - row : NULL;
    __m512 scale = _mm512_set1_ps(s->scale), none = _mm512_set1_ps(-INFINITY);
    __m512 most[2] = {none, none};
    int begin = s->begin[row], end = s->end[row];
    for (int j = 0; j < s->columns; j += 32) {
        bool inside = begin <= j && j + 32 <= end;
        UNROLL
        for (int i = 0; i < 2; i++) {
            int at = j + 16 * i;
            __m512 y = _mm512_loadu_ps(x + at);
            y = bias ? _mm512_fmadd_ps(scale, y, _mm512_loadu_ps(bias + at))
                     : _mm512_mul_ps(scale, y);
            if (!inside)
                y = _mm512_mask_mov_ps(none, lanes_in(at, begin, end), y);
            _mm512_storeu_ps(x + at, y);
            most[i] = _mm512_max_ps(y, most[i]);
        }
    }
    return _mm512_reduce_max_ps(_mm512_max_ps(most[0], most[1]));
}

/* Two sums of the exponentials of each row before dropout. `exact` is the sum of the f32 values.
 * `stored` is the sum of the values as P stores them, that is, rounded to the dtype of P. The
 * output is divided by `stored`, so that the weights in P add up to one. */
typedef struct row_sums {
    float exact[16], stored[16];
} row_sums;

FSDP_INLINE BF16_TARGET void exponentials_bf16(const fsdp_attention_strip *s, int row,
                                               float maximum, uint16_t *p, row_sums *sums)
{
    const float *x = s->scores + row * s->ld;
    const uint32_t *keep = s->keep ? s->keep + row * s->keep_ld : NULL;
    __m512 exact[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()}, stored = _mm512_setzero_ps();
    __m512i ones = _mm512_set1_epi16(0x3f80);
    __m512 most = _mm512_set1_ps(maximum);
    for (int j = 0; j < s->columns; j += 32) {
        __m512 e[2];
        UNROLL
        for (int i = 0; i < 2; i++) {
            e[i] = exp2_of(FSDP_DTYPE_BF16, _mm512_sub_ps(_mm512_loadu_ps(x + j + 16 * i), most));
            exact[i] = _mm512_add_ps(exact[i], e[i]);
        }
        __m512i rounded = round_two(e[1], e[0]);
        stored = _mm512_dpbf16_ps(stored, (__m512bh)rounded, (__m512bh)ones);
        if (keep)
            rounded = _mm512_maskz_mov_epi16(keep[j / 32], rounded);
        _mm512_storeu_si512(p + j, rounded);
    }
    sums->exact[row] = _mm512_reduce_add_ps(_mm512_add_ps(exact[0], exact[1]));
    sums->stored[row] = _mm512_reduce_add_ps(stored);
}

FSDP_INLINE void exponentials_f32(const fsdp_attention_strip *s, int row, float maximum, float *p,
                                  row_sums *sums)
{
    const float *x = s->scores + row * s->ld;
    const uint32_t *keep = s->keep ? s->keep + row * s->keep_ld : NULL;
    __m512 sum[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    __m512 most = _mm512_set1_ps(maximum);
    for (int j = 0; j < s->columns; j += 32) {
        UNROLL
        for (int i = 0; i < 2; i++) {
            int at = j + 16 * i;
            __m512 e = exp2_of(FSDP_DTYPE_F32, _mm512_sub_ps(_mm512_loadu_ps(x + at), most));
            sum[i] = _mm512_add_ps(sum[i], e);
            if (keep)
                e = _mm512_maskz_mov_ps((__mmask16)(keep[j / 32] >> (16 * i)), e);
            _mm512_storeu_ps(p + at, e);
        }
    }
    sums->exact[row] = sums->stored[row] = _mm512_reduce_add_ps(_mm512_add_ps(sum[0], sum[1]));
}

/* Computes softmax. Each step is done for all rows before the next step begins. The rows are
 * independent of each other, so the CPU can compute on one row while it waits for results of
 * another row. */
BF16_TARGET static void softmax(const fsdp_attention_strip *s, void *p, int64_t p_ld, float *lse,
                                float *inverse)
{
    bool bf16 = s->dtype == FSDP_DTYPE_BF16;
    float maximum[16];
    row_sums sums;
    for (int row = 0; row < s->rows; row++)
        maximum[row] = scale_row(s, row, s->scores + row * s->ld);
    for (int row = 0; row < s->rows; row++) {
        /* The maximum of a row is -infinity if its query sees no key, or if all scores that it sees
         * are NaN. In both cases, subtract 0 from the scores: the exponential of -infinity is then
         * 0, and NaN stays NaN. Subtracting -infinity would make all exponentials NaN. */
        maximum[row] = maximum[row] == -INFINITY ? 0.0f : maximum[row];
        if (bf16)
            exponentials_bf16(s, row, maximum[row], (uint16_t *)p + row * p_ld, &sums);
        else
            exponentials_f32(s, row, maximum[row], (float *)p + row * p_ld, &sums);
    }
    for (int row = s->rows; row < 16; row++)
        maximum[row] = 0.0f, sums.exact[row] = sums.stored[row] = 1.0f;
    for (int row = 0; row < 16; row++)
        sums.exact[row] = maximum[row] * ln_2 + fsdp_log(sums.exact[row]);
    for (int row = 0; row < s->rows; row++) {
        const float sum = sums.stored[row]; /* 0 if no key is seen; NaN if a score is NaN */
        lse[row] = sum == 0.0f ? -INFINITY : isnan(sum) ? sum : sums.exact[row];
        inverse[row] = sum == 0.0f ? 0.0f : 1.0f / sum;
    }
}

/* --- backward --- */

/* Stores four rows of sixteen columns (keys) to two tiles of eight keys each. The 4-byte elements
 * of a tile are ordered [pair of rows][8 keys] for bf16 and [row][8 keys] for f32. If `part` is
 * true, only the first `rows` of the four rows exist. */
FSDP_INLINE BF16_TARGET void put_tiles(fsdp_dtype dtype, bool part, int rows, char *to,
                                       int64_t tile_bytes, const __m512 x[QUAD],
                                       const __m512i rounded[2])
{
    /* In f32, out[tile][i] has rows 2 i and 2 i + 1 of the four rows. In bf16, out[tile][0] has all
     * four rows, and out[tile][1] is not used. */
    __m512i out[2][2];
    int halves = dtype == FSDP_DTYPE_BF16 ? 1 : 2;
    if (dtype == FSDP_DTYPE_BF16) {
        const __m512i lower =
            _mm512_set_epi16(55, 39, 54, 38, 53, 37, 52, 36, 51, 35, 50, 34, 49, 33, 48, 32, 23, 7,
                             22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
        const __m512i upper = _mm512_add_epi16(lower, _mm512_set1_epi16(8));
        out[0][0] = _mm512_permutex2var_epi16(rounded[0], lower, rounded[1]);
        out[1][0] = _mm512_permutex2var_epi16(rounded[0], upper, rounded[1]);
    } else {
        UNROLL
        for (int i = 0; i < 2; i++) {
            out[0][i] = (__m512i)_mm512_shuffle_f32x4(x[2 * i], x[2 * i + 1], 0x44);
            out[1][i] = (__m512i)_mm512_shuffle_f32x4(x[2 * i], x[2 * i + 1], 0xee);
        }
    }
    UNROLL
    for (int tile = 0; tile < 2; tile++) {
        UNROLL
        for (int i = 0; i < halves; i++) {
            char *at = to + tile * tile_bytes + 64 * i;
            int left = dtype == FSDP_DTYPE_BF16 ? (rows + 1) / 2 : rows - 2 * i;
            if (!part || left >= 2)
                _mm512_storeu_si512(at, out[tile][i]);
            else if (left == 1)
                /* Only one row (f32) or one pair of rows (bf16) is left. It fills half of a
                 * register. Store only this half, because the memory that follows belongs to the
                 * next tile. */
                _mm256_storeu_si256((__m256i *)(void *)at, _mm512_castsi512_si256(out[tile][i]));
        }
    }
}

/* Stores sixteen columns of two rows to one row of a panel for AMX. `rounded` has both rows, as
 * round_two() returns them. Each 4-byte element of the panel gets the elements of both rows in one
 * column. */
FSDP_INLINE void put_pair(char *to, __m512i rounded)
{
    const __m512i pairs =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                         21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    _mm512_storeu_si512(to, _mm512_permutexvar_epi16(pairs, rounded));
}

/* Returns sixteen columns of a row of dS, shifted right by (7 - row) columns. Column j of row r
 * belongs to entry j - r of the bias table, so the same column belongs to different entries in
 * different rows. After the shift, element i of the result belongs to the same entry for all rows,
 * so the shifted rows can be added. `now` has the sixteen columns before they are shifted. `before`
 * has the sixteen columns to the left of `now`. The last columns of `before` are shifted into the
 * result. */
FSDP_INLINE __m512 shifted(int row, __m512 before, __m512 now)
{
    const __m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    __m512i from = _mm512_add_epi32(lane, _mm512_set1_epi32(16 - (ROWS - 1 - row)));
    return row == ROWS - 1 ? now : _mm512_permutex2var_ps(before, from, now);
}

FSDP_INLINE void add_to(float *x, __m512 y)
{
    _mm512_storeu_ps(x, _mm512_add_ps(_mm512_loadu_ps(x), y));
}

/* Computes P and dS of the sixteen columns [j, j + 16) and stores them at the addresses in `g`.
 * `part` may be false only if three conditions hold: all rows exist, all these columns are visible
 * in all rows, and no element is dropped. If `biased` is true and g->d_bias is not NULL, also adds
 * dS to g->d_bias. For this sum, before[r] must be dS of row r in the sixteen columns to the left
 * of column j. The function sets before[r] to dS of row r in columns [j, j + 16), for the next
 * call. */
FSDP_INLINE BF16_TARGET void gradient_of(fsdp_dtype dtype, bool amx, bool part, bool biased,
                                         const fsdp_attention_strip *s,
                                         const fsdp_attention_gradient *g, const float *lse,
                                         const float *delta, int j, __m512 before[ROWS])
{
    __m512 scale = _mm512_set1_ps(s->scale), diagonal = _mm512_setzero_ps();
    int64_t size = dtype == FSDP_DTYPE_BF16 ? 2 : 4;
    UNROLL
    for (int quad = 0; quad < ROWS; quad += QUAD) {
        __m512 p[QUAD], d_s[QUAD];
        __m512i p_rounded[2] = {0}, d_s_rounded[2] = {0};
        if (part && !amx && quad >= s->rows)
            break;
        UNROLL
        for (int i = 0; i < QUAD; i++) {
            int row = quad + i;
            __m512 y = _mm512_loadu_ps(s->scores + row * s->ld + j);
            __m512 d = _mm512_loadu_ps(g->d_p + row * s->ld + j);
            __m512 minus = _mm512_set1_ps(-lse[row]);
            y = biased ? _mm512_add_ps(
                             _mm512_fmadd_ps(scale, y, _mm512_loadu_ps(s->bias + j - row)), minus)
                       : _mm512_fmadd_ps(scale, y, minus);
            __m512 e = exp2_of(dtype, y);
            p[i] = e;
            if (part) {
                __mmask16 seen = row < s->rows ? lanes_in(j, s->begin[row], s->end[row]) : 0;
                __mmask16 kept = seen;
                if (s->keep && row < s->rows) {
                    kept &= (__mmask16)(s->keep[row * s->keep_ld + j / 32] >> (j & 16));
                    d = _mm512_mul_ps(d, _mm512_set1_ps(g->keep_factor));
                }
                e = _mm512_maskz_mov_ps(seen, e);
                d = _mm512_maskz_mov_ps(kept, d);
                p[i] = _mm512_maskz_mov_ps(kept, e);
            }
            d_s[i] = _mm512_mul_ps(e, _mm512_sub_ps(d, _mm512_set1_ps(delta[row])));
            if (biased) {
                diagonal = _mm512_add_ps(diagonal, shifted(row, before[row], d_s[i]));
                before[row] = d_s[i];
            }
        }
        char *rows = (char *)g->d_s + (quad * g->d_s_ld + j) * size;
        UNROLL
        for (int i = 0; i < QUAD / 2 && dtype == FSDP_DTYPE_BF16; i++) {
            p_rounded[i] = round_two(p[2 * i + 1], p[2 * i]);
            d_s_rounded[i] = round_two(d_s[2 * i + 1], d_s[2 * i]);
            char *at = rows + 2 * i * g->d_s_ld * size;
            _mm256_storeu_si256((__m256i *)(void *)at, _mm512_castsi512_si256(d_s_rounded[i]));
            _mm256_storeu_si256((__m256i *)(void *)(at + g->d_s_ld * size),
                                _mm512_extracti64x4_epi64(d_s_rounded[i], 1));
        }
        UNROLL
        for (int i = 0; i < QUAD && dtype == FSDP_DTYPE_F32; i++)
            _mm512_storeu_ps(rows + i * g->d_s_ld * size, d_s[i]);
        /* Without AMX, a tile stores 8 elements of 4 bytes, one for each key, per group of rows. In
         * bf16 a group is a pair of rows, in f32 it is a single row. */
        if (amx) {
            const int64_t at = j / COLUMNS * g->tile_bytes + quad / 2 * PANEL_ROW + j % COLUMNS * 4;
            UNROLL
            for (int i = 0; i < 2; i++) {
                put_pair(g->p_tiles + at + i * PANEL_ROW, p_rounded[i]);
                put_pair(g->d_s_tiles + at + i * PANEL_ROW, d_s_rounded[i]);
            }
            continue;
        }
        int64_t at = quad * 8 * size + j / 8 * g->tile_bytes;
        put_tiles(dtype, part, s->rows - quad, g->p_tiles + at, g->tile_bytes, p, p_rounded);
        put_tiles(dtype, part, s->rows - quad, g->d_s_tiles + at, g->tile_bytes, d_s, d_s_rounded);
    }
    if (biased && g->d_bias)
        add_to(g->d_bias + j - (ROWS - 1), diagonal);
}

FSDP_INLINE BF16_TARGET void gradient_as(fsdp_dtype dtype, bool amx, bool biased,
                                         const fsdp_attention_strip *s,
                                         const fsdp_attention_gradient *g)
{
    __m512 before[ROWS];
    float lse[ROWS] = {0}, delta[ROWS] = {0};
    int first = 0, last = s->columns; /* columns [first, last) are visible in all rows */
    for (int row = 0; row < ROWS; row++) {
        before[row] = _mm512_setzero_ps();
        if (row < s->rows) {
            lse[row] = g->lse[row] * log2_e;
            delta[row] = g->delta[row];
            first = s->begin[row] > first ? s->begin[row] : first;
            last = s->end[row] < last ? s->end[row] : last;
        }
    }
    first = fsdp_padded(first);
    last &= -16;
    if (s->rows < ROWS || s->keep || last <= first)
        first = last = s->columns;
    for (int j = 0; j < first; j += 16)
        gradient_of(dtype, amx, true, biased, s, g, lse, delta, j, before);
    for (int j = first; j < last; j += 16)
        gradient_of(dtype, amx, false, biased, s, g, lse, delta, j, before);
    for (int j = last; j < s->columns; j += 16)
        gradient_of(dtype, amx, true, biased, s, g, lse, delta, j, before);
    if (!biased || !g->d_bias)
        return;
    __m512 diagonal = _mm512_setzero_ps();
    for (int row = 0; row < ROWS - 1; row++)
        diagonal = _mm512_add_ps(diagonal, shifted(row, before[row], _mm512_setzero_ps()));
    add_to(g->d_bias + s->columns - (ROWS - 1), diagonal);
}

BF16_TARGET static void gradient(const fsdp_attention_strip *s, const fsdp_attention_gradient *g)
{
    if (s->dtype == FSDP_DTYPE_BF16 && s->bias)
        gradient_as(FSDP_DTYPE_BF16, false, true, s, g);
    else if (s->dtype == FSDP_DTYPE_BF16)
        gradient_as(FSDP_DTYPE_BF16, false, false, s, g);
    else if (s->bias)
        gradient_as(FSDP_DTYPE_F32, false, true, s, g);
    else
        gradient_as(FSDP_DTYPE_F32, false, false, s, g);
}

BF16_TARGET static void gradient_amx(const fsdp_attention_strip *s,
                                     const fsdp_attention_gradient *g)
{
    if (s->bias)
        gradient_as(FSDP_DTYPE_BF16, true, true, s, g);
    else
        gradient_as(FSDP_DTYPE_BF16, true, false, s, g);
}

/* --- dropout --- */

static void keep(uint32_t *bits, uint64_t key, uint64_t element, float p, int64_t columns)
{
    const uint32_t least = fsdp_drop_threshold(p), any = least > 0xffff ? 0 : ~(uint32_t)0;
    const __m512i threshold = _mm512_set1_epi16((short)least);
    for (int64_t j = 0; j < columns; j += 64) {
        uint32_t words[32];
        fsdp_philox8(words, key, (element + (uint64_t)j) / FSDP_COUNTER_HALVES);
        for (int64_t i = 0; i < 64 && j + i < columns; i += 32)
            bits[(j + i) / 32] =
                any & _mm512_cmpge_epu16_mask(_mm512_loadu_si512(words + i / 2), threshold);
    }
}

/* --- dot() and store(): rows of the attention's inputs and outputs --- */

static void dot_widened(float *sums, const void *x, const void *y, fsdp_dtype dtype, int64_t ld,
                        int64_t rows, int64_t width)
{
    for (int64_t i = 0; i < rows; i++) {
        __m512 sum = _mm512_setzero_ps();
        for (int64_t j = 0; j < width; j += 16) {
            __mmask16 lanes = lanes_in((int)j, 0, (int)width);
            sum = _mm512_fmadd_ps(fsdp_avx512_load(x, dtype, i * ld + j, lanes),
                                  fsdp_avx512_load(y, dtype, i * ld + j, lanes), sum);
        }
        sums[i] = _mm512_reduce_add_ps(sum);
    }
}

BF16_TARGET static void dot(float *sums, const void *x, const void *y, fsdp_dtype dtype, int64_t ld,
                            int64_t rows, int64_t width)
{
    if (dtype == FSDP_DTYPE_F32) {
        dot_widened(sums, x, y, dtype, ld, rows, width);
        return;
    }
    for (int64_t i = 0; i < rows; i++) {
        __m512 sum = _mm512_setzero_ps();
        for (int64_t j = 0; j < width; j += 32) {
            __mmask32 lanes = width - j >= 32 ? ~(uint32_t)0 : ((uint32_t)1 << (width - j)) - 1;
            __m512i a = _mm512_maskz_loadu_epi16(lanes, (const uint16_t *)x + i * ld + j);
            __m512i b = _mm512_maskz_loadu_epi16(lanes, (const uint16_t *)y + i * ld + j);
            sum = _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
        }
        sums[i] = _mm512_reduce_add_ps(sum);
    }
}

FSDP_INLINE BF16_TARGET void store_as(bool use_bf16, void *dst, fsdp_dtype dtype, int64_t dst_ld,
                                      const float *src, int64_t src_ld, const float *factors,
                                      float factor, int64_t rows, int64_t width)
{
    int64_t size = dtype == FSDP_DTYPE_F32 ? 4 : 2;
    for (int64_t i = 0; i < rows; i++) {
        /* Prefetch the rows of dst that the next iteration or the next strip writes. The hardware
         * prefetcher does not predict their addresses, because rows are short and far apart. */
        const char *ahead = (const char *)dst + (i + ROWS) * dst_ld * size;
        for (int64_t at = 0; at < width * size; at += 64)
            __builtin_prefetch(ahead + at, 1);
        __m512 f = _mm512_set1_ps(factors ? factors[i] * factor : factor);
        for (int64_t j = 0; j < width; j += 16) {
            __mmask16 lanes = lanes_in(0, 0, (int)fsdp_min_i64(width - j, 16));
            __m512 x = _mm512_mul_ps(_mm512_loadu_ps(src + i * src_ld + j), f);
            fsdp_avx512_store(use_bf16, dst, dtype, i * dst_ld + j, lanes, x);
        }
    }
}

BF16_TARGET static void store(void *dst, fsdp_dtype dtype, int64_t dst_ld, const float *src,
                              int64_t src_ld, const float *factors, float factor, int64_t rows,
                              int64_t width)
{
    store_as(true, dst, dtype, dst_ld, src, src_ld, factors, factor, rows, width);
}

BF16_TARGET static void store_widened(void *dst, fsdp_dtype dtype, int64_t dst_ld, const float *src,
                                      int64_t src_ld, const float *factors, float factor,
                                      int64_t rows, int64_t width)
{
    store_as(false, dst, dtype, dst_ld, src, src_ld, factors, factor, rows, width);
}

/* Stores src^T * factor in dst. src is transposed in squares of 16 x 16 elements, sixteen rows of
 * dst at a time. */
BF16_TARGET static void store_turned(void *dst, fsdp_dtype dtype, int64_t dst_ld, const float *src,
                                     int64_t src_ld, float factor, int64_t rows, int64_t width)
{
    const __m512 f = _mm512_set1_ps(factor);
    const int64_t size = dtype == FSDP_DTYPE_F32 ? 4 : 2;
    for (int64_t i = 0; i < rows; i += 16)
        for (int64_t j = 0; j < width; j += 16) {
            __m512i x[16];
            const __mmask16 lanes = lanes_in(0, 0, (int)fsdp_min_i64(width - j, 16));
            const char *ahead = (const char *)dst + ((i + 16) * dst_ld + j) * size;
            for (int r = 0; r < 16; r++) /* prefetch the next rows of dst, as in store_as() */
                __builtin_prefetch(ahead + r * dst_ld * size, 1);
            const __mmask16 there = lanes_in(0, 0, (int)fsdp_min_i64(rows - i, 16));
            UNROLL
            for (int r = 0; r < 16; r++)
                x[r] = j + r < width
                           ? (__m512i)_mm512_mul_ps(
                                 f, _mm512_maskz_loadu_ps(there, src + (j + r) * src_ld + i))
                           : _mm512_setzero_si512();
            fsdp_avx512_transpose(x);
            for (int64_t r = 0; r < 16 && i + r < rows; r++)
                fsdp_avx512_store(true, dst, dtype, (i + r) * dst_ld + j, lanes, (__m512)x[r]);
        }
}

const fsdp_cpu_attention_strips FSDP_ISA_NAME_OF(fsdp_cpu_attention_strips) = {
    .softmax = softmax, .gradient = gradient, .keep = keep, .dot = dot, .store = store};

const fsdp_cpu_attention_strips FSDP_ISA_NAME_OF(fsdp_cpu_amx_strips) = {
    .softmax = softmax,
    .gradient = gradient_amx,
    .keep = keep,
    .dot = dot,
    .store = store,
    .store_turned = store_turned};

const fsdp_cpu_attention_strips FSDP_ISA_NAME_OF(fsdp_cpu_widening_strips) = {
    .softmax = softmax,
    .gradient = gradient,
    .keep = keep,
    .dot = dot_widened,
    .store = store_widened};
#endif
