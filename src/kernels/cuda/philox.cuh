/* Random bits in device code. They are the same bits as those of fsdp_philox4x32() in
 * src/base/philox.h. This file also has the decisions of dropout, as fsdp_drop_threshold() defines
 * them. For each call of dropout, host code computes the threshold and the factor and passes both
 * to the kernel. */
#pragma once
#include "src/kernels/cuda/elements.cuh"

typedef struct philox_words {
    uint32_t v[4];
} philox_words;

/* Return the four random words for `key` and `counter`. The upper half of Philox's counter is
 * zero. */
FSDP_DEVICE philox_words philox(uint64_t key, uint64_t counter)
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    uint32_t c0 = (uint32_t)counter, c1 = (uint32_t)(counter >> 32), c2 = 0, c3 = 0;
#pragma unroll
    for (int round = 0; round < 10; round++) {
        const uint32_t high0 = __umulhi(0xD2511F53u, c0), high1 = __umulhi(0xCD9E8D57u, c2);
        const uint32_t low0 = 0xD2511F53u * c0, low1 = 0xCD9E8D57u * c2;
        c0 = high1 ^ c1 ^ k0;
        c1 = low1;
        c2 = high0 ^ c3 ^ k1;
        c3 = low0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return {{c0, c1, c2, c3}};
}

enum {
    /* number of elements for which one counter decides; element e has counter e / 8 */
    PHILOX_HALVES = 8
};

/* The four words of a counter contain eight 16-bit numbers. Return number `half`, which decides
 * about element PHILOX_HALVES * counter + half. */
FSDP_DEVICE uint32_t philox_half(const philox_words &words, int half)
{
    return words.v[half >> 1] >> 16 * (half & 1) & 0xffffu;
}

/* Return true if dropout keeps element e. Kernels that need the decisions for all eight elements of
 * a counter call philox() once, and then philox_half() for each element. */
FSDP_DEVICE bool dropout_keeps(uint64_t key, uint64_t e, uint32_t threshold)
{
    return philox_half(philox(key, e / PHILOX_HALVES), (int)(e % PHILOX_HALVES)) >= threshold;
}
