/* Halves of float32 values in device code: fsdp_join_half() and fsdp_split_half() of Note [Halves]
 * in src/base/halves.h. The results have the same bits as on the CPU, even for NaN. For this
 * reason, the upper half is computed with integers: the hardware's conversion would replace the
 * bits of a NaN. */
#pragma once
#include "src/base/halves.h"
#include "src/kernels/cuda/elements.cuh"

struct half_pair {
    uint16_t hi, lo;
    uint32_t mark; /* 0 or 1 */
};

FSDP_DEVICE half_pair split_half(float x)
{
    const uint32_t bits = __float_as_uint(x);
    const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
    const uint32_t rounded = nan ? bits | 0x400000u : bits + 0x7fffu + (bits >> 16 & 1);
    const bool mark = nan ? !(bits & 0x400000u) : (bits & 0x1ffffu) == 0x18000u;
    return {(uint16_t)(rounded >> 16), (uint16_t)bits, mark};
}

FSDP_DEVICE float join_half(half_pair h)
{
    const bool nan = (h.hi & 0x7fffu) > 0x7f80u;
    const uint32_t less = nan ? h.mark << 6 : h.lo + h.mark > 0x8000u;
    return __uint_as_float((h.hi - less) << 16 | h.lo);
}
