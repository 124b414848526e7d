/* Sums over rows, in double. The order of the terms depends only on the width of the rows and on
 * the dtype, not on the number of rows or on addresses. So the sum of a row has the same bits on
 * all ranks, however many rows of the parameter a rank has.
 *
 * A class TERMS defines what is added:
 *     enum { N };                               elements that are loaded together
 *     void load(double (&x)[N], row, column, count)
 *                                               the terms of `count` elements; the others are 0
 *     double join(double, double)               the sum, or for example the larger one
 * A row of a few elements is added up by one thread, and a longer row by one warp. A row that is
 * even longer is divided into parts of ROW_SUMS_PART elements. Each part is added up by one block,
 * and a second kernel adds the sums of the parts. */
#pragma once
#include "src/kernels/cuda/elements.cuh"

enum {
    ROW_SUMS_THREADS = 256,
    ROW_SUMS_WARPS = ROW_SUMS_THREADS / 32,
    ROW_SUMS_NARROW = 16,   /* length of the longest row that one thread adds up */
    ROW_SUMS_MEDIUM = 2048, /* length of the longest row that one warp adds up */
    ROW_SUMS_PART = 1 << 14
};

/* `threads` threads add up elements [begin, end) of a row. Each thread calls this function with its
 * index `thread`, and the function returns the thread's part of the sum: groups of N elements are
 * assigned to the threads in turn. */
template <typename TERMS>
FSDP_DEVICE double sum_of_thread(const TERMS &terms, int64_t row, int64_t begin, int64_t end,
                                 int thread, int threads)
{
    constexpr int N = TERMS::N;
    double sums[N] = {};
#pragma unroll 4
    for (int64_t j = begin + (int64_t)thread * N; j < end; j += (int64_t)threads * N) {
        double x[N];
        terms.load(x, row, j, (int)(end - j < N ? end - j : N));
        for (int e = 0; e < N; e++)
            sums[e] = terms.join(sums[e], x[e]);
    }
#pragma unroll
    for (int width = N / 2; width; width /= 2)
        for (int e = 0; e < width; e++)
            sums[e] = terms.join(sums[e], sums[e + width]);
    return sums[0];
}

/* Return the sum of x over the threads of the warp. All threads get the result. */
template <typename TERMS> FSDP_DEVICE double sum_of_warp(const TERMS &terms, double x)
{
    for (int lane = 16; lane; lane /= 2)
        x = terms.join(x, __shfl_xor_sync(~0u, x, lane));
    return x;
}

/* Return the sum of x over the threads of the block. Only thread 0 gets the result. */
template <typename TERMS> FSDP_DEVICE double sum_of_block(const TERMS &terms, double x)
{
    SHARED(double, sums, [ROW_SUMS_WARPS]);
    x = sum_of_warp(terms, x);
    if (threadIdx.x % 32 == 0)
        sums[threadIdx.x / 32] = x;
    __syncthreads();
    if (threadIdx.x == 0)
        for (int i = 1; i < ROW_SUMS_WARPS; i++)
            x = terms.join(x, sums[i]);
    return x;
}

/* Return the number of parts into which a row of this width is divided. */
static inline int64_t row_sums_parts(int64_t width)
{
    return width <= ROW_SUMS_MEDIUM ? 1 : (width + ROW_SUMS_PART - 1) / ROW_SUMS_PART;
}

/* Return the number of blocks that are needed to add up `rows` rows of width `width`. */
static inline int64_t row_sums_blocks(int64_t rows, int64_t width)
{
    if (width <= ROW_SUMS_NARROW)
        return (rows + ROW_SUMS_THREADS - 1) / ROW_SUMS_THREADS;
    if (width <= ROW_SUMS_MEDIUM)
        return (rows + ROW_SUMS_WARPS - 1) / ROW_SUMS_WARPS;
    return rows * row_sums_parts(width);
}

/* Each block adds up one part of a long row: block number row * parts + part. Set sums[block] to
 * the sum of this part. */
