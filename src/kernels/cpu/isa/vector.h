/* Vectors of floats that fill one register of the ISA, and functions on such vectors for softmax
 * and activations. Use them for loops in which they are faster than the one-lane functions of
 * vec.h, which the compiler vectorizes. The vectors of vec16.h are not suitable for such loops:
 * they are wider than a register, so the compiler would load and store them at every step.
 *
 * Each operation is one IEEE operation per lane, so the bits of a value do not depend on its lane.
 * The bits of fsdp_vec_fma() depend on the ISA, because its multiplication and addition are fused
 * only on x86-64-v3 and x86-64-v4.
 *
 * The polynomials are minimax fits of our own (Remez exchange in 40 digits, then rounded to float).
 * tests/kernels/test_math.c measures their errors over dense ranges, and test_elementwise.c does so
 * on each ISA. */
#pragma once
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
#define FSDP_VEC_BYTES 64
#elif defined(__AVX2__)
#define FSDP_VEC_BYTES 32
#else
#define FSDP_VEC_BYTES 16
#endif

enum {
    FSDP_VEC = FSDP_VEC_BYTES / 4 /* lanes */
};

typedef float fsdp_vec __attribute__((vector_size(FSDP_VEC_BYTES)));
typedef int32_t fsdp_veci __attribute__((vector_size(FSDP_VEC_BYTES)));
typedef uint32_t fsdp_vecu __attribute__((vector_size(FSDP_VEC_BYTES)));
typedef uint16_t fsdp_vech __attribute__((vector_size(FSDP_VEC_BYTES / 2)));

#define FSDP_INLINE static inline __attribute__((always_inline))

FSDP_INLINE fsdp_vec fsdp_vec_load(const float *p)
{
    fsdp_vec x;
    memcpy(&x, p, sizeof x);
    return x;
}

FSDP_INLINE void fsdp_vec_store(float *p, fsdp_vec x)
{
    memcpy(p, &x, sizeof x);
}

FSDP_INLINE fsdp_vec fsdp_vec_set(float x)
{
    /* x - 0 is x also for -0, unlike x + 0 */
    return x - (fsdp_vec){0};
}

/* Return x in the lanes whose mask is all ones, and y in the other lanes. */
FSDP_INLINE fsdp_vec fsdp_vec_select(fsdp_veci mask, fsdp_vec x, fsdp_vec y)
{
    return (fsdp_vec)(((fsdp_veci)x & mask) | ((fsdp_veci)y & ~mask));
}

/* Return x > y ? x : y in each lane. If x is NaN, the result is y. If y is NaN, the result is
 * NaN. */
FSDP_INLINE fsdp_vec fsdp_vec_max(fsdp_vec x, fsdp_vec y)
{
#if defined(__AVX512F__)
    return (fsdp_vec)_mm512_max_ps((__m512)x, (__m512)y);
#elif defined(__AVX2__)
    return (fsdp_vec)_mm256_max_ps((__m256)x, (__m256)y);
#else
    return (fsdp_vec)_mm_max_ps((__m128)x, (__m128)y);
#endif
}

/* Return x < y ? x : y in each lane. If x is NaN, the result is y. If y is NaN, the result is
 * NaN. */
FSDP_INLINE fsdp_vec fsdp_vec_min(fsdp_vec x, fsdp_vec y)
{
#if defined(__AVX512F__)
    return (fsdp_vec)_mm512_min_ps((__m512)x, (__m512)y);
#elif defined(__AVX2__)
    return (fsdp_vec)_mm256_min_ps((__m256)x, (__m256)y);
#else
    return (fsdp_vec)_mm_min_ps((__m128)x, (__m128)y);
#endif
}

/* Return x * y + z. */
FSDP_INLINE fsdp_vec fsdp_vec_fma(fsdp_vec x, fsdp_vec y, fsdp_vec z)
{
#if defined(__AVX512F__)
    return (fsdp_vec)_mm512_fmadd_ps((__m512)x, (__m512)y, (__m512)z);
#elif defined(__AVX2__) && defined(__FMA__)
    return (fsdp_vec)_mm256_fmadd_ps((__m256)x, (__m256)y, (__m256)z);
#else
    return x * y + z;
#endif
}

/* Return a mask in which lane l is all ones if first + l is in [begin, end), and zero otherwise. */
FSDP_INLINE fsdp_veci fsdp_vec_lanes(int first, int begin, int end)
{
    int32_t lanes[FSDP_VEC];
    fsdp_veci lane;
    for (int l = 0; l < FSDP_VEC; l++)
        lanes[l] = first + l;
    memcpy(&lane, lanes, sizeof lane);
    return (lane >= begin) & (lane < end);
}

