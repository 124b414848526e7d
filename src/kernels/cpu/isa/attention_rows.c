/* Attention's computations on rows of scores, between the matrix products: scale, bias, mask,
 * softmax, dropout and their gradients (attention.h). A row is processed in whole vectors. Vector
 * elements for keys that the row's query does not see are undefined. They are replaced before they
 * can affect a result. */
#include "src/kernels/cpu/attention.h"

#include "src/kernels/cpu/isa/block.h"
#include "src/kernels/cpu/isa/philox.h"

enum {
    KEEP_KEYS = 64 /* dropout generates random bits for groups of this many keys */
};

/* Ranges of columns (keys) for one row (query) of a block. The query sees the keys in [begin, end).
 * [first, last) is this range, widened to multiples of FSDP_LANES. */
typedef struct span {
    int begin, end, first, last;
} span;

static span visible_span(const fsdp_attention_block *b, int64_t row)
{
    int64_t at = b->first_query + row + b->shift; /* the key at the query's position */
    int64_t begin = b->window > 0 ? at - b->window + 1 : 0;
    int64_t end = b->causal ? at + 1 : b->sequence_keys;
    begin = (begin > 0 ? begin : 0) - b->first_key;
    end = fsdp_min_i64(end, b->sequence_keys) - b->first_key;
    begin = begin > 0 ? begin : 0;
    end = fsdp_min_i64(end, b->keys);
    if (begin >= end)
        return (span){0, 0, 0, 0};
    return (span){(int)begin, (int)end, (int)begin & -FSDP_LANES, fsdp_padded((int)end)};
}

/* Note [Bias strips]. The bias of a score depends only on a difference of positions, `key - query -
 * shift`. In a block, this difference has rows - 1 + padded_keys values. A bias strip is an array
 * with one entry for each value of the difference, in ascending order. So the biases of a row are
 * contiguous: the biases of row r begin at entry rows - 1 - r. strip_range() sets *lowest to the
 * difference that belongs to entry 0. It sets [*begin, *end) to the entries of the strip for which
 * the position bias has an element. All other entries belong to padding. */
static void strip_range(const fsdp_attention_block *b, int64_t *lowest, int64_t *begin,
                        int64_t *end)
{
    int64_t length = b->rows - 1 + b->padded_keys;
    *lowest = b->first_key - (b->first_query + b->rows - 1 + b->shift);
    *begin = fsdp_min_i64(1 - b->bias_span - *lowest, length);
    *begin = *begin > 0 ? *begin : 0;
    *end = fsdp_min_i64(b->bias_span - *lowest, length);
    *end = *end > *begin ? *end : *begin;
}

static const float *make_bias_strip(const fsdp_attention_block *b)
{
    if (!b->bias)
        return NULL;
    int64_t length = b->rows - 1 + b->padded_keys, lowest, begin, end;
    strip_range(b, &lowest, &begin, &end);
    memset(b->bias_strip, 0, (size_t)begin * sizeof(float));
    memcpy(b->bias_strip + begin, b->bias + lowest + begin, (size_t)(end - begin) * sizeof(float));
    memset(b->bias_strip + end, 0, (size_t)(length - end) * sizeof(float));
    return b->bias_strip;
}

/* Returns true if the vector at column j has columns outside [s->begin, s->end). Only the first and
 * the last vector of a span can have such columns. */
FSDP_INLINE bool is_edge(const span *s, int j)
{
    return j < s->begin || j + FSDP_VEC > s->end;
}

/* Sets bits[j], for j < n, to the 16 random bits that decide whether dropout keeps the probability
 * of key `key` + j of a row. The random bits are the same as in fsdp_kernels.dropout. `key` is a
 * multiple of 16. */
static void random_row(uint32_t *restrict bits, const fsdp_attention_block *b, int64_t row,
                       int64_t key, int n)
{
    const uint64_t element = b->dropout_element + ((uint64_t)row << 20) + (uint64_t)key;
    fsdp_philox_halves(bits, b->dropout_key, element / FSDP_COUNTER_HALVES,
                       (n + KEEP_KEYS - 1) / KEEP_KEYS * KEEP_KEYS);
}

typedef struct keep_rule {
    float factor;      /* 1 / (1 - p); kept elements are multiplied by it */
    int32_t threshold; /* see fsdp_drop_threshold() */
} keep_rule;

