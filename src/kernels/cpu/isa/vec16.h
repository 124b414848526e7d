/* Sixteen floats as a vector type of GCC and Clang. If a register of the ISA contains fewer than
 * sixteen floats, the compiler uses several registers. Use this type for loops that do little more
 * than load, add and store, such as sums of arrays. For loops with more arithmetic, use the vectors
 * of vector.h, which fit one register. The bits of a value do not depend on its lane. Every
 * function that takes or returns a vector is FSDP_INLINE, because vectors wider than the registers
 * must not be passed in a call. */
#pragma once
#include "src/kernels/cpu/isa/vector.h"

#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi" /* the Makefile gives -Wno-psabi for the same reason */
#endif

typedef float fsdp_v16 __attribute__((vector_size(64)));

FSDP_INLINE fsdp_v16 fsdp_load16(const float *p)
{
    fsdp_v16 x;
    memcpy(&x, p, sizeof x);
    return x;
}

FSDP_INLINE void fsdp_store16(float *p, fsdp_v16 x)
{
    memcpy(p, &x, sizeof x);
}

/* Store x by instructions that bypass the caches, so that the processor does not first read the
 * cache line from memory. The address p must be a multiple of 64. Use this for large results that
 * are not read soon. Call fsdp_stream_end() before another thread may read the results. */
FSDP_INLINE void fsdp_stream16(float *p, fsdp_v16 x)
{
#if defined(__AVX512F__)
    _mm512_stream_ps(p, (__m512)x);
#elif defined(__AVX__)
    __m256 part[2];
    memcpy(part, &x, sizeof x);
    for (int i = 0; i < 2; i++)
        _mm256_stream_ps(p + 8 * i, part[i]);
#else
    __m128 part[4];
    memcpy(part, &x, sizeof x);
    for (int i = 0; i < 4; i++)
        _mm_stream_ps(p + 4 * i, part[i]);
#endif
}

static inline void fsdp_stream_end(void)
{
    _mm_sfence();
}

FSDP_INLINE fsdp_v16 fsdp_set16(float x)
{
    return (fsdp_v16){x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x};
}
