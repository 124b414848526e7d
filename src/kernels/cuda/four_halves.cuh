/* Four adjacent float32 values that are stored as halves; see Note [Halves] in src/base/halves.h.
 * The elements of four adjacent threads share a word of mark bits, so these threads must work
 * together. */
#pragma once
#include "src/base/halves.h"
#include "src/kernels/cuda/fours.cuh"

FSDP_DEVICE float join_half(uint16_t hi, uint16_t lo, uint32_t mark)
{
    const bool nan = (hi & 0x7fff) > 0x7f80;
    const uint32_t less = nan ? mark << 6 : (uint32_t)lo + mark > 0x8000u;
    return __uint_as_float((hi - less) << 16 | lo);
}

FSDP_DEVICE void split_half(float x, uint16_t &hi, uint16_t &lo, uint32_t &mark)
{
    const uint32_t bits = __float_as_uint(x);
    const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
    hi = (uint16_t)(nan ? bits >> 16 | 0x40 : (bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
    lo = (uint16_t)bits;
    mark = nan ? !(bits & 0x400000u) : (bits & 0x1ffffu) == 0x18000u;
}

/* Load elements [i, i + 4) of an array of n float32 values that is stored as 16-bit halves; see
 * Note [Halves] in src/base/halves.h. i must be a multiple of 4. The caller may set WHOLE only if
 * has_fours<uint16_t>(h.hi, h.lo) is true. */
template <bool WHOLE>
FSDP_DEVICE void load_four_halves(float (&x)[4], fsdp_halves h, int64_t i, int64_t n)
{
    const uint32_t marks =
        i < n ? (uint32_t)h.marks[i / FSDP_HALVES_WORD] >> i % FSDP_HALVES_WORD : 0;
    four_of<uint16_t> hi = {}, lo = {};
    if (WHOLE && i + 4 <= n) {
        hi = *(const four_of<uint16_t> *)(h.hi + i);
        lo = *(const four_of<uint16_t> *)(h.lo + i);
    } else
        for (int e = 0; e < 4; e++)
            if (i + e < n) {
                hi.at[e] = h.hi[i + e];
                lo.at[e] = h.lo[i + e];
            }
    for (int e = 0; e < 4; e++)
        x[e] = join_half(hi.at[e], lo.at[e], marks >> e & 1);
}

/* Split x into halves, and store them as elements [i, i + 4) of an array of n elements. All threads
 * of the warp must call this function, including those whose i is n or more. In the first thread, i
 * must be a multiple of 16. In each following thread, i must be larger by 4 than in the thread
 * before it. */
template <bool WHOLE>
FSDP_DEVICE void store_four_halves(fsdp_halves h, const float (&x)[4], int64_t i, int64_t n)
{
    four_of<uint16_t> hi, lo;
    uint32_t marks = 0;
    for (int e = 0; e < 4; e++) {
        uint32_t mark;
        split_half(x[e], hi.at[e], lo.at[e], mark);
        if (i + e < n)
            marks |= mark << (i + e) % FSDP_HALVES_WORD;
    }
    marks |= __shfl_xor_sync(~0u, marks, 1);
    marks |= __shfl_xor_sync(~0u, marks, 2);
    __syncwarp(); /* wait until the threads of this warp have read the old word of mark bits */
    if (i < n && i % FSDP_HALVES_WORD == 0)
        h.marks[i / FSDP_HALVES_WORD] = (uint16_t)marks;
    if (WHOLE && i + 4 <= n) {
        *(four_of<uint16_t> *)(h.hi + i) = hi;
        *(four_of<uint16_t> *)(h.lo + i) = lo;
    } else
        for (int e = 0; e < 4; e++)
            if (i + e < n) {
                h.hi[i + e] = hi.at[e];
                h.lo[i + e] = lo.at[e];
            }
}