static keep_rule keep_rule_of(const fsdp_attention_block *b)
{
    return (keep_rule){fsdp_keep_factor(b->dropout_p), (int32_t)fsdp_drop_threshold(b->dropout_p)};
}

/* Returns the factors by which dropout multiplies columns [j, j + FSDP_VEC). The caller must pass
 * the columns of a span in ascending order, because `bits` keeps the random bits of the current
 * FSDP_BLOCK columns from one call to the next. */
FSDP_INLINE fsdp_vec keep_factors(const keep_rule *rule, uint32_t bits[FSDP_BLOCK],
                                  const fsdp_attention_block *b, const span *s, int64_t row, int j)
{
    int done = (j - s->first) % FSDP_BLOCK, left = s->last - j;
    if (done == 0)
        random_row(bits, b, row, b->first_key + j, left < FSDP_BLOCK ? left : FSDP_BLOCK);
    fsdp_vecu word;
    memcpy(&word, bits + done, sizeof word);
    fsdp_veci kept = (fsdp_veci)word >= rule->threshold;
    return (fsdp_vec)(kept & (fsdp_veci)fsdp_vec_set(rule->factor));
}

/* Rounds x to the nearest bfloat16, ties to even. NaN needs no special case: each NaN in x comes
 * from bf16 values, so its lower 16 bits are 0, and rounding does not change it. */
FSDP_INLINE fsdp_vec round_panel(fsdp_vec x)
{
    fsdp_vecu bits = (fsdp_vecu)x;
    return (fsdp_vec)((bits + 0x7fffu + (bits >> 16 & 1u)) & 0xffff0000u);
}

FSDP_INLINE void store_panel(void *panel, fsdp_dtype dtype, int j, fsdp_vec x)
{
    if (dtype == FSDP_DTYPE_BF16)
        fsdp_vec_store_upper((uint16_t *)panel + j, round_panel(x));
    else
        fsdp_vec_store((float *)panel + j, x);
}

static char *panel_row(const fsdp_attention_block *b, void *panel, int64_t row)
{
    return (char *)panel + (size_t)(row * b->padded_keys) * fsdp_dtype_size(b->panel_dtype);
}

/* Sets the columns outside [s->first, s->last) in a panel's row to zero. */
static void zero_outside(const fsdp_attention_block *b, void *panel, int64_t row, const span *s)
{
    size_t size = fsdp_dtype_size(b->panel_dtype);
    char *p = panel_row(b, panel, row);
    memset(p, 0, (size_t)s->first * size);
    memset(p + (size_t)s->last * size, 0, (size_t)(b->padded_keys - s->last) * size);
}

static void zero_padded_rows(const fsdp_attention_block *b, void *panel)
{
    size_t row_bytes = (size_t)b->padded_keys * fsdp_dtype_size(b->panel_dtype);
    memset(panel_row(b, panel, b->rows), 0, (size_t)(b->padded_rows - b->rows) * row_bytes);
}

/* --- forward --- */

/* Replaces the scores x of a row with scale * x + bias in the visible columns, and with -infinity
 * in the other columns of the span. Returns the maximum. */
static float scale_row(const fsdp_attention_block *b, const span *s, float *x, const float *bias)
{
    fsdp_vec most = fsdp_vec_set(-INFINITY), scale = fsdp_vec_set(b->scale),
             zero = fsdp_vec_set(0.0f);
    for (int j = s->first; j < s->last; j += FSDP_VEC) {
        fsdp_vec y =
            fsdp_vec_fma(scale, fsdp_vec_load(x + j), bias ? fsdp_vec_load(bias + j) : zero);
        if (is_edge(s, j))
            y = fsdp_vec_select(fsdp_vec_lanes(j, s->begin, s->end), y, fsdp_vec_set(-INFINITY));
        fsdp_vec_store(x + j, y);
        most = fsdp_vec_max(y, most);
    }
    return fsdp_vec_max_lane(most);
}

/* Two sums of the exponentials of a row before dropout. `exact` is the sum of the f32 values.
 * `stored` is the sum of the values as P stores them, that is, rounded to the panel's dtype. The
 * output is divided by `stored`, so that the weights in P add up to one. */
typedef struct row_sums {
    float exact, stored;
} row_sums;

/* Computes a row of P = e^(x - maximum), and applies dropout if `drops` is true. Callers pass
 * constants for `dtype` and `drops`, so the compiler makes a copy of the function for each
 * combination. */