FSDP_INLINE fsdp_vecu fsdp_vec_load_u16(const uint16_t *p)
{
    fsdp_vech half;
    memcpy(&half, p, sizeof half);
#if defined(__AVX512F__)
    return (fsdp_vecu)_mm512_cvtepu16_epi32((__m256i)half);
#elif defined(__AVX2__)
    return (fsdp_vecu)_mm256_cvtepu16_epi32((__m128i)half);
#else
    return __builtin_convertvector(half, fsdp_vecu);
#endif
}

/* Store the lanes as 16-bit integers. Each lane must be below 65536. */
FSDP_INLINE void fsdp_vec_store_u16(uint16_t *p, fsdp_vecu x)
{
#if defined(__AVX512F__)
    __m256i half = _mm512_cvtepi32_epi16((__m512i)x);
#elif defined(__AVX2__)
    __m128i half = _mm_packus_epi32(_mm256_castsi256_si128((__m256i)x),
                                    _mm256_extracti128_si256((__m256i)x, 1));
#else
    fsdp_vech half = __builtin_convertvector(x, fsdp_vech);
#endif
    memcpy(p, &half, sizeof half);
}

/* Store the upper half of each lane. If x has been rounded to bfloat16, this stores its bfloat16
 * values. */
FSDP_INLINE void fsdp_vec_store_upper(uint16_t *p, fsdp_vec x)
{
    fsdp_vec_store_u16(p, (fsdp_vecu)x >> 16);
}

/* Store x as bfloat16, rounded to nearest even. NaN stays NaN. */
FSDP_INLINE void fsdp_vec_store_bf16(uint16_t *p, fsdp_vec x)
{
    fsdp_vecu bits = (fsdp_vecu)x;
    fsdp_vecu nan = (fsdp_vecu)((bits & 0x7fffffffu) > 0x7f800000u);
    fsdp_vecu rounded = bits + 0x7fffu + (bits >> 16 & 1u);
    fsdp_vec_store_u16(p, ((rounded & ~nan) | ((bits | 0x400000u) & nan)) >> 16);
}

FSDP_INLINE fsdp_vec fsdp_vec_abs(fsdp_vec x)
{
    return (fsdp_vec)((fsdp_vecu)x & 0x7fffffffu);
}

FSDP_INLINE fsdp_vec fsdp_vec_copysign(fsdp_vec magnitude, fsdp_vec sign)
{
    return (fsdp_vec)(((fsdp_vecu)magnitude & 0x7fffffffu) | ((fsdp_vecu)sign & 0x80000000u));
}

/* Return the value of the largest lane. NaN in lane 0 makes the result NaN. NaN in any other lane
 * is ignored. */
FSDP_INLINE float fsdp_vec_max_lane(fsdp_vec x)
{
    float most = x[0];
    for (int l = 1; l < FSDP_VEC; l++)
        most = x[l] > most ? x[l] : most;
    return most;
}

FSDP_INLINE float fsdp_vec_sum(fsdp_vec x)
{
    float lanes[FSDP_VEC];
    fsdp_vec_store(lanes, x);
    for (int width = FSDP_VEC / 2; width; width /= 2)
        for (int l = 0; l < width; l++)
            lanes[l] += lanes[l + width];
    return lanes[0];
}

/* Return e^x for x <= 88. The result is 0 for x below -105, including -infinity, and NaN for NaN. x
 * is written as k ln 2 + r with |r| <= ln 2 / 2. Then e^x = 2^k e^r, and a polynomial in r gives
 * e^r. Without AVX-512, a result that would be subnormal (x below -87) is replaced with 0. */
FSDP_INLINE fsdp_vec fsdp_vec_exp(fsdp_vec x)
{
    const fsdp_vec magic = fsdp_vec_set(0x1.8p23f);
    x = fsdp_vec_max(fsdp_vec_set(-105.0f), x);
    /* Round x / ln 2 to an integer k. `shifted` is x / ln 2 + magic. This float is so large that it
     * has no bits for a fraction, so the addition rounds to an integer. The low bits of `shifted`
     * are k. */
    fsdp_vec shifted = fsdp_vec_fma(x, fsdp_vec_set(0x1.715476p+0f), magic);
    fsdp_vec k = shifted - magic;
    /* k ln 2 is subtracted in two parts, because ln 2 is not exact in float. The first part of ln 2
     * has 15 bits. So its product with k is exact, even without a fused operation. */
    fsdp_vec r = fsdp_vec_fma(k, fsdp_vec_set(-0x1.62e4p-1f), x);
    r = fsdp_vec_fma(k, fsdp_vec_set(-0x1.7f7d1cp-20f), r);
    fsdp_vec q = fsdp_vec_set(0x1.6a2254p-10f);
    q = fsdp_vec_fma(q, r, fsdp_vec_set(0x1.123b02p-7f));
    q = fsdp_vec_fma(q, r, fsdp_vec_set(0x1.5558f8p-5f));
    q = fsdp_vec_fma(q, r, fsdp_vec_set(0x1.555490p-3f));
    q = fsdp_vec_fma(q, r, fsdp_vec_set(0x1.fffffcp-2f));
    fsdp_vec p = fsdp_vec_fma(r * r, q, r) + 1.0f;
#if defined(__AVX512F__)
    return (fsdp_vec)_mm512_scalef_ps((__m512)p, (__m512)k);
#else
    fsdp_vec power = (fsdp_vec)(((fsdp_vecu)shifted << 23) + 0x3f800000u);
    return (fsdp_vec)((fsdp_vecu)(p * power) & ~(fsdp_vecu)(x < -87.0f));
#endif
}

