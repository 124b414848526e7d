/* Sixteen floats at a time as GCC's and Clang's vectors, which the compiler spreads over whatever
 * registers the ISA has: for sums of memory and random bits, where each step loads or stores; for
 * arithmetic take vector.h. A value's bits do not depend on its lane. Whatever takes or returns a
 * vector is FSDP_INLINE: vectors wider than the registers must not cross a call. */
#pragma once
#include "src/kernels/cpu/isa/vector.h"

#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi" /* as the Makefile, for this header alone */
#endif

typedef float fsdp_v16 __attribute__((vector_size(64)));

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
