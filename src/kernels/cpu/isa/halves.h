/* Splits blocks of float32 values into upper and lower halves and joins them again, one vector at a
 * time; see Note [Halves] in src/base/halves.h. A block must begin at an index that is a multiple
 * of FSDP_HALVES_WORD, because every sixteen elements share one word of mark bits. */
#pragma once
#include "src/base/halves.h"
#include "src/kernels/cpu/isa/vector.h"

/* Return a number whose bit j is the sign bit of lane j. */
FSDP_INLINE unsigned fsdp_vec_signs(fsdp_vecu x)
{
#if defined(__AVX512DQ__)
    return _mm512_movepi32_mask((__m512i)x);
#elif defined(__AVX2__)
    return (unsigned)_mm256_movemask_ps((__m256)x);
#else
    return (unsigned)_mm_movemask_ps((__m128)x);
#endif
}

/* Return a mask in which lane j is all ones if bit j of `bits` is set, and zero otherwise. */
FSDP_INLINE fsdp_vecu fsdp_vec_spread(unsigned bits)
{
    const uint32_t of_lane[16] = {1u << 0,  1u << 1,  1u << 2,  1u << 3, 1u << 4,  1u << 5,
                                  1u << 6,  1u << 7,  1u << 8,  1u << 9, 1u << 10, 1u << 11,
                                  1u << 12, 1u << 13, 1u << 14, 1u << 15};
    fsdp_vecu lane;
    memcpy(&lane, of_lane, sizeof lane);
    return (fsdp_vecu)((lane & bits) != 0u);
}

FSDP_INLINE fsdp_vec fsdp_vec_join(fsdp_vecu hi, fsdp_vecu lo, unsigned marks)
{
    const fsdp_vecu mark = fsdp_vec_spread(marks) & 1u;
    const fsdp_vecu nan = (fsdp_vecu)((hi & 0x7fffu) > 0x7f80u);
    const fsdp_vecu up = (fsdp_vecu)(lo + mark > 0x8000u) & 1u;
    const fsdp_vecu less = (mark << 6 & nan) | (up & ~nan);
    return (fsdp_vec)((hi - less) << 16 | lo);
}

/* Return a number whose bit j is the mark bit of lane j of x. There is no function for the lower
 * halves, because the lower half of a lane is just its lower 16 bits. */
FSDP_INLINE unsigned fsdp_vec_marks(fsdp_vec x)
{
    const fsdp_vecu bits = (fsdp_vecu)x;
    const fsdp_vecu nan = (fsdp_vecu)((bits & 0x7fffffffu) > 0x7f800000u);
    const fsdp_vecu tie = (fsdp_vecu)((bits & 0x1ffffu) == 0x18000u);
    const fsdp_vecu loud = (fsdp_vecu)((bits & 0x400000u) == 0u);
    return fsdp_vec_signs((loud & nan) | (tie & ~nan));
}

/* Join the first n elements of the halves `h`, and write them to `to`. */
static inline void fsdp_join_block(float *restrict to, fsdp_halves h, int n)
{
    int i = 0;
    for (; i + FSDP_HALVES_WORD <= n; i += FSDP_HALVES_WORD)
        for (int j = 0; j < FSDP_HALVES_WORD; j += FSDP_VEC)
            fsdp_vec_store(to + i + j, fsdp_vec_join(fsdp_vec_load_u16(h.hi + i + j),
                                                     fsdp_vec_load_u16(h.lo + i + j),
                                                     h.marks[i / FSDP_HALVES_WORD] >> j));
    for (; i < n; i++)
        to[i] = fsdp_join_half(h.hi[i], h.lo[i],
                               h.marks[i / FSDP_HALVES_WORD] >> i % FSDP_HALVES_WORD & 1);
}

/* Split the n values in `from`, and write them to the first n elements of the halves `h`. Unused
 * mark bits in the last word become zero. */
static inline void fsdp_split_block(fsdp_halves h, const float *restrict from, int n)
{
    int i = 0;
    for (; i + FSDP_HALVES_WORD <= n; i += FSDP_HALVES_WORD) {
        unsigned word = 0;
        for (int j = 0; j < FSDP_HALVES_WORD; j += FSDP_VEC) {
            const fsdp_vec x = fsdp_vec_load(from + i + j);
            fsdp_vec_store_bf16(h.hi + i + j, x);
            fsdp_vec_store_u16(h.lo + i + j, (fsdp_vecu)x & 0xffffu);
            word |= fsdp_vec_marks(x) << j;
        }
        h.marks[i / FSDP_HALVES_WORD] = (uint16_t)word;
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
