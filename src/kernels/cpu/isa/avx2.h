/* Functions that the AVX2 tiles and strips share. The functions exist only if the ISA of the
 * compilation has AVX2. */
#pragma once
#include "src/kernels/cpu/isa/block.h"
#include "src/kernels/cpu/isa/vector.h"

/* UNROLL makes the compiler unroll the loop that follows, which must have a constant number of
 * iterations. In an unrolled loop, arrays of vectors that the loop indexes stay in registers. */
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 8")
#endif

#if defined(__AVX2__)
FSDP_INLINE __m256 fsdp_avx2_widen(__m128i half)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

/* Loads the first n elements at src, but at most eight, as float32. The remaining lanes become
 * zeros. */
FSDP_INLINE __m256 fsdp_avx2_load(const char *src, bool bf16, int64_t n)
{
    if (n >= 8)
        return bf16 ? fsdp_avx2_widen(_mm_loadu_si128((const __m128i *)(const void *)src))
                    : _mm256_loadu_ps((const float *)(const void *)src);
    char part[32] = {0};
    memcpy(part, src, (size_t)n * (bf16 ? 2 : 4));
    return bf16 ? fsdp_avx2_widen(_mm_loadu_si128((const __m128i *)(const void *)part))
                : _mm256_loadu_ps((const float *)(const void *)part);
}
#endif
