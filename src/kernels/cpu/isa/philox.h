/* Random bits for kernels: the bits of fsdp_philox4x32() in src/base/philox.h, computed for many
 * counters at the same time. */
#pragma once
#include "src/base/philox.h"
#include "src/kernels/cpu/isa/vector.h"

typedef uint64_t fsdp_vecq __attribute__((vector_size(FSDP_VEC_BYTES)));

enum {
    FSDP_VECQ = FSDP_VEC_BYTES / 8 /* 64-bit lanes */
};

/* Return a vector of 64-bit products: the lower half of each 64-bit lane of x, times y. */
FSDP_INLINE fsdp_vecq fsdp_vec_multiply(fsdp_vecq x, uint32_t y)
{
#if defined(__AVX512F__)
    return (fsdp_vecq)_mm512_mul_epu32((__m512i)x, _mm512_set1_epi64(y));
#elif defined(__AVX2__)
    return (fsdp_vecq)_mm256_mul_epu32((__m256i)x, _mm256_set1_epi64x(y));
#else
    return (fsdp_vecq)_mm_mul_epu32((__m128i)x, _mm_set1_epi64x(y));
#endif
}

/* Store x[0], y[0], x[1], y[1], ... at p. */
FSDP_INLINE void fsdp_vec_store_pairs(uint32_t *p, fsdp_vecq x, fsdp_vecq y)
{
#if defined(__AVX512F__)
    fsdp_vecq lower = __builtin_shufflevector(x, y, 0, 8, 1, 9, 2, 10, 3, 11);
    fsdp_vecq upper = __builtin_shufflevector(x, y, 4, 12, 5, 13, 6, 14, 7, 15);
#elif defined(__AVX2__)
    fsdp_vecq lower = __builtin_shufflevector(x, y, 0, 4, 1, 5);
    fsdp_vecq upper = __builtin_shufflevector(x, y, 2, 6, 3, 7);
#else
    fsdp_vecq lower = __builtin_shufflevector(x, y, 0, 2);
    fsdp_vecq upper = __builtin_shufflevector(x, y, 1, 3);
#endif
    memcpy(p, &lower, sizeof lower);
    memcpy(p + FSDP_VEC, &upper, sizeof upper);
}

/* For each counter in [first, first + FSDP_VECQ), in order, store the four words of
 * fsdp_philox4x32(key, counter, 0) at `words`. Each 64-bit lane computes the words of one counter.
 * During the rounds of Philox, only the lower 32 bits of each lane of c0, c1, c2 and c3 are
 * valid. */
FSDP_INLINE void fsdp_vec_philox(uint32_t *words, uint64_t key, uint64_t first)
{
    const uint64_t lanes[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    fsdp_vecq lane;
    memcpy(&lane, lanes, sizeof lane);
    fsdp_vecq c0 = lane + first, c1 = c0 >> 32, c2 = {0}, c3 = {0};
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++) {
        fsdp_vecq p0 = fsdp_vec_multiply(c0, 0xD2511F53u), p1 = fsdp_vec_multiply(c2, 0xCD9E8D57u);
        c0 = p1 >> 32 ^ c1 ^ k0;
        c2 = p0 >> 32 ^ c3 ^ k1;
        c1 = p1;
        c3 = p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    fsdp_vec_store_pairs(words, (c0 & 0xffffffffu) | c1 << 32, (c2 & 0xffffffffu) | c3 << 32);
}

/* Store the 32 random words of counters [first, first + 8), four for each counter. */
FSDP_INLINE void fsdp_philox8(uint32_t words[32], uint64_t key, uint64_t first)
{
    for (int j = 0; j < 8; j += FSDP_VECQ)
        fsdp_vec_philox(words + 4 * j, key, first + (uint64_t)j);
}

enum {
    /* number of 16-bit halves in the four 32-bit words of a counter; see fsdp_drop_threshold() */
    FSDP_COUNTER_HALVES = 8
};

/* Store n random numbers of 16 bits, each in a 32-bit element of `halves`. The numbers are the
 * lower and upper halves of the random words of counter `first` and of the counters after it. n is
 * a multiple of 64. */
FSDP_INLINE void fsdp_philox_halves(uint32_t *restrict halves, uint64_t key, uint64_t first, int n)
{
    for (int j = 0; j < n; j += 64) {
        uint32_t words[32];
        uint16_t parts[64];
        fsdp_philox8(words, key, first + (uint64_t)(j / FSDP_COUNTER_HALVES));
        memcpy(parts, words, sizeof parts);
        for (int i = 0; i < 64; i++)
            halves[j + i] = parts[i];
    }
}

enum {
    FSDP_PHILOX_COUNTERS = 64
};

/* Store the random words of counters [first, first + FSDP_PHILOX_COUNTERS). */
static inline void fsdp_philox_block(uint32_t words[4 * FSDP_PHILOX_COUNTERS], uint64_t key,
                                     uint64_t first)
{
    for (int j = 0; j < FSDP_PHILOX_COUNTERS; j += 8)
        fsdp_philox8(words + 4 * j, key, first + (uint64_t)j);
}