FSDP_INLINE row_sums exponentials_as(fsdp_dtype dtype, bool drops, const fsdp_attention_block *b,
                                     const span *s, int64_t row, const float *x, float maximum)
{
    uint32_t bits[FSDP_BLOCK];
    char *p = panel_row(b, b->p, row);
    fsdp_vec exact = fsdp_vec_set(0.0f), stored = exact;
    keep_rule rule = keep_rule_of(b);
    for (int j = s->first, last = s->last; j < last; j += FSDP_VEC) {
        fsdp_vec e = fsdp_vec_exp(fsdp_vec_load(x + j) - maximum);
        exact += e;
        if (dtype == FSDP_DTYPE_BF16)
            e = round_panel(e);
        stored += e;
        if (drops)
            store_panel(p, dtype, j, e * keep_factors(&rule, bits, b, s, row, j));
        else if (dtype == FSDP_DTYPE_BF16)
            fsdp_vec_store_upper((uint16_t *)(void *)p + j, e);
        else
            fsdp_vec_store((float *)(void *)p + j, e);
    }
    return (row_sums){fsdp_vec_sum(exact), fsdp_vec_sum(stored)};
}

static row_sums exponentials(const fsdp_attention_block *b, const span *s, int64_t row,
                             const float *x, float maximum)
{
    bool drops = b->dropout_p > 0.0f;
    if (b->panel_dtype == FSDP_DTYPE_BF16)
        return drops ? exponentials_as(FSDP_DTYPE_BF16, true, b, s, row, x, maximum)
                     : exponentials_as(FSDP_DTYPE_BF16, false, b, s, row, x, maximum);
    return drops ? exponentials_as(FSDP_DTYPE_F32, true, b, s, row, x, maximum)
                 : exponentials_as(FSDP_DTYPE_F32, false, b, s, row, x, maximum);
}

static void forward(const fsdp_attention_block *b)
{
    const float *strip = make_bias_strip(b);
    for (int64_t row = 0; row < b->rows; row++) {
        span s = visible_span(b, row);
        float *x = b->scores + row * b->padded_keys;
        float maximum = scale_row(b, &s, x, strip ? strip + (b->rows - 1 - row) : NULL);
        /* NaN is ignored when the maximum is computed. So the maximum is -infinity in two cases:
         * the row's query sees no key, or all visible scores of the row are NaN. In the first case,
         * the sum of the exponentials is 0. In the second case, it is NaN. */
        const float most = maximum == -INFINITY ? 0.0f : maximum;
        row_sums sums = exponentials(b, &s, row, x, most);
        zero_outside(b, b->p, row, &s);
        const bool sees = sums.exact != 0.0f;
        b->lse[row] = !sees               ? -INFINITY
                      : isnan(sums.exact) ? sums.exact
                                          : most + fsdp_log(sums.exact);
        b->inverse[row] = sees ? 1.0f / sums.stored : 0.0f;
    }
    zero_padded_rows(b, b->p);
}

/* --- backward --- */

/* Computes P and dS of a row. If d_bias is not NULL, adds the element of dS in column j to
 * d_bias[j], for each column j. Callers pass constants for `dtype` and `drops`, as for
 * exponentials_as(). */
FSDP_INLINE void backward_row_as(fsdp_dtype dtype, bool drops, const fsdp_attention_block *b,
                                 const span *s, int64_t row, const float *bias, float *d_bias)
{
    uint32_t bits[FSDP_BLOCK];
    const float *x = b->scores + row * b->padded_keys, *d_p = b->d_p + row * b->padded_keys;
    char *p = panel_row(b, b->p, row), *d_s = panel_row(b, b->d_s, row);
    fsdp_vec scale = fsdp_vec_set(b->scale), lse = fsdp_vec_set(b->lse[row]),
             zero = fsdp_vec_set(0.0f);
    fsdp_vec delta = fsdp_vec_set(b->delta[row]);
    keep_rule rule = keep_rule_of(b);
    for (int j = s->first, last = s->last; j < last; j += FSDP_VEC) {
        fsdp_vec y =
            fsdp_vec_fma(scale, fsdp_vec_load(x + j), bias ? fsdp_vec_load(bias + j) : zero);
        fsdp_vec e = fsdp_vec_exp(y - lse), d = fsdp_vec_load(d_p + j);
        if (is_edge(s, j)) {
            fsdp_veci seen = fsdp_vec_lanes(j, s->begin, s->end);
            e = fsdp_vec_select(seen, e, zero);
            d = fsdp_vec_select(seen, d, zero);
        }
        fsdp_vec kept = e;
        if (drops) {
            fsdp_vec keep = keep_factors(&rule, bits, b, s, row, j);
            kept *= keep;
            d *= keep;
        }
        fsdp_vec ds = e * (d - delta);
        store_panel(p, dtype, j, kept);
        store_panel(d_s, dtype, j, ds);
        if (d_bias)
            fsdp_vec_store(d_bias + j, fsdp_vec_load(d_bias + j) + ds);
    }
}

