/* Softmax of attention and its gradient, on strips of eight queries, with AVX2; see Note [Strips]
 * in attention_tiles.h. The AVX2 tiles widen bf16, so P and dS are float32 for every dtype of the
 * tensors. */
#include "src/kernels/cpu/attention_tiles.h"

#include "src/kernels/cpu/isa/isa.h"

#if defined(__AVX2__) && defined(__FMA__) && !defined(__AVX512F__)
#include "src/kernels/cpu/isa/avx2.h"
#include "src/kernels/cpu/isa/philox.h"

enum {
    ROWS = FSDP_TILE_ROWS,
    LANES = 8
};

static const float log2_e = 0x1.715476p+0f, ln_2 = 0x1.62e430p-1f;

/* Returns 2^x for x above -126 and up to 127. The result is 0 for x <= -126 and NaN for NaN. A
 * polynomial computes 2^r, where r is the fractional part of x. exp2_of() in attention_strip.c uses
 * the same polynomial for f32. */
FSDP_INLINE fsdp_vec exp2_of(fsdp_vec x)
{
    fsdp_veci seen = x > -126.0f;
    x = fsdp_vec_max(fsdp_vec_set(-126.0f), x);
    const fsdp_vec whole = (fsdp_vec)_mm256_floor_ps((__m256)x), r = x - whole;
    fsdp_vec q = fsdp_vec_set(0x1.c7211ap-13f);
    q = fsdp_vec_fma(q, r, fsdp_vec_set(0x1.461954p-10f));
    q = fsdp_vec_fma(q, r, fsdp_vec_set(0x1.3d2800p-7f));
    q = fsdp_vec_fma(q, r, fsdp_vec_set(0x1.c68500p-5f));
    q = fsdp_vec_fma(q, r, fsdp_vec_set(0x1.ebfd9ep-3f));
    q = fsdp_vec_fma(q, r, fsdp_vec_set(0x1.62e42ap-1f));
    q = fsdp_vec_fma(q, r, fsdp_vec_set(1.0f));
    fsdp_vecu power = (fsdp_vecu)_mm256_cvtps_epi32((__m256)whole) << 23;
    fsdp_vecu y = (fsdp_vecu)q + power;
    return (fsdp_vec)(y & (fsdp_vecu)(seen | (x != x)));
}

/* Returns a mask in which lane i is all ones if bit i of `bits` is set, and zero otherwise. A set
 * bit means that dropout keeps the element. */
FSDP_INLINE fsdp_veci lanes_of(uint32_t bits)
{
    const fsdp_veci bit = {1, 2, 4, 8, 16, 32, 64, 128};
    return (((fsdp_veci){0} + (int32_t)bits) & bit) != 0;
}

FSDP_INLINE fsdp_vec mask_lanes(fsdp_veci lanes, fsdp_vec x)
{
    return (fsdp_vec)((fsdp_veci)x & lanes);
}

/* --- forward --- */

/* In the visible columns, replaces each score x of a row with scale * x + bias. In all other
 * columns, replaces the score with -infinity. Returns the maximum of the new values. */
FSDP_INLINE float scale_row(const fsdp_attention_strip *s, int row, float *x)
{
    const float *bias = s->bias ? s->bias - row : NULL;
    fsdp_vec scale = fsdp_vec_set(s->scale), none = fsdp_vec_set(-INFINITY);
    fsdp_vec most[2] = {none, none};
    int begin = s->begin[row], end = s->end[row];
    for (int j = 0; j < s->columns; j += 2 * LANES) {
        bool inside = begin <= j && j + 2 * LANES <= end;
        UNROLL
        for (int i = 0; i < 2; i++) {
            int at = j + LANES * i;
            fsdp_vec y = fsdp_vec_load(x + at);
            y = bias ? fsdp_vec_fma(scale, y, fsdp_vec_load(bias + at)) : scale * y;
            if (!inside)
                y = fsdp_vec_select(fsdp_vec_lanes(at, begin, end), y, none);
            fsdp_vec_store(x + at, y);
            most[i] = fsdp_vec_max(y, most[i]);
        }
    }
    return fsdp_vec_max_lane(fsdp_vec_max(most[0], most[1]));
}

