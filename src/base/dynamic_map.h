/* The dynamic maps of 8-bit optimizer states (Dettmers et al. 2022, "8-bit Optimizers via
 * Block-wise Quantization"), with the bits of bitsandbytes' create_dynamic_map(). A map has 256
 * values in ascending order. A code is the index of a value. A block of a state is stored as codes
 * and the largest magnitude of the block, absmax. An element is then map[code] * absmax. */
#pragma once
#include <stdint.h>

enum {
    FSDP_MAP_VALUES = 256,
    FSDP_MAP_BLOCK = 256, /* elements that share an absmax */
    /* Magnitudes in [2^-24, 1) are divided into buckets, FSDP_MAP_PER_OCTAVE for each power of two.
     * Buckets are so small that each contains at most one boundary between two codes. */
    FSDP_MAP_PER_OCTAVE = 256,
    FSDP_MAP_BUCKETS = 24 * FSDP_MAP_PER_OCTAVE
};

typedef struct fsdp_dynamic_map {
    float value[FSDP_MAP_VALUES];
    /* bound[c] is halfway between value[c] and value[c + 1]. The last bound is infinite. */
    float bound[FSDP_MAP_VALUES];
    /* first[0]: the code of the smallest magnitude of each bucket, for positive numbers. first[1]:
     * the code of the largest magnitude of each bucket, for negative numbers. In both cases this is
     * the smallest code of the bucket. */
    uint8_t first[2][FSDP_MAP_BUCKETS];
} fsdp_dynamic_map;

/* Return the map whose values are in [-1, 1], for exp_avg. Static storage. */
const fsdp_dynamic_map *fsdp_dynamic_map_signed(void);
/* Return the map whose values are in [0, 1], for exp_avg_sq. Static storage. */
const fsdp_dynamic_map *fsdp_dynamic_map_unsigned(void);

/* Return the code whose value is nearest to x. If x is halfway between two values, return the code
 * of the smaller one. Return a valid code for every x, even if x is NaN. */
static inline uint8_t fsdp_dynamic_map_code(const fsdp_dynamic_map *map, float x)
{
    const union {
        float f;
        uint32_t u;
    } bits = {.f = x};
    const int32_t least = 103 << 23; /* the bits of 2^-24 */
    const int32_t most = (127 << 23) - 1;
    int32_t magnitude = (int32_t)(bits.u & 0x7fffffffu);
    magnitude = magnitude < least ? least : magnitude > most ? most : magnitude;
    const uint8_t code = map->first[bits.u >> 31][(magnitude - least) >> 15];
    return (uint8_t)(code + (x > map->bound[code]));
}
