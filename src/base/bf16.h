/* Scalar conversions between float32 and bfloat16 or float16. They round to nearest even, and a NaN
 * stays a NaN. */
#pragma once
#include <stdint.h>
#include <string.h>

static inline float fsdp_f32_from_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline uint32_t fsdp_bits_from_f32(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static inline float fsdp_f32_from_bf16(uint16_t b)
{
    return fsdp_f32_from_bits((uint32_t)b << 16);
}

static inline uint16_t fsdp_bf16_from_f32(float f)
{
    uint32_t bits = fsdp_bits_from_f32(f);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

static inline float fsdp_f32_from_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t exponent = h >> 10 & 0x1f, mantissa = h & 0x3ff;
    if (exponent == 0x1f)
        return fsdp_f32_from_bits(sign | 0x7f800000u | mantissa << 13);
    if (exponent)
        return fsdp_f32_from_bits(sign | (exponent + 112) << 23 | mantissa << 13);
    float subnormal = (float)mantissa * 0x1p-24f;
    return sign ? -subnormal : subnormal;
}

static inline uint16_t fsdp_f16_from_f32(float f)
{
    uint32_t bits = fsdp_bits_from_f32(f);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000u);
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
    if (magnitude >= 0x477ff000u) /* 65520 and more round to infinity */
        return (uint16_t)(sign | 0x7c00u);
    if (magnitude < 0x38800000u) { /* below 2^-14, the result is subnormal; adding 0.5 rounds it */
        float shifted = fsdp_f32_from_bits(magnitude) + 0.5f;
        return (uint16_t)(sign | (fsdp_bits_from_f32(shifted) - 0x3f000000u));
    }
    uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1);
    return (uint16_t)(sign | ((rounded - 0x38000000u) >> 13));
}