/* Computes a row of P = 2^(x - maximum), and applies dropout if s->keep is not NULL. Returns the
 * sum of the row before dropout. */
FSDP_INLINE float exponentials(const fsdp_attention_strip *s, int row, float maximum, float *p)
{
    const float *x = s->scores + row * s->ld;
    const uint32_t *keep = s->keep ? s->keep + row * s->keep_ld : NULL;
    fsdp_vec sum[2] = {fsdp_vec_set(0.0f), fsdp_vec_set(0.0f)}, most = fsdp_vec_set(maximum);
    for (int j = 0; j < s->columns; j += 2 * LANES) {
        UNROLL
        for (int i = 0; i < 2; i++) {
            int at = j + LANES * i;
            fsdp_vec e = exp2_of(fsdp_vec_load(x + at) - most);
            sum[i] += e;
            if (keep)
                e = mask_lanes(lanes_of(keep[at / 32] >> at % 32), e);
            fsdp_vec_store(p + at, e);
        }
    }
    return fsdp_vec_sum(sum[0] + sum[1]);
}

static void softmax(const fsdp_attention_strip *s, void *p, int64_t p_ld, float *lse,
                    float *inverse)
{
    for (int row = 0; row < s->rows; row++) {
        float maximum = scale_row(s, row, s->scores + row * s->ld);
        /* The maximum of a row is -infinity if its query sees no key, or if all scores that it sees
         * are NaN. In both cases, subtract 0 from the scores: the exponential of -infinity is then
         * 0, and NaN stays NaN. Subtracting -infinity would make all exponentials NaN. */
        const float most = maximum == -INFINITY ? 0.0f : maximum;
        /* 0 if no key is seen; NaN if a score is NaN */
        float sum = exponentials(s, row, most, (float *)p + row * p_ld);
        lse[row] = sum == 0.0f ? -INFINITY : isnan(sum) ? sum : most * ln_2 + fsdp_log(sum);
        inverse[row] = sum == 0.0f ? 0.0f : 1.0f / sum;
    }
}

/* --- backward --- */

/* Returns eight columns of a row of dS, shifted right by (7 - row) columns. Column j of row r
 * belongs to entry j - r of the bias table, so the same column belongs to different entries in
 * different rows. After the shift, element i of the result belongs to the same entry for all rows,
 * so the shifted rows can be added. `now` has the eight columns before they are shifted. `before`
 * has the eight columns to the left of `now`. The last columns of `before` are shifted into the
 * result. */
FSDP_INLINE fsdp_vec shifted(int row, fsdp_vec before, fsdp_vec now)
{
    const fsdp_veci lane = {0, 1, 2, 3, 4, 5, 6, 7};
    fsdp_vec both = fsdp_vec_select(lane <= row, now, before);
    fsdp_veci from = (lane + (row + 1)) & (LANES - 1);
    return (fsdp_vec)_mm256_permutevar8x32_ps((__m256)both, (__m256i)from);
}

FSDP_INLINE void add_to(float *x, fsdp_vec y)
{
    fsdp_vec_store(x, fsdp_vec_load(x) + y);
}

/* Computes P and dS of the eight columns [j, j + 8) and stores them at the addresses in `g`. `part`
 * may be false only if three conditions hold: all rows exist, all these columns are visible in all
 * rows, and no element is dropped. If `biased` is true and g->d_bias is not NULL, also adds dS to
 * g->d_bias. For this sum, before[r] must be dS of row r in the eight columns to the left of column
 * j. The function sets before[r] to dS of row r in columns [j, j + 8), for the next call. */
