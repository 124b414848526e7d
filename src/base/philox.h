/* Philox4x32-10, a counter-based random generator (Salmon et al., "Parallel Random Numbers: As Easy
 * as 1, 2, 3", SC 2011). It has no state: a value depends only on (key, counter). So dropout and
 * initialization are functions of (seed, step, micro-batch, operation, element), and do not depend
 * on world size, number of threads, or order. */
#pragma once
#include <stdint.h>

typedef struct fsdp_philox {
    uint32_t v[4];
} fsdp_philox;

static inline fsdp_philox fsdp_philox4x32(uint64_t key, uint64_t counter_low, uint64_t counter_high)
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    uint32_t c0 = (uint32_t)counter_low, c1 = (uint32_t)(counter_low >> 32);
    uint32_t c2 = (uint32_t)counter_high, c3 = (uint32_t)(counter_high >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return (fsdp_philox){{c0, c1, c2, c3}};
}

/* Convert random bits to a uniform number in [0, 1). The number is a multiple of 2^-24. */
static inline float fsdp_uniform_from_bits(uint32_t bits)
{
    return (float)(bits >> 8) * 0x1p-24f;
}

/* Return the threshold for dropout with probability p (Srivastava et al. 2014). Each element has a
 * random number of 16 bits, and is kept if this number is at least the threshold. To get the number
 * of element e, call the generator with counter e / 8. The four words of the result have eight
 * halves; half 2 * w is the lower half of word w. The number is half e % 8. Since the numbers have
 * 16 bits, p is in effect rounded to a multiple of 2^-16. All elements are dropped only if p is 1.
 */
static inline uint32_t fsdp_drop_threshold(float p)
{
    const float halves = p * 65536.0f + 0.5f;
    if (p >= 1.0f)
        return 65536u;
    return halves < 65535.0f ? (uint32_t)halves : 65535u;
}

static inline float fsdp_keep_factor(float p)
{
    return p < 1.0f ? 1.0f / (1.0f - p) : 0.0f;
}

/* Mix the bits of a value (splitmix64's finalizer), to make keys from (seed, step, micro-batch,
 * operation). */
static inline uint64_t fsdp_mix64(uint64_t x)
{
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

/* Stochastic rounding of float32 to bfloat16 adds a random number of 16 bits to the bits of the
 * float32, and then cuts off the lower 16 bits. Element e of an array uses half e % 8 of counter
 * e / 8, in the order that fsdp_drop_threshold() describes. The key of the generator is
 * fsdp_mix64(rounding key + number of the array), so that the parameter (0) and its moments (1, 2)
 * get different numbers.
 *
 * Return the rounding key of a parameter in a step. `parameter` is the index of the parameter in
 * the optimizer's list. */
static inline uint64_t fsdp_rounding_key(uint64_t seed, int64_t step, uint64_t parameter)
{
    return fsdp_mix64(fsdp_mix64(fsdp_mix64(seed) + (uint64_t)step) + parameter);
}