template <typename TERMS>
FSDP_DEVICE void sum_part(double *sums, const TERMS &terms, int64_t width, int64_t block)
{
    const int64_t parts = (width + ROW_SUMS_PART - 1) / ROW_SUMS_PART;
    const int64_t row = block / parts, begin = block % parts * ROW_SUMS_PART;
    const int64_t end = begin + ROW_SUMS_PART < width ? begin + ROW_SUMS_PART : width;
    const double x = sum_of_block(
        terms, sum_of_thread(terms, row, begin, end, (int)threadIdx.x, ROW_SUMS_THREADS));
    if (threadIdx.x == 0)
        sums[block] = x;
}

/* Add up the rows that belong to block number `block` of row_sums_blocks() blocks. If rows have one
 * part, set sums[r] to the sum over row r. If rows have several parts, set sums[r * parts + p] to
 * the sum over part p of row r. */
template <typename TERMS>
FSDP_DEVICE void sum_rows_of_block(double *sums, const TERMS &terms, int64_t rows, int64_t width,
                                   int64_t block)
{
    if (width <= ROW_SUMS_NARROW) {
        const int64_t row = block * ROW_SUMS_THREADS + threadIdx.x;
        if (row < rows)
            sums[row] = sum_of_thread(terms, row, 0, width, 0, 1);
    } else if (width <= ROW_SUMS_MEDIUM) {
        const int64_t row = block * ROW_SUMS_WARPS + threadIdx.x / 32;
        if (row >= rows)
            return;
        const double x =
            sum_of_warp(terms, sum_of_thread(terms, row, 0, width, (int)threadIdx.x % 32, 32));
        if (threadIdx.x % 32 == 0)
            sums[row] = x;
    } else {
        sum_part(sums, terms, width, block);
    }
}

template <typename TERMS>
static __global__ void __launch_bounds__(ROW_SUMS_THREADS)
    sum_rows(double *sums, TERMS terms, int64_t rows, int64_t width)
{
    sum_rows_of_block(sums, terms, rows, width, blockIdx.x);
}

/* The terms that the second kernel adds up: the sums of the parts of a row. */
template <typename TERMS> struct parts_of {
    enum {
        N = 1
    };
    const double *sums;
    int64_t parts;
    TERMS terms;
    __device__ __forceinline__ void load(double (&x)[1], int64_t row, int64_t column, int) const
    {
        x[0] = sums[row * parts + column];
    }
    __device__ __forceinline__ double join(double a, double b) const
    {
        return terms.join(a, b);
    }
};

template <typename TERMS>
static __global__ void __launch_bounds__(ROW_SUMS_THREADS)
    sum_of_parts(double *sums, parts_of<TERMS> terms, int64_t parts)
{
    const double x = sum_of_block(
        terms, sum_of_thread(terms, blockIdx.x, 0, parts, (int)threadIdx.x, ROW_SUMS_THREADS));
    if (threadIdx.x == 0)
        sums[blockIdx.x] = x;
}

/* Set sums[r] to the sum of the parts of row r. */
template <typename TERMS>
static void start_sum_of_parts(fsdp_cuda_context *c, double *sums, const double *of_parts,
                               const TERMS &terms, int64_t rows, int64_t parts)
{
    CUDA_LAUNCH((sum_of_parts<TERMS>), (unsigned)rows, ROW_SUMS_THREADS, 0, fsdp_cuda_stream(c),
                sums, (parts_of<TERMS>{of_parts, parts, terms}), parts);
}

/* Set sums[r] to the sum over row r, or to 0 if the width is 0. The function uses the context's
 * scratch memory. */
template <typename TERMS>
static void start_row_sums(fsdp_cuda_context *c, double *sums, const TERMS &terms, int64_t rows,
                           int64_t width)
{
    const int64_t parts = row_sums_parts(width);
    double *to = sums;
    if (!rows)
        return;
    if (parts > 1)
        to = (double *)fsdp_cuda_scratch(c, (size_t)(rows * parts) * sizeof *sums);
    if (!to)
        return;
    CUDA_LAUNCH((sum_rows<TERMS>), (unsigned)row_sums_blocks(rows, width), ROW_SUMS_THREADS, 0,
                fsdp_cuda_stream(c), to, terms, rows, width);
    if (parts > 1)
        start_sum_of_parts(c, sums, to, terms, rows, parts);
}