FSDP_INLINE void gradient_of(bool part, bool biased, const fsdp_attention_strip *s,
                             const fsdp_attention_gradient *g, const float *lse, const float *delta,
                             int j, fsdp_vec before[ROWS])
{
    fsdp_vec scale = fsdp_vec_set(s->scale), diagonal = fsdp_vec_set(0.0f);
    int64_t tile = j / LANES * g->tile_bytes;
    float *p_tile = (float *)(void *)(g->p_tiles + tile);
    float *d_s_tile = (float *)(void *)(g->d_s_tiles + tile);
    UNROLL
    for (int row = 0; row < ROWS; row++) {
        if (part && row >= s->rows)
            break;
        fsdp_vec y = fsdp_vec_load(s->scores + row * s->ld + j);
        fsdp_vec d = fsdp_vec_load(g->d_p + row * s->ld + j), minus = fsdp_vec_set(-lse[row]);
        y = biased ? fsdp_vec_fma(scale, y, fsdp_vec_load(s->bias + j - row)) + minus
                   : fsdp_vec_fma(scale, y, minus);
        fsdp_vec e = exp2_of(y), p = e;
        if (part) {
            fsdp_veci seen = fsdp_vec_lanes(j, s->begin[row], s->end[row]), kept = seen;
            if (s->keep) {
                kept &= lanes_of(s->keep[row * s->keep_ld + j / 32] >> j % 32);
                d *= g->keep_factor;
            }
            e = mask_lanes(seen, e);
            d = mask_lanes(kept, d);
            p = mask_lanes(kept, e);
        }
        fsdp_vec d_s = e * (d - delta[row]);
        fsdp_vec_store((float *)g->d_s + row * g->d_s_ld + j, d_s);
        fsdp_vec_store(p_tile + row * LANES, p);
        fsdp_vec_store(d_s_tile + row * LANES, d_s);
        if (biased) {
            diagonal += shifted(row, before[row], d_s);
            before[row] = d_s;
        }
    }
    if (biased && g->d_bias)
        add_to(g->d_bias + j - (ROWS - 1), diagonal);
}

FSDP_INLINE void gradient_as(bool biased, const fsdp_attention_strip *s,
                             const fsdp_attention_gradient *g)
{
    fsdp_vec before[ROWS];
    float lse[ROWS] = {0}, delta[ROWS] = {0};
    int first = 0, last = s->columns; /* columns [first, last) are visible in all rows */
    for (int row = 0; row < ROWS; row++) {
        before[row] = fsdp_vec_set(0.0f);
        if (row < s->rows) {
            lse[row] = g->lse[row] * log2_e;
            delta[row] = g->delta[row];
            first = s->begin[row] > first ? s->begin[row] : first;
            last = s->end[row] < last ? s->end[row] : last;
        }
    }
    first = (first + LANES - 1) & -LANES;
    last &= -LANES;
    if (s->rows < ROWS || s->keep || last <= first)
        first = last = s->columns;
    for (int j = 0; j < first; j += LANES)
        gradient_of(true, biased, s, g, lse, delta, j, before);
    for (int j = first; j < last; j += LANES)
        gradient_of(false, biased, s, g, lse, delta, j, before);
    for (int j = last; j < s->columns; j += LANES)
        gradient_of(true, biased, s, g, lse, delta, j, before);
    if (!biased || !g->d_bias)
        return;
    fsdp_vec diagonal = fsdp_vec_set(0.0f);
    for (int row = 0; row < ROWS - 1; row++)
        diagonal += shifted(row, before[row], fsdp_vec_set(0.0f));
    add_to(g->d_bias + s->columns - (ROWS - 1), diagonal);
}

static void gradient(const fsdp_attention_strip *s, const fsdp_attention_gradient *g)
{
    if (s->bias)
        gradient_as(true, s, g);
    else
        gradient_as(false, s, g);
}

/* --- dropout --- */

/* Compares each 16-bit half of `words` with the threshold. Bit i of the result is set if half i is
 * greater than or equal to the threshold. All 16-bit lanes of `threshold` must equal the
 * threshold. */
