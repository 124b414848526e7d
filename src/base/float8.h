/* Scalar conversions between float32 and the two 8-bit formats e4m3fn and e5m2 (Micikevicius et al.
 * 2022, arXiv 2209.05433), and the scale with which a tensor is cast.
 *
 * e4m3fn has 4 exponent bits and 3 mantissa bits, a NaN and no infinity; its largest value is 448.
 * e5m2 has 5 exponent bits and 2 mantissa bits, so an e5m2 is the upper half of a float16; its
 * largest finite value is 57344.
 *
 * Note [Float8 scales]. torchao casts x to q = x * scale with scale = max / amax, where `max` is
 * the largest value of the format and `amax` is the largest |x|. So the largest |x| becomes `max`.
 * The values of q are divided by `scale` to get back to x. A cast clamps to [-max, max] before it
 * rounds to nearest even, and NaN stays NaN. */
#pragma once
#include <math.h>
#include <stdbool.h>

#include "src/base/bf16.h"

typedef enum fsdp_float8_format {
    FSDP_FLOAT8_E4M3FN,
    FSDP_FLOAT8_E5M2
} fsdp_float8_format;

/* Return PyTorch's name of the format. */
static inline const char *fsdp_float8_name(fsdp_float8_format format)
{
    return format == FSDP_FLOAT8_E4M3FN ? "float8_e4m3fn" : "float8_e5m2";
}

/* Return the largest finite value of the format. */
static inline float fsdp_float8_max(fsdp_float8_format format)
{
    return format == FSDP_FLOAT8_E4M3FN ? 448.0f : 57344.0f;
}

static inline float fsdp_f32_from_e4m3(uint8_t code)
{
    const uint32_t sign = (uint32_t)(code & 0x80u) << 24;
    const uint32_t exponent = code >> 3 & 0xfu, mantissa = code & 7u;
    if ((code & 0x7fu) == 0x7fu)
        return fsdp_f32_from_bits(sign | 0x7fc00000u);
    if (exponent)
        return fsdp_f32_from_bits(sign | (exponent + 120) << 23 | mantissa << 20);
    const float subnormal = (float)mantissa * 0x1p-9f;
    return sign ? -subnormal : subnormal;
}

static inline float fsdp_f32_from_e5m2(uint8_t code)
{
    return fsdp_f32_from_f16((uint16_t)(code << 8));
}

static inline float fsdp_f32_from_float8(fsdp_float8_format format, uint8_t code)
{
    return format == FSDP_FLOAT8_E4M3FN ? fsdp_f32_from_e4m3(code) : fsdp_f32_from_e5m2(code);
}

/* Round to nearest even. A magnitude above 464, which would round to more than 448, gives NaN:
 * this is the plain conversion, which does not saturate. */
static inline uint8_t fsdp_e4m3_from_f32(float f)
{
    const uint32_t bits = fsdp_bits_from_f32(f), magnitude = bits & 0x7fffffffu;
    const uint32_t sign = bits >> 24 & 0x80u;
    if (magnitude > 0x43e80000u)
        return (uint8_t)(sign | 0x7fu);
    if (magnitude < 0x3c800000u) { /* below 2^-6: adding 2^14 rounds to a multiple of 2^-9 */
        const float shifted = fsdp_f32_from_bits(magnitude) + 0x1p14f;
        return (uint8_t)(sign | (fsdp_bits_from_f32(shifted) - 0x46800000u));
    }
    const uint32_t rounded = magnitude + 0x7ffffu + (magnitude >> 20 & 1);
    return (uint8_t)(sign | (rounded - 0x3c000000u) >> 20);
}

/* Round to nearest even. A magnitude of 61440 or more gives infinity: this is the plain conversion,
 * which does not saturate. */
static inline uint8_t fsdp_e5m2_from_f32(float f)
{
    const uint32_t bits = fsdp_bits_from_f32(f), magnitude = bits & 0x7fffffffu;
    const uint32_t sign = bits >> 24 & 0x80u;
    if (magnitude > 0x7f800000u)
        return (uint8_t)(sign | 0x7fu);
    if (magnitude >= 0x47700000u)
        return (uint8_t)(sign | 0x7cu);
    if (magnitude < 0x38800000u) { /* below 2^-14: adding 2^7 rounds to a multiple of 2^-16 */
        const float shifted = fsdp_f32_from_bits(magnitude) + 0x1p7f;
        return (uint8_t)(sign | (fsdp_bits_from_f32(shifted) - 0x43000000u));
    }
    const uint32_t rounded = magnitude + 0xfffffu + (magnitude >> 21 & 1);
    return (uint8_t)(sign | (rounded - 0x38000000u) >> 21);
}

/* Convert as torchao does: clamp to the finite values of the format, then round to nearest even.
 * Infinity becomes the largest value. NaN stays NaN. */
static inline uint8_t fsdp_float8_saturated(fsdp_float8_format format, float f)
{
    const float max = fsdp_float8_max(format);
    f = f > max ? max : f < -max ? -max : f;
    return format == FSDP_FLOAT8_E4M3FN ? fsdp_e4m3_from_f32(f) : fsdp_e5m2_from_f32(f);
}

/* Return the scale for a tensor whose largest magnitude is `amax`: Note [Float8 scales]. The
 * quotient is computed in double and rounded once, as in torchao. If power_of_2 is true, the scale
 * is rounded down to a power of two, by the formula of torchao's round_scales_to_power_of_2. */
static inline float fsdp_float8_scale(fsdp_float8_format format, float amax, bool power_of_2)
{
    const double least = 1e-12; /* torchao's EPS: no division by zero */
    const double divisor = (double)amax < least ? least : (double)amax;
    const float scale = (float)((double)fsdp_float8_max(format) / divisor);
    return power_of_2 ? exp2f(floorf(log2f(scale))) : scale;
}
