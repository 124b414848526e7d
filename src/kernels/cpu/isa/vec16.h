/* Sixteen floats at a time as GCC's and Clang's vectors, which the compiler spreads over whatever
 * registers the ISA has: for loops that vec.h's one-lane functions leave to the vectoriser's
 * discretion and that are worth more. Each operation is one IEEE operation a lane, so a value's
 * bits do not depend on its lane; fsdp_fma16 is fused where the ISA has it (v3, v4). Whatever takes
 * or returns a vector is FSDP_INLINE: vectors wider than the registers must not cross a call. */
#pragma once
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi" /* as the Makefile, for this header alone */
#endif

typedef float fsdp_v16 __attribute__((vector_size(64)));
typedef int32_t fsdp_v16i __attribute__((vector_size(64)));
typedef uint32_t fsdp_v16u __attribute__((vector_size(64)));
typedef uint16_t fsdp_v16h __attribute__((vector_size(32)));

#define FSDP_INLINE static inline __attribute__((always_inline))

FSDP_INLINE fsdp_v16 fsdp_load16(const float *p)
{
    fsdp_v16 x;
    memcpy(&x, p, sizeof x);
    return x;
}

FSDP_INLINE void fsdp_store16(float *p, fsdp_v16 x)
{
    memcpy(p, &x, sizeof x);
}

/* Past the caches, to an address that is a multiple of 64: the line is not read first. For large
 * results that are not read soon; fsdp_stream_end() comes before anybody else may look at them. */
FSDP_INLINE void fsdp_stream16(float *p, fsdp_v16 x)
{
#if defined(__AVX512F__)
    _mm512_stream_ps(p, (__m512)x);
#elif defined(__AVX__)
    __m256 part[2];
    memcpy(part, &x, sizeof x);
    for (int i = 0; i < 2; i++)
        _mm256_stream_ps(p + 8 * i, part[i]);
#else
    __m128 part[4];
    memcpy(part, &x, sizeof x);
    for (int i = 0; i < 4; i++)
        _mm_stream_ps(p + 4 * i, part[i]);
#endif
}

static inline void fsdp_stream_end(void)
{
    _mm_sfence();
}

FSDP_INLINE fsdp_v16 fsdp_set16(float x)
{
    return (fsdp_v16){x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x};
}

/* Lanes of x where the mask is set, else of y. */
FSDP_INLINE fsdp_v16 fsdp_select16(fsdp_v16i mask, fsdp_v16 x, fsdp_v16 y)
{
    return (fsdp_v16)(((fsdp_v16i)x & mask) | ((fsdp_v16i)y & ~mask));
}

FSDP_INLINE fsdp_v16 fsdp_max16(fsdp_v16 x, fsdp_v16 y)
{
    return fsdp_select16(x > y, x, y);
}

/* x * y + z. */
FSDP_INLINE fsdp_v16 fsdp_fma16(fsdp_v16 x, fsdp_v16 y, fsdp_v16 z)
{
#if defined(__AVX512F__)
    return (fsdp_v16)_mm512_fmadd_ps((__m512)x, (__m512)y, (__m512)z);
#elif defined(__FMA__)
    __m256 a[2], b[2], c[2];
    memcpy(a, &x, sizeof x);
    memcpy(b, &y, sizeof y);
    memcpy(c, &z, sizeof z);
    c[0] = _mm256_fmadd_ps(a[0], b[0], c[0]);
    c[1] = _mm256_fmadd_ps(a[1], b[1], c[1]);
    memcpy(&z, c, sizeof z);
    return z;
#else
    return x * y + z;
#endif
}

/* Lanes 0 to 15, counted from `first`, that lie in [begin, end). */
FSDP_INLINE fsdp_v16i fsdp_lanes16(int first, int begin, int end)
{
    fsdp_v16i lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    lane += first;
    return (lane >= begin) & (lane < end);
}

/* The bits of x as bfloat16, rounded to nearest even, in the lower halves; NaN stays NaN. */
FSDP_INLINE fsdp_v16u fsdp_bits16_bf16(fsdp_v16 x)
{
    fsdp_v16u bits = (fsdp_v16u)x;
    fsdp_v16u nan = (fsdp_v16u)((bits & 0x7fffffffu) > 0x7f800000u);
    fsdp_v16u rounded = bits + 0x7fffu + (bits >> 16 & 1u);
    return ((rounded & ~nan) | ((bits | 0x400000u) & nan)) >> 16;
}