static uint32_t halves_at_least(__m256i threshold, const uint32_t words[16])
{
    __m256i kept[2];
    for (int i = 0; i < 2; i++) {
        const __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)(words + 8 * i));
        kept[i] = _mm256_cmpeq_epi16(_mm256_max_epu16(x, threshold), x);
    }
    /* The instructions that pack words and bytes work on each half of the register separately. The
     * permutation below restores the order. */
    const __m256i bytes = _mm256_packs_epi16(kept[0], kept[1]);
    return (uint32_t)_mm256_movemask_epi8(_mm256_permute4x64_epi64(bytes, 0xd8));
}

static void keep(uint32_t *bits, uint64_t key, uint64_t element, float p, int64_t columns)
{
    const uint32_t least = fsdp_drop_threshold(p), any = least > 0xffff ? 0 : ~(uint32_t)0;
    const __m256i threshold = _mm256_set1_epi16((short)least);
    for (int64_t j = 0; j < columns; j += 64) {
        uint32_t words[32];
        fsdp_philox8(words, key, (element + (uint64_t)j) / FSDP_COUNTER_HALVES);
        for (int64_t i = 0; i < 64 && j + i < columns; i += 32)
            bits[(j + i) / 32] = any & halves_at_least(threshold, words + i / 2);
    }
}

/* --- dot and store: rows of tensors, not of scores --- */

static void dot(float *sums, const void *x, const void *y, fsdp_dtype dtype, int64_t ld,
                int64_t rows, int64_t width)
{
    bool bf16 = dtype == FSDP_DTYPE_BF16;
    int64_t size = bf16 ? 2 : 4;
    for (int64_t i = 0; i < rows; i++) {
        fsdp_vec sum = fsdp_vec_set(0.0f);
        for (int64_t j = 0; j < width; j += LANES) {
            int64_t at = (i * ld + j) * size;
            fsdp_vec a = (fsdp_vec)fsdp_avx2_load((const char *)x + at, bf16, width - j);
            fsdp_vec b = (fsdp_vec)fsdp_avx2_load((const char *)y + at, bf16, width - j);
            sum = fsdp_vec_fma(a, b, sum);
        }
        sums[i] = fsdp_vec_sum(sum);
    }
}

static void store(void *dst, fsdp_dtype dtype, int64_t dst_ld, const float *src, int64_t src_ld,
                  const float *factors, float factor, int64_t rows, int64_t width)
{
    int64_t size = dtype == FSDP_DTYPE_BF16 ? 2 : 4;
    for (int64_t i = 0; i < rows; i++) {
        /* Prefetch the rows of dst that the next iteration or the next strip writes. The hardware
         * prefetcher does not predict their addresses, because rows are short and far apart. */
        const char *ahead = (const char *)dst + (i + ROWS) * dst_ld * size;
        for (int64_t at = 0; at < width * size; at += 64)
            __builtin_prefetch(ahead + at, 1);
        fsdp_vec f = fsdp_vec_set(factors ? factors[i] * factor : factor);
        for (int64_t j = 0; j < width; j += LANES) {
            fsdp_vec x = fsdp_vec_load(src + i * src_ld + j) * f;
            int64_t at = i * dst_ld + j;
            float rest[LANES];
            if (width - j < LANES) {
                fsdp_vec_store(rest, x);
                fsdp_store_block(dst, dtype, at, rest, (int)(width - j));
            } else if (dtype == FSDP_DTYPE_BF16) {
                fsdp_vec_store_bf16((uint16_t *)dst + at, x);
            } else {
                fsdp_vec_store((float *)dst + at, x);
            }
        }
    }
}

const fsdp_cpu_attention_strips FSDP_ISA_NAME_OF(fsdp_cpu_attention_strips) = {
    .softmax = softmax, .gradient = gradient, .keep = keep, .dot = dot, .store = store};
#endif
