/* The kernel gather_transposed and its backward. x is small (T5's bias by distance has 32 rows and
 * at most a few dozen columns), so it stays in the caches of the card. Accesses to the large arrays
 * [width, n] are coalesced. */
#include "src/kernels/cuda/elements.cuh"

enum {
    THREADS = 256,
    SUM_THREADS = 128
};

/* Block (b, j) writes a part of row j of `out`, and a part of every gridDim.y-th row after row
 * j. */
template <typename T>
static __global__ void gather_columns(float *out, const T *x, const int32_t *rows, int64_t n,
                                      int64_t width)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t j = blockIdx.y; j < width; j += gridDim.y)
        for (int64_t t = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; t < n; t += step)
            out[j * n + t] = to_float(x[rows[t] * width + j]);
}

static unsigned grid_rows(int64_t width)
{
    return (unsigned)(width < 65535 ? width : 65535);
}

extern "C" void fsdp_cuda_gather_transposed(fsdp_kernel_context *context, float *out, const void *x,
                                            fsdp_dtype dtype, const int32_t *rows, int64_t n,
                                            int64_t width)
{
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    if (!n || !width)
        return;
    const int32_t *ids = (const int32_t *)fsdp_cuda_upload(c, rows, (size_t)n * sizeof *rows);
    if (!ids)
        return;
    const dim3 grid(blocks_for(n, THREADS, 256), grid_rows(width));
    with_type(dtype, [&](auto zero) {
        typedef decltype(zero) T;
        CUDA_LAUNCH(gather_columns<T>, grid, THREADS, 0, fsdp_cuda_stream(c), out, (const T *)x,
                    ids, n, width);
    });
    fsdp_cuda_launched(c, "gather_transposed");
}

/* Each block computes elements of dx, one after another. An element is a sum over t. Thread k of
 * the block adds the terms t = k, k + SUM_THREADS, ..., in this order. Then the sums of all threads
 * are added pairwise. */
static __global__ void sum_columns(float *dx, const float *dy, const int32_t *rows, int64_t n,
                                   int64_t width, int64_t x_rows)
{
    SHARED(float, sums, [SUM_THREADS]);
    const int k = (int)threadIdx.x;
    for (int64_t i = blockIdx.x; i < x_rows * width; i += gridDim.x) {
        const int64_t row = i / width, j = i % width;
        float sum = 0.0f;
        for (int64_t t = k; t < n; t += SUM_THREADS)
            if (rows[t] == row)
                sum += dy[j * n + t];
        sums[k] = sum;
        for (int half = SUM_THREADS / 2; half; half /= 2) {
            __syncthreads();
            if (k < half)
                sums[k] += sums[k + half];
        }
        if (k == 0)
            dx[i] = sums[0];
        __syncthreads();
    }
}

extern "C" void fsdp_cuda_gather_transposed_backward(fsdp_kernel_context *context, float *dx,
                                                     const float *dy, const int32_t *rows,
                                                     int64_t n, int64_t width, int64_t x_rows)
{
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    const int64_t elements = x_rows * width;
    const int32_t *ids = (const int32_t *)fsdp_cuda_upload(c, rows, (size_t)n * sizeof *rows);
    if (!elements || (n && !ids))
        return;
    CUDA_LAUNCH(sum_columns, blocks_for(elements, 1), SUM_THREADS, 0, fsdp_cuda_stream(c), dx, dy,
                ids, n, width, x_rows);
    fsdp_cuda_launched(c, "gather_transposed_backward");
}