/* The lower halves of the lanes. */
FSDP_INLINE void fsdp_store16_halves(uint16_t *p, fsdp_v16u x)
{
#if defined(__AVX512F__)
    __m256i half = _mm512_cvtepi32_epi16((__m512i)x);
#else
    fsdp_v16h half = __builtin_convertvector(x, fsdp_v16h);
#endif
    memcpy(p, &half, sizeof half);
}

FSDP_INLINE void fsdp_store16_bf16(uint16_t *p, fsdp_v16 x)
{
    fsdp_store16_halves(p, fsdp_bits16_bf16(x));
}

/* The upper halves of the lanes: x as bfloat16 has it, if it is rounded. */
FSDP_INLINE void fsdp_store16_upper(uint16_t *p, fsdp_v16 x)
{
    fsdp_store16_halves(p, (fsdp_v16u)x >> 16);
}

/* e^x for x <= 88; 0 below -87, where results stop being normal, and for -infinity; NaN for NaN.
 * The polynomial of fsdp_exp in fused steps. */
FSDP_INLINE fsdp_v16 fsdp_exp16(fsdp_v16 x)
{
    const fsdp_v16 magic = fsdp_set16(0x1.8p23f);
    fsdp_v16 shifted = fsdp_fma16(x, fsdp_set16(0x1.715476p+0f), magic);
    fsdp_v16 k = shifted - magic;
    fsdp_v16 r = fsdp_fma16(k, fsdp_set16(-0x1.62e4p-1f), x);
    r = fsdp_fma16(k, fsdp_set16(-0x1.7f7d1cp-20f), r);
    fsdp_v16 q = fsdp_set16(0x1.6a2254p-10f);
    q = fsdp_fma16(q, r, fsdp_set16(0x1.123b02p-7f));
    q = fsdp_fma16(q, r, fsdp_set16(0x1.5558f8p-5f));
    q = fsdp_fma16(q, r, fsdp_set16(0x1.555490p-3f));
    q = fsdp_fma16(q, r, fsdp_set16(0x1.fffffcp-2f));
    fsdp_v16 p = fsdp_fma16(r * r, q, r) + 1.0f;
    fsdp_v16 power = (fsdp_v16)(((fsdp_v16u)shifted << 23) + 0x3f800000u);
    return (fsdp_v16)((fsdp_v16u)(p * power) & ~(fsdp_v16u)(x < -87.0f));
}

/* --- random bits --- */

typedef uint64_t fsdp_v8q __attribute__((vector_size(64)));

/* Products of the lower halves of 64-bit lanes. */
FSDP_INLINE fsdp_v8q fsdp_multiply8(fsdp_v8q x, uint32_t y)
{
#if defined(__AVX512F__)
    return (fsdp_v8q)_mm512_mul_epu32((__m512i)x, _mm512_set1_epi64(y));
#elif defined(__AVX2__)
    __m256i part[2], factor = _mm256_set1_epi64x(y);
    memcpy(part, &x, sizeof x);
    for (int i = 0; i < 2; i++)
        part[i] = _mm256_mul_epu32(part[i], factor);
    memcpy(&x, part, sizeof x);
    return x;
#else
    __m128i part[4], factor = _mm_set1_epi64x(y);
    memcpy(part, &x, sizeof x);
    for (int i = 0; i < 4; i++)
        part[i] = _mm_mul_epu32(part[i], factor);
    memcpy(&x, part, sizeof x);
    return x;
#endif
}

/* The 32 words of fsdp_philox4x32(key, first + j, 0), j < 8, counter by counter. A counter a
 * 64-bit lane; the upper halves of the state hold rubbish, which nothing looks at. */
FSDP_INLINE void fsdp_philox8(uint32_t words[32], uint64_t key, uint64_t first)
{
    fsdp_v8q lane = {0, 1, 2, 3, 4, 5, 6, 7};
    fsdp_v8q c0 = lane + first, c1 = c0 >> 32, c2 = {0}, c3 = {0};
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++) {
        fsdp_v8q p0 = fsdp_multiply8(c0, 0xD2511F53u), p1 = fsdp_multiply8(c2, 0xCD9E8D57u);
        c0 = p1 >> 32 ^ c1 ^ k0;
        c2 = p0 >> 32 ^ c3 ^ k1;
        c1 = p1;
        c3 = p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    fsdp_v8q low = (c0 & 0xffffffffu) | c1 << 32, high = (c2 & 0xffffffffu) | c3 << 32;
    uint64_t pairs[16];
    for (int j = 0; j < 8; j++) {
        pairs[2 * j] = low[j];
        pairs[2 * j + 1] = high[j];
    }
    memcpy(words, pairs, sizeof pairs);
}
