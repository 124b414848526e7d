/* Rows of bf16 and f16 to f32 and back, vectorised by the compiler for the ISA of the file that
 * includes this. Rounding as in src/base/bf16.h. */
#pragma once
#include <string.h>
#if defined(__F16C__)
#include <immintrin.h>
#endif

#include <fsdp/base.h>

#include "src/base/bf16.h"

static inline void fsdp_row_from_bf16(float *restrict dst, const uint16_t *restrict src, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        dst[i] = fsdp_f32_from_bf16(src[i]);
}

static inline void fsdp_row_to_bf16(uint16_t *restrict dst, const float *restrict src, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        dst[i] = fsdp_bf16_from_f32(src[i]);
}

static inline void fsdp_row_from_f16(float *restrict dst, const uint16_t *restrict src, int64_t n)
{
    int64_t i = 0;
#if defined(__F16C__)
    for (; i + 8 <= n; i += 8) {
        __m128i half;
        memcpy(&half, src + i, sizeof half);
        _mm256_storeu_ps(dst + i, _mm256_cvtph_ps(half));
    }
#endif
    for (; i < n; i++)
        dst[i] = fsdp_f32_from_f16(src[i]);
}

static inline void fsdp_row_to_f16(uint16_t *restrict dst, const float *restrict src, int64_t n)
{
    int64_t i = 0;
#if defined(__F16C__)
    for (; i + 8 <= n; i += 8) {
        __m128i half = _mm256_cvtps_ph(_mm256_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT);
        memcpy(dst + i, &half, sizeof half);
    }
#endif
    for (; i < n; i++)
        dst[i] = fsdp_f16_from_f32(src[i]);
}

static inline void fsdp_row_to_f32(float *dst, const void *src, fsdp_dtype from, int64_t n)
{
    if (from == FSDP_DTYPE_F32)
        memcpy(dst, src, (size_t)n * sizeof *dst);
    else if (from == FSDP_DTYPE_BF16)
        fsdp_row_from_bf16(dst, src, n);
    else
        fsdp_row_from_f16(dst, src, n);
}

static inline void fsdp_row_from_f32(void *dst, fsdp_dtype to, const float *src, int64_t n)
{
    if (to == FSDP_DTYPE_F32)
        memcpy(dst, src, (size_t)n * sizeof *src);
    else if (to == FSDP_DTYPE_BF16)
        fsdp_row_to_bf16(dst, src, n);
    else
        fsdp_row_to_f16(dst, src, n);
}
