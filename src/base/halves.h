/* Stores a float32 in two halves of 16 bits, one value at a time; src/kernels/cpu/isa/halves.h does
 * the same for vectors.
 *
 * Note [Halves]. A float32 is stored as `hi`, `lo` and a bit `mark`. `hi` is the value as bfloat16,
 * rounded to nearest even as in every cast (bf16.h). `lo` is the lower half of the float32's bits.
 * If the value was rounded down, `hi` is the upper half of the bits. If it was rounded up, `hi` is
 * the upper half plus 1; this may be infinity or, if the upper half was 0, the smallest denormal.
 *
 * `lo` shows how the value was rounded: up if `lo` is above 0x8000, and down if `lo` is below
 * 0x8000. If `lo` is 0x8000, the value is halfway between two bfloat16 values, and was rounded to
 * the even one of them. In this case, `mark` is set if it was rounded up.
 *
 * A NaN is not rounded. `hi` is then a quiet NaN, and `mark` is set if the float32 was a signaling
 * NaN. */
#pragma once
#include <stdbool.h>

#include "src/base/bf16.h"

/* An array of values: element i is in hi[i], lo[i] and bit i % FSDP_HALVES_WORD of marks[i /
 * FSDP_HALVES_WORD]. */
typedef struct fsdp_halves {
    uint16_t *hi, *lo, *marks;
} fsdp_halves;

enum {
    FSDP_HALVES_WORD = 16
};

static inline int64_t fsdp_halves_words(int64_t n)
{
    return (n + FSDP_HALVES_WORD - 1) / FSDP_HALVES_WORD;
}

/* Return the part of `h` that begins at element i. i must be a multiple of FSDP_HALVES_WORD. */
static inline fsdp_halves fsdp_halves_at(fsdp_halves h, int64_t i)
{
    return (fsdp_halves){h.hi + i, h.lo + i, h.marks + i / FSDP_HALVES_WORD};
}

static inline float fsdp_join_half(uint16_t hi, uint16_t lo, bool mark)
{
    const bool nan = (hi & 0x7fff) > 0x7f80;
    const uint32_t less = nan ? (uint32_t)mark << 6 : (uint32_t)lo + mark > 0x8000u;
    return fsdp_f32_from_bits((hi - less) << 16 | lo);
}

static inline void fsdp_split_half(float f, uint16_t *hi, uint16_t *lo, bool *mark)
{
    const uint32_t bits = fsdp_bits_from_f32(f);
    const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
    *hi = fsdp_bf16_from_f32(f);
    *lo = (uint16_t)bits;
    *mark = nan ? !(bits & 0x400000u) : (bits & 0x1ffffu) == 0x18000u;
}