/* Return s = 1 / (1 + e^-x). For negative x, it is computed as e^x / (1 + e^x). Set *slope to the
 * derivative s (1 - s), which is computed without cancellation. */
FSDP_INLINE fsdp_vec fsdp_vec_sigmoid(fsdp_vec x, fsdp_vec *slope)
{
    fsdp_vec e = fsdp_vec_exp(-fsdp_vec_abs(x)), larger = 1.0f / (1.0f + e), smaller = e * larger;
    *slope = smaller * larger;
    return fsdp_vec_select(x < 0.0f, smaller, larger);
}

/* Return tanh x. Near 0, it is computed by an odd polynomial. Elsewhere, it is computed as 1 - 2
 * e^-2|x| / (1 + e^-2|x|) with the sign of x. */
FSDP_INLINE fsdp_vec fsdp_vec_tanh(fsdp_vec x)
{
    fsdp_vec t = fsdp_vec_abs(x), z = x * x;
    fsdp_vec q = fsdp_vec_set(-0x1.76f92ap-8f);
    q = fsdp_vec_fma(q, z, fsdp_vec_set(0x1.526a4cp-6f));
    q = fsdp_vec_fma(q, z, fsdp_vec_set(-0x1.b847bep-5f));
    q = fsdp_vec_fma(q, z, fsdp_vec_set(0x1.110788p-3f));
    q = fsdp_vec_fma(q, z, fsdp_vec_set(-0x1.555534p-2f));
    fsdp_vec small = fsdp_vec_fma(z * q, x, x);
    fsdp_vec e = fsdp_vec_exp(-(t + t));
    fsdp_vec large = 1.0f - (e + e) / (1.0f + e);
    return fsdp_vec_copysign(fsdp_vec_select(t < 0.625f, small, large), x);
}

/* Return erf x. Near 0, it is computed by an odd polynomial. Elsewhere, it is computed as 1 - e^(-t
 * p(t)) with the sign of x, where t = |x| and p is a polynomial. */
FSDP_INLINE fsdp_vec fsdp_vec_erf(fsdp_vec x)
{
    fsdp_vec t = fsdp_vec_abs(x), z = x * x;
    fsdp_vec s = fsdp_vec_set(-0x1.3b466ep-11f);
    s = fsdp_vec_fma(s, z, fsdp_vec_set(0x1.478c8cp-8f));
    s = fsdp_vec_fma(s, z, fsdp_vec_set(-0x1.b69a7ep-6f));
    s = fsdp_vec_fma(s, z, fsdp_vec_set(0x1.ce1b94p-4f));
    s = fsdp_vec_fma(s, z, fsdp_vec_set(-0x1.8126eep-2f));
    s = fsdp_vec_fma(s, z, fsdp_vec_set(0x1.06eba6p-3f));
    fsdp_vec small = fsdp_vec_fma(s, x, x);
    fsdp_vec u = fsdp_vec_min(fsdp_vec_set(4.0f), t); /* erf(4) is 1 in float */
    fsdp_vec p = fsdp_vec_set(-0x1.c209c2p-13f);
    p = fsdp_vec_fma(p, u, fsdp_vec_set(0x1.a60c6ap-9f));
    p = fsdp_vec_fma(p, u, fsdp_vec_set(-0x1.774ad8p-6f));
    p = fsdp_vec_fma(p, u, fsdp_vec_set(0x1.af4144p-4f));
    p = fsdp_vec_fma(p, u, fsdp_vec_set(0x1.457a64p-1f));
    p = fsdp_vec_fma(p, u, fsdp_vec_set(0x1.20e6aep+0f));
    fsdp_vec large = 1.0f - fsdp_vec_exp(-(p * u));
    return fsdp_vec_select(t < 0.921875f, small, fsdp_vec_copysign(large, x));
}