static void backward_row(const fsdp_attention_block *b, const span *s, int64_t row,
                         const float *bias, float *d_bias)
{
    bool drops = b->dropout_p > 0.0f;
    if (b->panel_dtype == FSDP_DTYPE_BF16 && drops)
        backward_row_as(FSDP_DTYPE_BF16, true, b, s, row, bias, d_bias);
    else if (b->panel_dtype == FSDP_DTYPE_BF16)
        backward_row_as(FSDP_DTYPE_BF16, false, b, s, row, bias, d_bias);
    else if (drops)
        backward_row_as(FSDP_DTYPE_F32, true, b, s, row, bias, d_bias);
    else
        backward_row_as(FSDP_DTYPE_F32, false, b, s, row, bias, d_bias);
}

static void backward(const fsdp_attention_block *b)
{
    const float *strip = make_bias_strip(b);
    int64_t length = b->rows - 1 + b->padded_keys;
    if (b->d_bias)
        memset(b->d_bias_strip, 0, (size_t)length * sizeof(float));
    for (int64_t row = 0; row < b->rows; row++) {
        span s = visible_span(b, row);
        int64_t at = b->rows - 1 - row; /* index of the row's column 0 in the bias strips */
        if (b->lse[row] == -INFINITY)
            s = (span){0};
        backward_row(b, &s, row, strip ? strip + at : NULL,
                     b->d_bias ? b->d_bias_strip + at : NULL);
        zero_outside(b, b->p, row, &s);
        zero_outside(b, b->d_s, row, &s);
    }
    zero_padded_rows(b, b->p);
    zero_padded_rows(b, b->d_s);
    if (!b->d_bias)
        return;
    int64_t lowest, begin, end;
    strip_range(b, &lowest, &begin, &end);
    for (int64_t j = begin; j < end; j++)
        b->d_bias[lowest + j] += b->d_bias_strip[j];
}

/* --- functions for rows of tensors (the functions above are for rows of scores) --- */

static void store(void *dst, fsdp_dtype dtype, int64_t dst_ld, const float *src, int64_t src_ld,
                  const float *factors, float factor, int64_t rows, int64_t width)
{
    float buffer[FSDP_BLOCK];
    for (int64_t i = 0; i < rows; i++) {
        float f = factors ? factors[i] * factor : factor;
        for (int64_t j0 = 0; j0 < width; j0 += FSDP_BLOCK) {
            int n = (int)fsdp_min_i64(width - j0, FSDP_BLOCK);
            for (int j = 0; j < n; j++)
                buffer[j] = src[i * src_ld + j0 + j] * f;
            fsdp_store_block(dst, dtype, i * dst_ld + j0, buffer, n);
        }
    }
}

static void dot(float *sums, const void *x, const void *y, fsdp_dtype dtype, int64_t ld,
                int64_t rows, int64_t width)
{
    float x_buffer[FSDP_BLOCK], y_buffer[FSDP_BLOCK], terms[FSDP_BLOCK];
    for (int64_t i = 0; i < rows; i++) {
        float acc[FSDP_LANES] = {0};
        for (int64_t j0 = 0; j0 < width; j0 += FSDP_BLOCK) {
            int n = (int)fsdp_min_i64(width - j0, FSDP_BLOCK);
            const float *a = fsdp_load_block(x_buffer, x, dtype, i * ld + j0, n);
            const float *b = fsdp_load_block(y_buffer, y, dtype, i * ld + j0, n);
            for (int j = 0; j < fsdp_padded(n); j++)
                terms[j] = a[j] * b[j];
            fsdp_add_lanes(acc, terms, fsdp_padded(n));
        }
        sums[i] = fsdp_sum_lanes(acc);
    }
}

const fsdp_cpu_attention_rows FSDP_ISA_NAME_OF(fsdp_cpu_attention_rows) = {
    .forward = forward, .backward = backward, .store = store, .dot = dot};
