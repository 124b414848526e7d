/* How the loops of isa/ go through memory. A kernel cuts its work into tasks for the pool, a task
 * goes through its part in blocks of at most FSDP_BLOCK elements, and a block is arithmetic in
 * float32 on buffers in the first cache, whatever the tensors' dtype. So each operation is written
 * once, memory is passed once, and an output may lie over an input: a block is read before it is
 * written.
 *
 * A block's length is rounded up to a multiple of FSDP_LANES and the rest read as zeros; sums
 * over a row have FSDP_LANES accumulators, element i of the row in accumulator i % FSDP_LANES. */
#pragma once
#include <string.h>

#include "src/base/assert.h"
#include "src/kernels/cpu/isa/isa.h"
#include "src/kernels/cpu/isa/vec.h"

enum {
    FSDP_LANES = 16,
    FSDP_BLOCK = 256,
    FSDP_CHUNK = 1 << 14 /* elements of a task */
};

static inline int64_t fsdp_min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t fsdp_ceil_div(int64_t n, int64_t by)
{
    return (n + by - 1) / by;
}

/* Run task(arg, i, worker) for i in [0, n): a single one without waking the pool. */
static inline void fsdp_run_tasks(fsdp_kernel_context *c, int64_t n, fsdp_task_fn *task, void *arg)
{
    if (n == 1)
        task(arg, 0, 0);
    else if (n > 1)
        fsdp_parallel_for(fsdp_kernel_context_pool(c), n, task, arg);
}

/* Rows of a task, so that it has about FSDP_CHUNK elements. */
static inline int64_t fsdp_task_rows(int64_t width)
{
    return width < FSDP_CHUNK ? FSDP_CHUNK / (width > 0 ? width : 1) : 1;
}

/* n of a block as the loops count: a multiple of FSDP_LANES. */
static inline int fsdp_padded(int n)
{
    return (n + FSDP_LANES - 1) & -FSDP_LANES;
}

/* memcpy as a call: of a length known to be small the compiler makes `rep movs`, which costs more
 * to start than such a copy takes. */
static inline void fsdp_copy_f32(float *to, const float *from, int n)
{
    size_t bytes = (size_t)n * sizeof *to;
    __asm__("" : "+r"(bytes));
    memcpy(to, from, bytes);
}

/* Asks for what a block some way further on will read. Short bursts from several
 * arrays in turn escape the hardware's prefetcher: without this, adding two bfloat16 arrays in
 * memory took three times as long. An address past the end does no harm. */
static inline void fsdp_prefetch_half(const uint16_t *h, int n)
{
    enum {
        AHEAD = 1024,
        LINE = 32 /* elements */
    };
    for (int j = 0; j < n; j += LINE)
        __builtin_prefetch((const void *)((uintptr_t)h + 2 * (uintptr_t)(AHEAD + j)));
}

/* Elements [i, i + n) of src (f32, bf16 or f16) as float32, zeros up to fsdp_padded(n); n <=
 * FSDP_BLOCK. In `buffer`, or in place if that is possible. */
static inline const float *fsdp_load_block(float *restrict buffer, const void *restrict src,
                                           fsdp_dtype dtype, int64_t i, int n)
{
    const float *f = (const float *)src + i;
    const uint16_t *h = (const uint16_t *)src + i;
    if (dtype == FSDP_DTYPE_F32 && n == fsdp_padded(n))
        return f;
    if (dtype == FSDP_DTYPE_F32)
        fsdp_copy_f32(buffer, f, n);
    else
        fsdp_prefetch_half(h, n);
    if (dtype == FSDP_DTYPE_BF16)
        for (int j = 0; j < n; j++)
            buffer[j] = fsdp_f32_from_bf16(h[j]);
    else if (dtype == FSDP_DTYPE_F16)
        for (int j = 0; j < n; j++)
            buffer[j] = fsdp_widen_f16(h[j]);
    for (int j = n; j < fsdp_padded(n); j++)
        buffer[j] = 0.0f;
    return buffer;
}

/* Writes elements [i, i + n) of dst from the first n of block. */
static inline void fsdp_store_block(void *restrict dst, fsdp_dtype dtype, int64_t i,
                                    const float *restrict block, int n)
{
    uint16_t *restrict h = (uint16_t *)dst + i;
    if (dtype == FSDP_DTYPE_F32)
        fsdp_copy_f32((float *)dst + i, block, n);
    else if (dtype == FSDP_DTYPE_BF16)
        for (int j = 0; j < n; j++)
            h[j] = fsdp_round_bf16(block[j]);
    else
        for (int j = 0; j < n; j++)
            h[j] = fsdp_round_f16(block[j]);
}

/* A block in place, as dst = dst * beta + block for beta 0 (dst is not read) or 1. */
static inline void fsdp_accumulate_block(void *dst, fsdp_dtype dtype, int64_t i, float beta,
                                         float *restrict block, int n)
{
    if (beta != 0.0f) {
        float buffer[FSDP_BLOCK];
        const float *old = fsdp_load_block(buffer, dst, dtype, i, n);
        for (int j = 0; j < fsdp_padded(n); j++)
            block[j] = beta * old[j] + block[j];
    }
    fsdp_store_block(dst, dtype, i, block, n);
}

/* Adds the n terms of a block (a multiple of FSDP_LANES) to a row's accumulators: first among
 * themselves, so that the error of a sum grows with the number of blocks. */
static inline void fsdp_add_lanes(float acc[restrict FSDP_LANES], const float *restrict terms,
                                  int n)
{
    float block[FSDP_LANES] = {0};
    for (int j = 0; j < n; j += FSDP_LANES)
        for (int l = 0; l < FSDP_LANES; l++)
            block[l] += terms[j + l];
    for (int l = 0; l < FSDP_LANES; l++)
        acc[l] += block[l];
}

/* The sum of the accumulators, pairwise. */
static inline float fsdp_sum_lanes(const float acc[FSDP_LANES])
{
    float sums[FSDP_LANES];
    memcpy(sums, acc, sizeof sums);
    for (int width = FSDP_LANES / 2; width; width /= 2)
        for (int l = 0; l < width; l++)
            sums[l] += sums[l + width];
    return sums[0];
}
