/* See rope.h. Frequencies and angles are rounded to float32 at the same points of the computation
 * as in transformers' modeling_rope_utils, so that results agree. Different rounding would change
 * results: at position 8000, for example, an angle can be near 8000 radians, and neighboring
 * float32 numbers of that size differ by 0.0005. */
#include "src/models/rope.h"

#include <math.h>

#include "src/base/alloc.h"

struct fsdp_rotary {
    fsdp_rope_config config;
    int64_t head_dim;
    float *inv_freq; /* [head_dim / 2]: frequencies for sequences that are not longer than the
                      * original length */
    /* [head_dim / 2]: the frequencies with which `table` was filled, for sequences of `length`
     * tokens */
    float *scaled;
    int64_t length; /* the length for which `scaled` was computed; used only by FSDP_ROPE_DYNAMIC */
    float *table;   /* [n_positions, head_dim]: cosines, then sines */
    size_t n_positions; /* capacity of the table, in positions */
    size_t n_filled;
};

/* --- frequencies --- */

/* Return the frequency f, scaled as in Llama 3.1. `original` is the length of the original context.
 * If the wavelength of f is below original / high_freq_factor, f is not changed. If the wavelength
 * is above original / low_freq_factor, f is divided by `factor`. In between, the result is
 * interpolated between f and f / factor.
 *
 * transformers divides a Python number by a tensor, which torch computes as the number times the
 * reciprocal of the tensor. This function also multiplies by a reciprocal, so that the rounding is
 * the same. */
static float llama3_scaled(const fsdp_rope_config *c, float f)
{
    const double original = (double)c->original_max_position_embeddings;
    const float wavelength = 1.0f / f * (float)(2.0 * M_PI);
    if (wavelength > (float)(original / c->low_freq_factor))
        return f / (float)c->factor;
    if (wavelength < (float)(original / c->high_freq_factor))
        return f;
    const float smooth = (1.0f / wavelength * (float)original - (float)c->low_freq_factor) /
                         (float)(c->high_freq_factor - c->low_freq_factor);
    return (1.0f - smooth) * f / (float)c->factor + smooth * f;
}

/* Return the base of dynamic NTK for sequences of `length` tokens. transformers computes this base
 * in float64 when it creates a model, and in float32 when a longer sequence comes. */
static float dynamic_base(const fsdp_rope_config *c, int64_t head_dim, int64_t length)
{
    const int64_t original = c->original_max_position_embeddings;
    const double exponent = (double)head_dim / (double)(head_dim - 2);
    if (length <= original)
        return (float)(c->theta * pow(c->factor - (c->factor - 1.0), exponent));
    const float stretch = (float)c->factor * (float)length / (float)original;
    return (float)c->theta * powf(stretch - (float)(c->factor - 1.0), (float)exponent);
}

/* YaRN keeps frequencies with an index below `low`, divides those with an index above `high` by the
 * factor, and interpolates in between. */
typedef struct yarn_range {
    double low, high;
} yarn_range;

/* Return the index of the frequency whose rotation makes `turns` full turns within the original
 * length. The index may be a fraction. */
static double yarn_index(const fsdp_rope_config *c, int64_t head_dim, double turns)
{
    const double original = (double)c->original_max_position_embeddings;
    return (double)head_dim * log(original / (turns * 2.0 * M_PI)) / (2.0 * log(c->theta));
}

static yarn_range yarn_range_of(const fsdp_rope_config *c, int64_t head_dim)
{
    double low = yarn_index(c, head_dim, c->beta_fast > 0 ? c->beta_fast : 32.0);
    double high = yarn_index(c, head_dim, c->beta_slow > 0 ? c->beta_slow : 1.0);
    if (c->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0.0);
    high = fmin(high, (double)(head_dim - 1));
    return (yarn_range){low, low == high ? high + 0.001 : high};
}

/* Return the frequency base^-exponent, whose index is j, scaled as in YaRN. */
static float yarn_scaled(const fsdp_rope_config *c, yarn_range range, int64_t j, float base,
                         float exponent)
{
    const float period = powf(base, exponent);
    const float ramp = ((float)j - (float)range.low) / (float)(range.high - range.low);
    const float kept = 1.0f - fminf(fmaxf(ramp, 0.0f), 1.0f);
    return 1.0f / ((float)c->factor * period) * (1.0f - kept) + 1.0f / period * kept;
}

static double yarn_mscale(double factor, double mscale)
{
    return factor <= 1.0 ? 1.0 : 0.1 * mscale * log(factor) + 1.0;
}

/* Return the factor by which the cosines and sines of the table are multiplied. */
static float attention_factor(const fsdp_rope_config *c)
{
    if (c->type != FSDP_ROPE_YARN)
        return 1.0f;
    if (c->attention_factor > 0)
        return (float)c->attention_factor;
    if (c->mscale > 0 && c->mscale_all_dim > 0)
        return (float)(yarn_mscale(c->factor, c->mscale) /
                       yarn_mscale(c->factor, c->mscale_all_dim));
    return (float)yarn_mscale(c->factor, 1.0);
}

/* Compute the frequencies [head_dim / 2] for sequences of `length` tokens. They depend on the
 * length only with FSDP_ROPE_DYNAMIC. */
