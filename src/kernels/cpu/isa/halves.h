/* Note [Halves] in src/base/halves.h, sixteen at a time: blocks on their way from and to two
 * halves. A block begins at a multiple of FSDP_HALVES_WORD and has a word of marks for each
 * sixteen. */
#pragma once
#include "src/base/halves.h"
#include "src/kernels/cpu/isa/vec16.h"

FSDP_INLINE fsdp_v16u fsdp_load16_u16(const uint16_t *p)
{
    fsdp_v16h half;
    memcpy(&half, p, sizeof half);
    return __builtin_convertvector(half, fsdp_v16u);
}

/* The lower halves. */
FSDP_INLINE void fsdp_store16_u16(uint16_t *p, fsdp_v16u x)
{
#if defined(__AVX512F__)
    __m256i half = _mm512_cvtepi32_epi16((__m512i)x);
#else
    fsdp_v16h half = __builtin_convertvector(x, fsdp_v16h);
#endif
    memcpy(p, &half, sizeof half);
}

/* Bit j is the sign of lane j. */
FSDP_INLINE uint16_t fsdp_signs16(fsdp_v16u x)
{
#if defined(__AVX512DQ__)
    return (uint16_t)_mm512_movepi32_mask((__m512i)x);
#elif defined(__AVX__)
    __m256 part[2];
    memcpy(part, &x, sizeof x);
    return (uint16_t)(_mm256_movemask_ps(part[0]) | _mm256_movemask_ps(part[1]) << 8);
#else
    __m128 part[4];
    memcpy(part, &x, sizeof x);
    int signs = 0;
    for (int i = 0; i < 4; i++)
        signs |= _mm_movemask_ps(part[i]) << 4 * i;
    return (uint16_t)signs;
#endif
}

/* Lane j is all ones where bit j is set. */
FSDP_INLINE fsdp_v16u fsdp_spread16(uint16_t bits)
{
    const fsdp_v16u lane = {1u << 0,  1u << 1,  1u << 2,  1u << 3, 1u << 4,  1u << 5,
                            1u << 6,  1u << 7,  1u << 8,  1u << 9, 1u << 10, 1u << 11,
                            1u << 12, 1u << 13, 1u << 14, 1u << 15};
    return (fsdp_v16u)((lane & (uint32_t)bits) != 0u);
}

FSDP_INLINE fsdp_v16 fsdp_join16(fsdp_v16u hi, fsdp_v16u lo, uint16_t marks)
{
    const fsdp_v16u mark = fsdp_spread16(marks) & 1u;
    const fsdp_v16u nan = (fsdp_v16u)((hi & 0x7fffu) > 0x7f80u);
    const fsdp_v16u up = (fsdp_v16u)(lo + mark > 0x8000u) & 1u;
    const fsdp_v16u less = (mark << 6 & nan) | (up & ~nan);
    return (fsdp_v16)((hi - less) << 16 | lo);
}

/* The marks; `lo` is the lower halves of the values' bits. */
FSDP_INLINE uint16_t fsdp_marks16(fsdp_v16 x)
{
    const fsdp_v16u bits = (fsdp_v16u)x;
    const fsdp_v16u nan = (fsdp_v16u)((bits & 0x7fffffffu) > 0x7f800000u);
    const fsdp_v16u tie = (fsdp_v16u)((bits & 0x1ffffu) == 0x18000u);
    const fsdp_v16u loud = (fsdp_v16u)((bits & 0x400000u) == 0u);
    return fsdp_signs16((loud & nan) | (tie & ~nan));
}

/* `h` from the block's first element on, n of them. */
static inline void fsdp_join_block(float *restrict to, fsdp_halves h, int n)
{
    int i = 0;
    for (; i + 16 <= n; i += 16)
        fsdp_store16(to + i, fsdp_join16(fsdp_load16_u16(h.hi + i), fsdp_load16_u16(h.lo + i),
                                         h.marks[i / FSDP_HALVES_WORD]));
    for (; i < n; i++)
        to[i] = fsdp_join_half(h.hi[i], h.lo[i],
                               h.marks[i / FSDP_HALVES_WORD] >> i % FSDP_HALVES_WORD & 1);
}

/* The last word's marks of no element are zeros. */
static inline void fsdp_split_block(fsdp_halves h, const float *restrict from, int n)
{
    int i = 0;
    for (; i + 16 <= n; i += 16) {
        const fsdp_v16 x = fsdp_load16(from + i);
        fsdp_store16_bf16(h.hi + i, x);
        fsdp_store16_u16(h.lo + i, (fsdp_v16u)x & 0xffffu);
        h.marks[i / FSDP_HALVES_WORD] = fsdp_marks16(x);
    }
    unsigned marks = 0;
    for (int j = i; j < n; j++) {
        bool mark;
        fsdp_split_half(from[j], &h.hi[j], &h.lo[j], &mark);
        marks |= (unsigned)mark << (j - i);
    }
    if (i < n)
        h.marks[i / FSDP_HALVES_WORD] = (uint16_t)marks;
}
