/* Functions that the AVX-512 tiles and strips share. The functions exist only if the ISA of the
 * compilation has AVX-512. */
#pragma once
#include "src/kernels/cpu/isa/block.h"
#include "src/kernels/cpu/isa/vector.h"

/* UNROLL makes the compiler unroll the loop that follows, which must have a constant number of
 * iterations. In an unrolled loop, arrays of vectors that the loop indexes stay in registers. */
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* Marks a function that may use AVX512-BF16 instructions. Functions with this mark can be inlined
 * into each other. If the CPU does not have AVX512-BF16, callers must make sure that none of these
 * instructions is executed. */
#define BF16_TARGET __attribute__((target("avx512bf16")))

#if defined(__AVX512F__) && defined(__AVX512BW__)
/* Loads elements [i, i + 16) of x, which is f32 or bf16, as f32. An element whose bit in `lanes` is
 * clear is not read, and its lane becomes zero. */
FSDP_INLINE __m512 fsdp_avx512_load(const void *x, fsdp_dtype dtype, int64_t i, __mmask16 lanes)
{
    if (dtype == FSDP_DTYPE_F32)
        return _mm512_maskz_loadu_ps(lanes, (const float *)x + i);
    __m256i half = _mm256_maskz_loadu_epi16(lanes, (const uint16_t *)x + i);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

/* Rounds x to the nearest bf16, ties to even. If use_bf16 is true, the function uses an instruction
 * of AVX512-BF16, which turns denormals into zeros, as the multiplications of AVX512-BF16 do. */
FSDP_INLINE BF16_TARGET __m256i fsdp_avx512_round_bf16(bool use_bf16, __m512 x)
{
    if (use_bf16)
        return (__m256i)_mm512_cvtneps_pbh(x);
    __m256i rounded;
    fsdp_vec_store_bf16((uint16_t *)&rounded, (fsdp_vec)x);
    return rounded;
}

/* Stores x to elements [i, i + 16) of dst, which is f32 or bf16. An element whose bit in `lanes` is
 * clear is not written. */
FSDP_INLINE BF16_TARGET void fsdp_avx512_store(bool use_bf16, void *dst, fsdp_dtype dtype,
                                               int64_t i, __mmask16 lanes, __m512 x)
{
    if (dtype == FSDP_DTYPE_F32)
        _mm512_mask_storeu_ps((float *)dst + i, lanes, x);
    else if (lanes == 0xffff) /* masked stores of 2-byte elements are slow */
        _mm256_storeu_si256((__m256i *)(void *)((uint16_t *)dst + i),
                            fsdp_avx512_round_bf16(use_bf16, x));
    else
        _mm256_mask_storeu_epi16((uint16_t *)dst + i, lanes, fsdp_avx512_round_bf16(use_bf16, x));
}

/* Transposes a square of 16 x 16 lanes of 4 bytes in place. */
FSDP_INLINE void fsdp_avx512_transpose(__m512i r[16])
{
    __m512i t[16];
    UNROLL
    for (int i = 0; i < 8; i++) {
        t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
    }
    UNROLL
    for (int i = 0; i < 4; i++) {
        r[4 * i] = _mm512_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
        r[4 * i + 1] = _mm512_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
        r[4 * i + 2] = _mm512_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
        r[4 * i + 3] = _mm512_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
    }
    UNROLL
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_i32x4(r[i], r[4 + i], 0x88);
        t[4 + i] = _mm512_shuffle_i32x4(r[i], r[4 + i], 0xdd);
        t[8 + i] = _mm512_shuffle_i32x4(r[8 + i], r[12 + i], 0x88);
        t[12 + i] = _mm512_shuffle_i32x4(r[8 + i], r[12 + i], 0xdd);
    }
    UNROLL
    for (int i = 0; i < 8; i++) {
        int high = i & 4, low = i & 3;
        r[high + low] = _mm512_shuffle_i32x4(t[high + low], t[8 + high + low], 0x88);
        r[8 + high + low] = _mm512_shuffle_i32x4(t[high + low], t[8 + high + low], 0xdd);
    }
}
#endif
