/* Computes CRC-32 by slicing by eight (M. E. Kounavis, F. L. Berry, A Systematic Approach to
 * Building High Performance Software-based CRC Generators, 2005). On x86-64, long pieces of data
 * are folded by carry-less multiplication (V. Gopal et al., Fast CRC Computation for Generic
 * Polynomials Using PCLMULQDQ Instruction, Intel, 2009). Folding is about ten times as fast as
 * slicing. Some processors multiply four pairs of numbers with one instruction. On these
 * processors, folding is three times as fast as on other processors. */
#include <stdbool.h>

#include "src/base/crc32.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum {
    SLICES = 8,
    /* number of blocks (or of registers in crc32_wide()) that are folded in parallel */
    LANES = 4,
    BLOCK_BYTES = 16, /* size of a block */
    WIDE_BYTES = 64   /* size of a register in crc32_wide(): four blocks */
};

void fsdp_crc32_init(fsdp_crc32_table *table)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (0xEDB88320u & (0u - (crc & 1)));
        table->rows[0][i] = crc;
    }
    for (int row = 1; row < SLICES; row++)
        for (int i = 0; i < 256; i++) {
            uint32_t before = table->rows[row - 1][i];
            table->rows[row][i] = before >> 8 ^ table->rows[0][before & 255];
        }
}

#if defined(__x86_64__)
#define FOLDING __attribute__((target("pclmul,sse4.1")))

/* Shift `x` by the distance that the constants `k` encode, and return the xor of the result and
 * `next`. */
FOLDING static __m128i fold(__m128i x, __m128i k, __m128i next)
{
    return _mm_xor_si128(
        _mm_xor_si128(_mm_clmulepi64_si128(x, k, 0x00), _mm_clmulepi64_si128(x, k, 0x11)), next);
}

FOLDING static __m128i load(const unsigned char *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

/* Reduce 128 bits to 32, as in figure 12 of the paper by Gopal et al., for reflected bits. */
FOLDING static uint32_t reduce(__m128i x)
{
    const __m128i k5 = _mm_set_epi64x(0, 0x0163cd6124), low = _mm_setr_epi32(~0, 0, ~0, 0);
    /* The two constants of the Barrett reduction: the polynomial of CRC-32, and the polynomial by
     * which the reduction estimates the quotient. */
    const __m128i poly = _mm_set_epi64x(0x01f7011641, 0x01db710641);
    const __m128i k4 = _mm_set_epi64x(0x00ccaa009e, 0);
    x = _mm_xor_si128(_mm_srli_si128(x, 8), _mm_clmulepi64_si128(x, k4, 0x10));
    x = _mm_xor_si128(_mm_srli_si128(x, 4), _mm_clmulepi64_si128(_mm_and_si128(x, low), k5, 0x00));
    __m128i quotient = _mm_clmulepi64_si128(_mm_and_si128(x, low), poly, 0x10);
    quotient = _mm_clmulepi64_si128(_mm_and_si128(quotient, low), poly, 0x00);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(x, quotient), 1);
}

/* Complete a checksum. `x` is the state after all blocks before `p`. Fold the `bytes` bytes at `p`
 * into `x`, and return the inverted checksum of all bytes. `bytes` is a multiple of 16. */
FOLDING static uint32_t fold_rest(__m128i x[LANES], const unsigned char *p, size_t bytes)
{
    const __m128i by_four = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);
    const __m128i by_one = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
    for (; bytes >= LANES * BLOCK_BYTES; bytes -= LANES * BLOCK_BYTES, p += LANES * BLOCK_BYTES)
        for (int i = 0; i < LANES; i++)
            x[i] = fold(x[i], by_four, load(p + i * BLOCK_BYTES));
    for (int i = 1; i < LANES; i++)
        x[0] = fold(x[0], by_one, x[i]);
    for (; bytes >= BLOCK_BYTES; bytes -= BLOCK_BYTES, p += BLOCK_BYTES)
        x[0] = fold(x[0], by_one, load(p));
    return reduce(x[0]);
}