static void fill_frequencies(const fsdp_rope_config *c, int64_t head_dim, int64_t length,
                             float *inv_freq)
{
    const bool is_yarn = c->type == FSDP_ROPE_YARN;
    const yarn_range range = is_yarn ? yarn_range_of(c, head_dim) : (yarn_range){0};
    const float base =
        c->type == FSDP_ROPE_DYNAMIC ? dynamic_base(c, head_dim, length) : (float)c->theta;
    for (int64_t j = 0; j < head_dim / 2; j++) {
        const float exponent = (float)(2 * j) / (float)head_dim;
        const float f = 1.0f / powf(base, exponent);
        if (c->type == FSDP_ROPE_LINEAR)
            inv_freq[j] = f / (float)c->factor;
        else if (c->type == FSDP_ROPE_LLAMA3)
            inv_freq[j] = llama3_scaled(c, f);
        else
            inv_freq[j] = is_yarn ? yarn_scaled(c, range, j, base, exponent) : f;
    }
}

fsdp_rotary *fsdp_rotary_create(const fsdp_rope_config *config, int64_t head_dim)
{
    fsdp_rotary *r = fsdp_calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->config = *config;
    r->head_dim = head_dim;
    r->inv_freq = fsdp_calloc((size_t)head_dim, sizeof *r->inv_freq);
    if (!r->inv_freq) {
        fsdp_free(r);
        return NULL;
    }
    r->scaled = r->inv_freq + head_dim / 2;
    r->length = config->original_max_position_embeddings;
    fill_frequencies(config, head_dim, r->length, r->inv_freq);
    fill_frequencies(config, head_dim, r->length, r->scaled);
    return r;
}

void fsdp_rotary_destroy(void *rotary)
{
    fsdp_rotary *r = rotary;
    if (!r)
        return;
    fsdp_free(r->inv_freq);
    fsdp_free(r->table);
    fsdp_free(r);
}

const float *fsdp_rotary_inv_freq(const fsdp_rotary *r)
{
    return r->inv_freq;
}

/* --- angles --- */

static void fill_position(fsdp_rotary *r, size_t position)
{
    const int64_t half = r->head_dim / 2;
    const float factor = attention_factor(&r->config);
    float *row = r->table + position * (size_t)r->head_dim;
    for (int64_t j = 0; j < half; j++) {
        const float angle = (float)position * r->scaled[j];
        row[j] = cosf(angle) * factor;
        row[half + j] = sinf(angle) * factor;
    }
}

/* Set the frequencies of the table to those for sequences of at most `positions` tokens.
 *
 * transformers keeps the frequencies for the longest sequence so far, until it gets a batch in
 * which no sequence is longer than the original length. Here, the frequencies for a batch never
 * depend on earlier batches. */
static void set_length(fsdp_rotary *r, int64_t positions)
{
    const int64_t original = r->config.original_max_position_embeddings;
    const int64_t length = positions > original ? positions : original;
    if (r->config.type != FSDP_ROPE_DYNAMIC || length == r->length)
        return;
    fill_frequencies(&r->config, r->head_dim, length, r->scaled);
    r->length = length;
    r->n_filled = 0;
}

static bool fill_tables(fsdp_rotary *r, size_t positions)
{
    if (!fsdp_array_grow((void **)&r->table, &r->n_positions, positions,
                         (size_t)r->head_dim * sizeof *r->table))
        return false;
    for (; r->n_filled < positions; r->n_filled++)
        fill_position(r, r->n_filled);
    return true;
}

/* Round the values of the table to dtype, but store them as float32, because fsdp_rope() reads
 * float32. */
static void round_values(fsdp_scope *s, fsdp_tensor *table, fsdp_dtype dtype)
{
    const int64_t n = fsdp_tensor_numel(table);
    fsdp_tensor *rounded = fsdp_new(s, dtype, table->ndim, table->shape);
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    if (k) {
        k->cast(fsdp_scope_context(s), fsdp_tensor_ptr(rounded), dtype, fsdp_tensor_ptr(table),
                FSDP_DTYPE_F32, n);
        k->cast(fsdp_scope_context(s), fsdp_tensor_ptr(table), FSDP_DTYPE_F32,
                fsdp_tensor_ptr(rounded), dtype, n);
    }
    fsdp_drop(s, rounded);
}

/* Return a new tensor with the first `positions` rows of the table. If there is not enough memory,
 * the scope fails and the result is NULL. */
static fsdp_tensor *copy_table(fsdp_scope *s, fsdp_rotary *r, int64_t positions)
{
    const int64_t shape[2] = {positions, r->head_dim};
    fsdp_tensor *table = fsdp_new(s, FSDP_DTYPE_F32, 2, shape);
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    if (!k || positions == 0)
        return table;
    set_length(r, positions);
    if (!fill_tables(r, (size_t)positions)) {
        fsdp_scope_fail(s, FSDP_ERR_NOMEM);
        return NULL;
    }
    fsdp_device_from_host(fsdp_scope_device(s), fsdp_tensor_ptr(table), r->table,
                          (size_t)fsdp_tensor_numel(table) * sizeof *r->table);
    return table;
}

fsdp_tensor *fsdp_rotary_table(fsdp_scope *s, fsdp_rotary *r, int64_t positions)
{
    fsdp_tensor *table = copy_table(s, r, positions);
    if (!table)
        return NULL;
    table->is_table = true;
    if (s->run->buffer_dtype != FSDP_DTYPE_F32)
        round_values(s, table, s->run->buffer_dtype);
    return table;
}
