/* Hash functions for short byte strings and for pairs of ids. They are used only for tables in
 * memory: the results depend on the machine's byte order and are never stored in files. */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t fsdp_load_u64(const char *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* Pack the bytes of p [n], n <= 8, into a number. Two different strings of the same length give
 * different numbers. */
static inline uint64_t fsdp_load_up_to_8(const char *p, size_t n)
{
    if (n >= 4) {
        uint32_t low, high;
        memcpy(&low, p, sizeof low);
        memcpy(&high, p + n - 4, sizeof high);
        return low | (uint64_t)high << 32;
    }
    if (n == 0)
        return 0;
    const unsigned char *b = (const unsigned char *)p;
    return b[0] | (uint64_t)b[n >> 1] << 8 | (uint64_t)b[n - 1] << 16;
}

static inline uint64_t fsdp_hash_step(uint64_t h, uint64_t v)
{
    h = (h ^ v) * UINT64_C(0x9FB21C651E98DF25);
    return h ^ h >> 32;
}

static inline uint64_t fsdp_hash_bytes(uint64_t seed, const char *p, size_t n)
{
    uint64_t h = fsdp_hash_step(seed, n);
    for (; n > 8; p += 8, n -= 8)
        h = fsdp_hash_step(h, fsdp_load_u64(p));
    h = fsdp_hash_step(h, fsdp_load_up_to_8(p, n));
    return fsdp_hash_step(h, UINT64_C(0x2545F4914F6CDD1D));
}