/* Return the checksum `crc` updated with the `bytes` bytes at `p`. `bytes` is a multiple of 16 and
 * at least 64. Both `crc` and the result are inverted. */
FOLDING static uint32_t crc32_folded(uint32_t crc, const unsigned char *p, size_t bytes)
{
    __m128i x[LANES];
    for (int i = 0; i < LANES; i++)
        x[i] = load(p + i * BLOCK_BYTES);
    x[0] = _mm_xor_si128(x[0], _mm_cvtsi32_si128((int)crc));
    return fold_rest(x, p + LANES * BLOCK_BYTES, bytes - LANES * BLOCK_BYTES);
}

#define WIDE __attribute__((target("vpclmulqdq,avx512f,pclmul,sse4.1")))

WIDE static __m512i fold_wide(__m512i x, __m512i k, __m512i next)
{
    return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(x, k, 0x00),
                                     _mm512_clmulepi64_epi128(x, k, 0x11), next, 0x96);
}

WIDE static __m512i load_wide(const unsigned char *p)
{
    return _mm512_loadu_si512((const void *)p);
}

/* Like crc32_folded(), but `bytes` must be at least 256. */
WIDE static uint32_t crc32_wide(uint32_t crc, const unsigned char *p, size_t bytes)
{
    const size_t round = (size_t)LANES * WIDE_BYTES;
    const __m512i by_four = _mm512_broadcast_i32x4(_mm_set_epi64x(0x01322d1430, 0x011542778a));
    const __m512i by_one = _mm512_broadcast_i32x4(_mm_set_epi64x(0x01c6e41596, 0x0154442bd4));
    __m512i x[LANES];
    for (int i = 0; i < LANES; i++)
        x[i] = load_wide(p + i * WIDE_BYTES);
    x[0] = _mm512_xor_si512(x[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)crc)));
    for (p += round, bytes -= round; bytes >= round; bytes -= round, p += round)
        for (int i = 0; i < LANES; i++)
            x[i] = fold_wide(x[i], by_four, load_wide(p + i * WIDE_BYTES));
    for (int i = 1; i < LANES; i++)
        x[0] = fold_wide(x[0], by_one, x[i]);
    __m128i narrow[LANES];
    _mm512_storeu_si512((void *)narrow, x[0]);
    return fold_rest(narrow, p, bytes);
}

static uint32_t crc32_long(uint32_t crc, const unsigned char *p, size_t bytes)
{
    const bool is_wide = __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("avx512f");
    return is_wide && bytes >= (size_t)LANES * WIDE_BYTES ? crc32_wide(crc, p, bytes)
                                                          : crc32_folded(crc, p, bytes);
}

/* crc32_long() processes only whole blocks. Return the total size of the whole blocks in `bytes`
 * bytes of data. Return 0 if the data is too short, or if the processor lacks the instructions. */
static size_t foldable(size_t bytes)
{
    const bool can = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
    return can && bytes >= LANES * BLOCK_BYTES ? bytes / BLOCK_BYTES * BLOCK_BYTES : 0;
}
#else
static uint32_t crc32_long(uint32_t crc, const unsigned char *p, size_t bytes)
{
    (void)p;
    (void)bytes;
    return crc;
}

static size_t foldable(size_t bytes)
{
    (void)bytes;
    return 0;
}
#endif

uint32_t fsdp_crc32(const fsdp_crc32_table *table, uint32_t crc, const void *data, size_t bytes)
{
    const unsigned char *p = data;
    const size_t folded = foldable(bytes);
    crc = ~crc;
    if (folded)
        crc = crc32_long(crc, p, folded);
    p += folded;
    bytes -= folded;
    for (; bytes >= SLICES; bytes -= SLICES, p += SLICES) {
        uint32_t next = 0;
        for (int i = 0; i < SLICES; i++) {
            unsigned char byte = p[i];
            if (i < 4)
                byte ^= (unsigned char)(crc >> 8 * i);
            next ^= table->rows[SLICES - 1 - i][byte];
        }
        crc = next;
    }
    for (; bytes > 0; bytes--, p++)
        crc = crc >> 8 ^ table->rows[0][(crc ^ *p) & 255];
    return ~crc;
}
