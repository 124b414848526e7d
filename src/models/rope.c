/* See rope.h. Frequencies and angles are rounded to float32 at the same places as in transformers'
 * modeling_rope_utils, so that results agree. A difference in rounding would matter. At position
 * 8000, for example, an angle can be near 8000 radians. Neighbouring float32 numbers of that size
 * are 0.0005 apart. */
#include "src/models/rope.h"

#include <math.h>

#include "src/base/alloc.h"

struct fsdp_rotary {
    int64_t head_dim;
    float *inv_freq;    /* [head_dim / 2] */
    float *table;       /* [n_positions, head_dim]: cosines, then sines */
    size_t n_positions; /* capacity of the table, in positions */
    size_t n_filled;
};

/* --- frequencies --- */

/* Scale the frequency f as in Llama 3.1. `original` is the length of the original context. If the
 * wavelength of f is below original / high_freq_factor, f is not changed. If the wavelength is
 * above original / low_freq_factor, f is divided by `factor`. In between, the result is
 * interpolated between f and f / factor.
 *
 * When Python code divides a number by a tensor, torch multiplies the number by the reciprocal of
 * the tensor. This code does the same, to get the same rounding. */
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

static float inv_freq(const fsdp_rope_config *c, int64_t j, int64_t head_dim)
{
    const float exponent = (float)(2 * j) / (float)head_dim;
    const float f = 1.0f / powf((float)c->theta, exponent);
    switch (c->type) {
    case FSDP_ROPE_LINEAR:
        return f / (float)c->factor;
    case FSDP_ROPE_LLAMA3:
        return llama3_scaled(c, f);
    case FSDP_ROPE_DEFAULT:
        break;
    }
    return f;
}

fsdp_rotary *fsdp_rotary_create(const fsdp_rope_config *config, int64_t head_dim)
{
    fsdp_rotary *r = fsdp_calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->head_dim = head_dim;
    r->inv_freq = fsdp_calloc((size_t)head_dim / 2, sizeof *r->inv_freq);
    if (!r->inv_freq) {
        fsdp_free(r);
        return NULL;
    }
    for (int64_t j = 0; j < head_dim / 2; j++)
        r->inv_freq[j] = inv_freq(config, j, head_dim);
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
    float *row = r->table + position * (size_t)r->head_dim;
    for (int64_t j = 0; j < half; j++) {
        const float angle = (float)position * r->inv_freq[j];
        row[j] = cosf(angle);
        row[half + j] = sinf(angle);
    }
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
