/* Quantizes to NF4. See Note [NF4] in nf4.h. */
#include "src/kernels/nf4.h"

#include <math.h>
#include <stdlib.h>

const float fsdp_nf4_levels[FSDP_NF4_LEVELS] = {
    -0x1p0f,         -0x1.647362p-1f, -0x1.0cd66p-1f,  -0x1.94654p-2f,
    -0x1.23449ap-2f, -0x1.7a6a7ep-3f, -0x1.74f0e2p-4f, 0.0f,
    0x1.45f5fep-4f,  0x1.4995c6p-3f,  0x1.f809bap-3f,  0x1.5a0674p-2f,
    0x1.c3497p-2f,   0x1.200f56p-1f,  0x1.722766p-1f,  0x1p0f};

/* --- blocks of elements --- */

/* Return the index of the level nearest to x, which is in [-1, 1]. */
static unsigned nearest_level(float x)
{
    unsigned index = 0;
    for (int i = 0; i + 1 < FSDP_NF4_LEVELS; i++)
        index += x > (fsdp_nf4_levels[i] + fsdp_nf4_levels[i + 1]) / 2.0f;
    return index;
}

static float clamp_to_one(float x)
{
    return x < -1.0f ? -1.0f : x > 1.0f ? 1.0f : x;
}

/* Return the index of the first element that is infinite or NaN, or n if all elements are
 * finite. */
static int64_t find_not_finite(const float *x, int64_t n)
{
    int64_t i = 0;
    while (i < n && isfinite(x[i]))
        i++;
    return i;
}

static float largest_magnitude(const float *x, int64_t n)
{
    float largest = 0.0f;
    for (int64_t i = 0; i < n; i++)
        largest = fabsf(x[i]) > largest ? fabsf(x[i]) : largest;
    return largest;
}

/* Return x divided by the scale `absmax` (or by 1e-38 if `absmax` is smaller), limited to [-1, 1].
 * The result has the same bits as in bitsandbytes, which multiplies the elements of a whole block
 * by the reciprocal of the scale and divides the elements of a last, shorter block by the scale. */
static float scaled(float x, float absmax, bool is_whole)
{
    static const float least = 1e-38f;
    const float divisor = absmax < least ? least : absmax;
    return clamp_to_one(is_whole ? x * (1.0f / divisor) : x / divisor);
}

/* Quantize a block of n elements. `is_whole` is false for a last, shorter block. If the scale of
 * such a block would be below 1e-38, it becomes 1e-38. */
static void quantize_block(const float *x, int64_t n, bool is_whole, uint8_t *packed, float *absmax)
{
    static const float least = 1e-38f;
    *absmax = largest_magnitude(x, n);
    if (!is_whole && *absmax < least)
        *absmax = least;
    for (int64_t i = 0; i < n; i += 2) {
        const unsigned second =
            i + 1 < n ? nearest_level(scaled(x[i + 1], *absmax, is_whole)) : FSDP_NF4_ZERO;
        packed[i / 2] = (uint8_t)(nearest_level(scaled(x[i], *absmax, is_whole)) << 4 | second);
    }
}

int64_t fsdp_nf4_quantize(const float *x, int64_t n, int64_t block, uint8_t *packed, float *absmax)
{
    for (int64_t at = 0; at < n; at += block) {
        const int64_t length = n - at < block ? n - at : block;
        const int64_t bad = find_not_finite(x + at, length);
        if (bad < length)
            return at + bad;
        quantize_block(x + at, length, length == block, packed + at / 2, absmax + at / block);
    }
    return n;
}

/* --- scales --- */

static int compare_floats(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Return item i of torch.linspace(0.1, 1, n), which computes from both ends towards the middle. */
static float linspace(int i, int n)
{
    const float first = 0.1f, last = 1.0f, step = (last - first) / (float)(n - 1);
    return i < n / 2 ? fmaf(step, (float)i, first) : fmaf(-step, (float)(n - 1 - i), last);
}

/* Fill the map. For each e from 0 to 6, the interval [0.1, 1] is divided into 2^e equal intervals.
 * For each center f of one of these intervals, the map has the number 10^-(6 - e) f and its
 * negative. It also has the numbers 0 and 1. */
void fsdp_nf4_fill_map(float map[FSDP_NF4_MAP])
{
    enum {
        MOST_EXPONENT = 6
    };
    int n = 0;
    for (int e = 0; e <= MOST_EXPONENT; e++) {
        const int intervals = 1 << e;
        double power = 1.0;
        for (int i = e; i < MOST_EXPONENT; i++)
            power *= 10.0;
        const float factor = (float)(1.0 / power);
        for (int i = 0; i < intervals; i++) {
            const float center =
                (linspace(i, intervals + 1) + linspace(i + 1, intervals + 1)) / 2.0f;
            map[n++] = factor * center;
            map[n++] = -factor * center;
        }
    }
    map[n++] = 0.0f;
    map[n++] = 1.0f;
    qsort(map, FSDP_NF4_MAP, sizeof *map, compare_floats);
}

/* Return the index of the number in `map` by which bitsandbytes represents x. x is in [-1, 1].
 * bitsandbytes first rounds x to one of 65536 equidistant numbers. It then chooses the number in
 * the map that is nearest to the rounded x. */
static uint8_t nearest_of_map(const float *map, float x)
{
    static const float steps = 65535.0f;
    const unsigned bin = (unsigned)fmaf((x + 1.0f) * 0.5f, steps, 0.5f);
    const float rounded = -1.0f + 2.0f * (float)bin / steps;
    int low = 0, high = FSDP_NF4_MAP - 1; /* the result is in [low, high] */
    while (low < high) {
        const int middle = (low + high) / 2;
        if (0.5f * (map[middle] + map[middle + 1]) < rounded)
            low = middle + 1;
        else
            high = middle;
    }
    return (uint8_t)low;
}

/* Quantize a block of n scales. */
static void quantize_scale_block(const float *absmax, int64_t n, float offset, const float *map,
                                 uint8_t *codes, float *nested)
{
    *nested = 0.0f;
    for (int64_t i = 0; i < n; i++)
        *nested = fmaxf(*nested, fabsf(absmax[i] - offset));
    /* For a block of zeros, bitsandbytes stores index 0. The number in the map at this index does
     * not matter, because it is multiplied by *nested, which is 0. */
    const float reciprocal = 1.0f / *nested;
    for (int64_t i = 0; i < n; i++)
        codes[i] = *nested > 0.0f
                       ? nearest_of_map(map, clamp_to_one((absmax[i] - offset) * reciprocal))
                       : 0;
}

void fsdp_nf4_quantize_scales(const float *absmax, int64_t n, int64_t nested_block, float offset,
                              const float map[FSDP_NF4_MAP], uint8_t *codes, float *nested)
{
    for (int64_t at = 0; at < n; at += nested_block) {
        const int64_t length = n - at < nested_block ? n - at : nested_block;
        quantize_scale_block(absmax + at, length, offset, map, codes + at,
                             nested + at / nested_block);
    }
}
