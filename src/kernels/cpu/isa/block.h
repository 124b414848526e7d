/* Tasks and blocks: how the loops of isa/ access memory. A kernel cuts its work into tasks for the
 * thread pool. A task processes its elements in blocks of at most FSDP_BLOCK elements. It converts
 * each block to float32 in a buffer that stays in the first-level cache, computes, and stores the
 * result in the tensor's dtype. So an operation is written once for all dtypes, and it reads memory
 * once. An output may overwrite an input, because a block of the input is read before the block of
 * the output is written.
 *
 * A loop over a block processes whole groups of FSDP_LANES elements. If the block's length is not a
 * multiple of FSDP_LANES, zeros follow the last element. A sum over a row has FSDP_LANES
 * accumulators: element i of the row is added to accumulator i % FSDP_LANES. */
#pragma once
#include <string.h>

#include "src/base/assert.h"
#include "src/kernels/cpu/isa/isa.h"
#include "src/kernels/cpu/isa/vec.h"

enum {
    FSDP_LANES = 16,
    FSDP_BLOCK = 256,
    FSDP_CHUNK = 1 << 14 /* elements per task */
};

static inline int64_t fsdp_min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t fsdp_ceil_div(int64_t n, int64_t by)
{
    return (n + by - 1) / by;
}

/* Run task(arg, i, worker) for i in [0, n). If n is 1, the calling thread runs the task itself,
 * without waking the pool. */
static inline void fsdp_run_tasks(fsdp_kernel_context *c, int64_t n, fsdp_task_fn *task, void *arg)
{
    if (n == 1)
        task(arg, 0, 0);
    else if (n > 1)
        fsdp_parallel_for(fsdp_kernel_context_pool(c), n, task, arg);
}

/* Return the number of rows of `width` elements in a task of about FSDP_CHUNK elements. It is at
 * least 1. */
static inline int64_t fsdp_task_rows(int64_t width)
{
    return width < FSDP_CHUNK ? FSDP_CHUNK / (width > 0 ? width : 1) : 1;
}

/* Return n rounded up to a multiple of FSDP_LANES. */
static inline int fsdp_padded(int n)
{
    return (n + FSDP_LANES - 1) & -FSDP_LANES;
}

/* Copy n floats by a call of memcpy(). The asm statement hides the length from the compiler. If the
 * compiler knew that the length is small, it would emit `rep movs`, which takes longer to start
 * than to copy so few bytes. */
static inline void fsdp_copy_f32(float *to, const float *from, int n)
{
    size_t bytes = (size_t)n * sizeof *to;
    __asm__("" : "+r"(bytes));
    memcpy(to, from, bytes);
}

/* Prefetch n 16-bit elements that a later block will read. They begin AHEAD elements after h. The
 * hardware prefetcher fails when short pieces of several arrays are read in turn. Without this
 * function, adding two bfloat16 arrays in memory took three times as long. Prefetching an address
 * past the end of the array does no harm. */
static inline void fsdp_prefetch_half(const uint16_t *h, int n)
{
    enum {
        AHEAD = 1024,
        LINE = 32 /* elements in a cache line */
    };
    for (int j = 0; j < n; j += LINE)
        __builtin_prefetch((const void *)((uintptr_t)h + 2 * (uintptr_t)(AHEAD + j)));
}

/* Load elements [i, i + n) of src (f32, bf16 or f16) as float32. The n elements are followed by
 * zeros, up to a length of fsdp_padded(n). n is at most FSDP_BLOCK. Usually, the result is stored
 * in `buffer`, and `buffer` is returned. But if src is f32 and n needs no padding, return the
 * address of element i of src instead, without a copy. */
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

/* Store the first n elements of `block` to elements [i, i + n) of dst. */
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

/* Set elements [i, i + n) of dst to beta * (their old value) + (the first n elements of `block`).
 * beta is 0 or 1. If beta is 0, dst is not read. The function overwrites `block`. */
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

/* Add the n terms of a block to the accumulators of a row; n is a multiple of FSDP_LANES. The terms
 * are first added to each other, and their sums are then added to the accumulators. So the rounding
 * error of a row's sum grows with the number of blocks in the row, not with the number of terms. */
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

/* Return the sum of all accumulators, which are added pairwise. */
static inline float fsdp_sum_lanes(const float acc[FSDP_LANES])
{
    float sums[FSDP_LANES];
    memcpy(sums, acc, sizeof sums);
    for (int width = FSDP_LANES / 2; width; width /= 2)
        for (int l = 0; l < width; l++)
            sums[l] += sums[l + width];
    return sums[0];
}
