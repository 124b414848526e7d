/* Arithmetic for the loops of isa/. Each function computes one lane and has no branches, calls or
 * tables. So if a loop over a block calls it, the compiler vectorizes the loop at the width of the
 * ISA. Every step is one IEEE operation, and the steps have a fixed order (nothing is contracted).
 * So the bits of a value depend neither on its position in a vector nor on the ISA.
 *
 * To select one of two values, use fsdp_select(). The compiler would not vectorize `condition ? x :
 * y` if x or y contains arithmetic. Vector code would have to evaluate both x and y, which the
 * compiler must not do, because arithmetic may trap.
 *
 * The polynomial in fsdp_log() is our own minimax fit (Remez exchange in 40 digits, then rounded to
 * float). tests/kernels/test_math.c measures its error over dense ranges. */
#pragma once
#include <math.h>
#include <stdint.h>

#include "src/base/bf16.h"

/* Return if_set if mask is all ones, and if_clear if it is zero. */
static inline float fsdp_select(uint32_t mask, float if_set, float if_clear)
{
    return fsdp_f32_from_bits((fsdp_bits_from_f32(if_set) & mask) |
                              (fsdp_bits_from_f32(if_clear) & ~mask));
}

/* --- bfloat16 and float16: the conversions of src/base/bf16.h, without branches --- */

static inline uint16_t fsdp_round_bf16(float f)
{
    uint32_t bits = fsdp_bits_from_f32(f);
    uint32_t nan = -(uint32_t)((bits & 0x7fffffffu) > 0x7f800000u);
    uint32_t rounded = bits + 0x7fffu + (bits >> 16 & 1);
    return (uint16_t)(((rounded & ~nan) | ((bits | 0x400000u) & nan)) >> 16);
}

static inline float fsdp_widen_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, magnitude = (uint32_t)(h & 0x7fffu) << 13;
    /* A normal number stays normal: the bias of its exponent changes from 15 to 127. Infinity and
     * NaN get the exponent 255. A subnormal float16 becomes a normal float32, whose value is
     * computed by subtracting two floats. */
    uint32_t special = -(uint32_t)(magnitude >= 0x0f800000u);
    uint32_t subnormal = -(uint32_t)(magnitude < 0x00800000u);
    uint32_t normal = magnitude + 0x38000000u + (special & 0x38000000u);
    float small = fsdp_f32_from_bits(magnitude + 0x38800000u) - 0x1p-14f;
    return fsdp_f32_from_bits(sign | (normal & ~subnormal) |
                              (fsdp_bits_from_f32(small) & subnormal));
}

static inline uint16_t fsdp_round_f16(float f)
{
    uint32_t bits = fsdp_bits_from_f32(f);
    uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    uint32_t nan = -(uint32_t)(magnitude > 0x7f800000u);
    /* magnitudes of 65520 and more round to infinity */
    uint32_t overflow = -(uint32_t)(magnitude >= 0x477ff000u);
    /* A magnitude below 2^-14 gives a subnormal result. Adding 0.5f to the magnitude rounds it to a
     * multiple of 2^-24, the smallest subnormal. The low bits of this sum are then the result. */
    uint32_t subnormal = -(uint32_t)(magnitude < 0x38800000u);
    uint32_t tiny = fsdp_bits_from_f32(fsdp_f32_from_bits(magnitude & subnormal) + 0.5f);
    uint32_t normal = (magnitude + 0xfffu + (magnitude >> 13 & 1) - 0x38000000u) >> 13;
    uint32_t result = ((tiny - 0x3f000000u) & subnormal) | (normal & ~subnormal);
    result = (result & ~overflow) | (0x7c00u & overflow);
    return (uint16_t)(sign | (result & ~nan) | ((0x7e00u | (magnitude >> 13 & 0x3ffu)) & nan));
}

/* --- log --- */

/* Return ln x for a normal positive x. The result for NaN is an arbitrary number. */
static inline float fsdp_log(float x)
{
    /* x = 2^k (1 + f), where 1 + f must be in [sqrt(1/2), sqrt(2)), so that ln(1 + f) is small. To
     * get this range, the bits of sqrt(1/2) are subtracted before k is extracted. */
    uint32_t bits = fsdp_bits_from_f32(x) - 0x3f3504f3u;
    float k = (float)((int32_t)bits >> 23);
    float f = fsdp_f32_from_bits((bits & 0x7fffffu) + 0x3f3504f3u) - 1.0f;
    float q = -0x1.38b57cp-4f;
    q = q * f + 0x1.055b68p-3f;
    q = q * f - 0x1.0d8542p-3f;
    q = q * f + 0x1.22da1ep-3f;
    q = q * f - 0x1.547244p-3f;
    q = q * f + 0x1.99a008p-3f;
    q = q * f - 0x1.000226p-2f;
    q = q * f + 0x1.555554p-2f;
    float f2 = f * f;
    return k * 0x1.62e4p-1f + ((k * 0x1.7f7d1cp-20f + (f2 * f * q - 0.5f * f2)) + f);
}
