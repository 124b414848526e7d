/* The rows between the products of attention: scale, bias, mask, softmax, dropout and their
 * gradient. Lanes outside a row's visible keys are computed with what lies in the padded panels
 * and then replaced, so nothing outside a row is read as data. */
#include "src/kernels/cpu/attention.h"

#include "src/kernels/cpu/isa/block.h"

enum {
    COUNTERS = 16, /* of Philox at a time: 64 keys */
    KEEP_BLOCK = 4 * COUNTERS
};

/* Columns [begin, end) of a block's row are visible; [first, last) are whole lanes around them. */
typedef struct span {
    int begin, end, first, last;
} span;

static span visible(const fsdp_attention_block *b, int64_t row)
{
    int64_t at = b->first_query + row + b->shift; /* the key that the query stands at */
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

/* The bias of all differences in the block, zero for those that no pair has: row r, column j finds
 * its own at strip[rows - 1 - r + j]. */
static const float *make_bias_strip(const fsdp_attention_block *b)
{
    if (!b->bias)
        return NULL;
    int64_t length = b->rows - 1 + b->padded_keys;
    int64_t lowest = b->first_key - (b->first_query + b->rows - 1 + b->shift);
    int64_t begin = 1 - b->bias_span - lowest, end = b->bias_span - lowest;
    begin = begin > 0 ? fsdp_min_i64(begin, length) : 0;
    end = end > begin ? fsdp_min_i64(end, length) : begin;
    memset(b->bias_strip, 0, (size_t)begin * sizeof(float));
    memcpy(b->bias_strip + begin, b->bias + lowest + begin, (size_t)(end - begin) * sizeof(float));
    memset(b->bias_strip + end, 0, (size_t)(length - end) * sizeof(float));
    return b->bias_strip;
}

/* x[0, n) = scale x + bias. */
static void scale_row(float *restrict x, const float *restrict bias, float scale, int n)
{
    if (!bias)
        for (int j = 0; j < n; j++)
            x[j] = scale * x[j];
    else
        for (int j = 0; j < n; j++)
            x[j] = scale * x[j] + bias[j];
}

/* Replaces the lanes of [first, last) outside [begin, end); x starts at column `first`. */
static void mask_edges(float *x, const span *s, float value)
{
    for (int j = s->first; j < s->begin; j++)
        x[j - s->first] = value;
    for (int j = s->end; j < s->last; j++)
        x[j - s->first] = value;
}

static float row_max(const float *restrict x, int n)
{
    float most[FSDP_LANES];
    memcpy(most, x, sizeof most);
    for (int j = FSDP_LANES; j < n; j += FSDP_LANES)
        for (int l = 0; l < FSDP_LANES; l++)
            most[l] = x[j + l] > most[l] ? x[j + l] : most[l];
    for (int width = FSDP_LANES / 2; width; width /= 2)
        for (int l = 0; l < width; l++)
            most[l] = most[l + width] > most[l] ? most[l + width] : most[l];
    return most[0];
}

/* keep[j] = 1 / (1 - p) or 0 for keys [key, key + KEEP_BLOCK) of a row: element e by word e % 4 of
 * Philox at e / 4, as in fsdp_kernels.dropout. */
static void keep_factors(float *restrict keep, const fsdp_attention_block *b, int64_t row,
                         int64_t key)
{
    uint64_t first = b->dropout_element / 4 + ((uint64_t)row << 18) + (uint64_t)key / 4;
    uint32_t c0[COUNTERS], c1[COUNTERS], c2[COUNTERS], c3[COUNTERS];
    uint32_t k0 = (uint32_t)b->dropout_key, k1 = (uint32_t)(b->dropout_key >> 32);
    float factor = b->dropout_p < 1.0f ? 1.0f / (1.0f - b->dropout_p) : 0.0f, p = b->dropout_p;
    for (int j = 0; j < COUNTERS; j++) {
        uint64_t counter = first + (uint64_t)j;
        c0[j] = (uint32_t)counter;
        c1[j] = (uint32_t)(counter >> 32);
        c2[j] = c3[j] = 0;
    }
    for (int round = 0; round < 10; round++) {
        for (int j = 0; j < COUNTERS; j++) {
            uint64_t p0 = (uint64_t)c0[j] * 0xD2511F53u, p1 = (uint64_t)c2[j] * 0xCD9E8D57u;
            c0[j] = (uint32_t)(p1 >> 32) ^ c1[j] ^ k0;
            c2[j] = (uint32_t)(p0 >> 32) ^ c3[j] ^ k1;
            c1[j] = (uint32_t)p1;
            c3[j] = (uint32_t)p0;
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    for (int j = 0; j < COUNTERS; j++) {
        keep[4 * j] = fsdp_select(-(uint32_t)(fsdp_uniform_from_bits(c0[j]) >= p), factor, 0.0f);
        keep[4 * j + 1] =
            fsdp_select(-(uint32_t)(fsdp_uniform_from_bits(c1[j]) >= p), factor, 0.0f);
        keep[4 * j + 2] =
            fsdp_select(-(uint32_t)(fsdp_uniform_from_bits(c2[j]) >= p), factor, 0.0f);
        keep[4 * j + 3] =
            fsdp_select(-(uint32_t)(fsdp_uniform_from_bits(c3[j]) >= p), factor, 0.0f);
    }
}

/* Factors of n keys from `key`, a multiple of 4. */
static void keep_row(float *restrict keep, const fsdp_attention_block *b, int64_t row, int64_t key,
                     int n)
{
    for (int j = 0; j < n; j += KEEP_BLOCK)
        keep_factors(keep + j, b, row, key + j);
}

static char *panel_row(const fsdp_attention_block *b, void *panel, int64_t row)
{
    return (char *)panel + (size_t)(row * b->padded_keys) * fsdp_dtype_size(b->panel_dtype);
}

/* Zero in a panel's row all columns but [first, last). */
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

/* e^(x - maximum) into P; returns the sum before dropout. */
static float exponentials(const fsdp_attention_block *b, int64_t row, const span *s, const float *x,
                          float maximum)
{
    float acc[FSDP_LANES] = {0}, e[FSDP_BLOCK], keep[FSDP_BLOCK];
    void *p = panel_row(b, b->p, row);
    for (int j0 = s->first; j0 < s->last; j0 += FSDP_BLOCK) {
        int n = s->last - j0 < FSDP_BLOCK ? s->last - j0 : FSDP_BLOCK;
        for (int j = 0; j < n; j++)
            e[j] = fsdp_exp(x[j0 - s->first + j] - maximum);
        fsdp_add_lanes(acc, e, n);
        if (b->dropout_p > 0.0f) {
            keep_row(keep, b, row, b->first_key + j0, n);
            for (int j = 0; j < n; j++)
                e[j] *= keep[j];
        }
        fsdp_store_block(p, b->panel_dtype, j0, e, n);
    }
    return fsdp_sum_lanes(acc);
}

static void forward(const fsdp_attention_block *b)
{
    const float *strip = make_bias_strip(b);
    for (int64_t row = 0; row < b->rows; row++) {
        span s = visible(b, row);
        float *x = b->scores + row * b->padded_keys + s.first, maximum = -INFINITY;
        if (s.last > s.first) {
            scale_row(x, strip ? strip + (b->rows - 1 - row) + s.first : NULL, b->scale,
                      s.last - s.first);
            mask_edges(x, &s, -INFINITY);
            maximum = row_max(x, s.last - s.first);
        }
        if (maximum == -INFINITY) { /* sees no key */
            b->lse[row] = -INFINITY;
            b->inverse[row] = 0.0f;
            zero_outside(b, b->p, row, &(span){0});
            continue;
        }
        float sum = exponentials(b, row, &s, x, maximum);
        zero_outside(b, b->p, row, &s);
        b->lse[row] = maximum + fsdp_log(sum);
        b->inverse[row] = 1.0f / sum;
    }
    zero_padded_rows(b, b->p);
}

/* --- backward --- */

/* Columns [j0, j0 + n) of a row: P and dS; both zero outside the span. */
static void backward_part(const fsdp_attention_block *b, int64_t row, const span *s, int j0, int n,
                          const float *x, float *restrict d_s)
{
    float e[FSDP_BLOCK], keep[FSDP_BLOCK];
    const float *d_p = b->d_p + row * b->padded_keys + j0;
    float lse = b->lse[row], delta = b->delta[row];
    span part = {s->begin > j0 ? s->begin : j0, s->end < j0 + n ? s->end : j0 + n, j0, j0 + n};
    for (int j = 0; j < n; j++)
        e[j] = fsdp_exp(x[j] - lse);
    if (b->dropout_p > 0.0f) {
        keep_row(keep, b, row, b->first_key + j0, n);
        for (int j = 0; j < n; j++) {
            d_s[j] = e[j] * (d_p[j] * keep[j] - delta);
            e[j] *= keep[j];
        }
    } else {
        for (int j = 0; j < n; j++)
            d_s[j] = e[j] * (d_p[j] - delta);
    }
    mask_edges(e, &part, 0.0f);
    mask_edges(d_s, &part, 0.0f);
    fsdp_store_block(panel_row(b, b->p, row), b->panel_dtype, j0, e, n);
    if (b->d_bias) {
        float *d = b->d_bias + b->first_key - (b->first_query + row + b->shift);
        for (int j = part.begin; j < part.end; j++)
            d[j] += d_s[j - j0];
    }
}

static void backward(const fsdp_attention_block *b)
{
    const float *strip = make_bias_strip(b);
    float d_s[FSDP_BLOCK];
    for (int64_t row = 0; row < b->rows; row++) {
        span s = visible(b, row);
        if (b->lse[row] == -INFINITY)
            s = (span){0};
        for (int j0 = s.first; j0 < s.last; j0 += FSDP_BLOCK) {
            int n = s.last - j0 < FSDP_BLOCK ? s.last - j0 : FSDP_BLOCK;
            float *x = b->scores + row * b->padded_keys + j0;
            scale_row(x, strip ? strip + (b->rows - 1 - row) + j0 : NULL, b->scale, n);
            backward_part(b, row, &s, j0, n, x, d_s);
            fsdp_store_block(panel_row(b, b->d_s, row), b->panel_dtype, j0, d_s, n);
        }
        zero_outside(b, b->p, row, &s);
        zero_outside(b, b->d_s, row, &s);
    }
    zero_padded_rows(b, b->p);
    zero_padded_rows(b, b->d_s);
}

/* --- rows of outputs --- */

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
