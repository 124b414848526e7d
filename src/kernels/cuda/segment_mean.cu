/* Means over ranges of rows, and the gradient of these means. Each thread computes one chunk of
 * columns (Note [Chunks] in row_access.cuh) for one range, and adds the rows of the range in
 * order. */
#include "src/kernels/cuda/row_access.cuh"

enum {
    THREADS = 128, /* number of threads in a block in forward */
    COLUMN_THREADS = 32,
    ROW_THREADS = 8
};

typedef struct segment_job {
    void *out;
    const void *x;
    const int32_t *offsets;
    int64_t width;
    bool is_aligned;
} segment_job;

template <typename T>
static __global__ void __launch_bounds__(THREADS) segment_mean(segment_job job)
{
    constexpr int N = vector_of<T>::N;
    const int64_t column = ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * N;
    const int64_t begin = job.offsets[blockIdx.x], end = job.offsets[blockIdx.x + 1];
    float sum[N] = {0};
    if (column >= job.width)
        return;
#pragma unroll 8
    for (int64_t row = begin; row < end; row++) {
        float f[N];
        widen(f, load_chunk((const T *)job.x + row * job.width, column, job.width, job.is_aligned));
#pragma unroll
        for (int e = 0; e < N; e++)
            sum[e] += f[e];
    }
#pragma unroll
    for (int e = 0; e < N; e++)
        sum[e] = begin < end ? sum[e] / (float)(end - begin) : 0.0f;
    store_chunk((T *)job.out + blockIdx.x * job.width, column, job.width, narrow<T>(sum),
                job.is_aligned);
}

template <typename T>
static __global__ void __launch_bounds__(COLUMN_THREADS *ROW_THREADS)
    segment_mean_backward(segment_job job)
{
    constexpr int N = vector_of<T>::N;
    const int64_t column = ((int64_t)blockIdx.y * COLUMN_THREADS + threadIdx.x) * N;
    const int64_t begin = job.offsets[blockIdx.x], end = job.offsets[blockIdx.x + 1];
    if (column >= job.width || begin == end)
        return;
    float f[N];
    widen(f,
          load_chunk((const T *)job.x + blockIdx.x * job.width, column, job.width, job.is_aligned));
#pragma unroll
    for (int e = 0; e < N; e++)
        f[e] /= (float)(end - begin);
    const vector_of<T> part = narrow<T>(f);
    for (int64_t row = begin + threadIdx.y; row < end; row += ROW_THREADS)
        store_chunk((T *)job.out + row * job.width, column, job.width, part, job.is_aligned);
}

/* Fill in *job, and copy the offsets to the device. Return false if there is nothing to compute, or
 * if the copy fails. */
static bool make_job(fsdp_cuda_context *c, segment_job *job, void *out, const void *x,
                     const int32_t *offsets, int64_t n, int64_t width)
{
    job->out = out;
    job->x = x;
    job->width = width;
    if (!n || !width)
        return false;
    job->offsets = (const int32_t *)fsdp_cuda_upload(c, offsets, (size_t)(n + 1) * sizeof *offsets);
    return job->offsets != NULL;
}

extern "C" void fsdp_cuda_segment_mean(fsdp_kernel_context *context, void *out, const void *x,
                                       fsdp_dtype dtype, const int32_t *offsets, int64_t n,
                                       int64_t width)
{
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    segment_job job = {};
    if (!make_job(c, &job, out, x, offsets, n, width))
        return;
    with_type(dtype, [&](auto zero) {
        typedef decltype(zero) T;
        const int64_t chunks = ceil_div(width, vector_of<T>::N);
        const unsigned threads = warps_of(smaller(chunks, THREADS));
        job.is_aligned = is_vectorizable<T>(width, x, out);
        CUDA_LAUNCH(segment_mean<T>, dim3((unsigned)n, (unsigned)ceil_div(chunks, threads)),
                    threads, 0, fsdp_cuda_stream(c), job);
    });
    fsdp_cuda_launched(c, "segment_mean");
}

extern "C" void fsdp_cuda_segment_mean_backward(fsdp_kernel_context *context, void *dx,
                                                const void *dy, fsdp_dtype dtype,
                                                const int32_t *offsets, int64_t n, int64_t width)
{
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    segment_job job = {};
    if (!make_job(c, &job, dx, dy, offsets, n, width))
        return;
    with_type(dtype, [&](auto zero) {
        typedef decltype(zero) T;
        const int64_t chunks = ceil_div(width, vector_of<T>::N);
        const dim3 grid((unsigned)n, (unsigned)ceil_div(chunks, COLUMN_THREADS));
        job.is_aligned = is_vectorizable<T>(width, dy, dx);
        CUDA_LAUNCH(segment_mean_backward<T>, grid, dim3(COLUMN_THREADS, ROW_THREADS), 0,
                    fsdp_cuda_stream(c), job);
    });
    fsdp_cuda_launched(c, "segment_mean_backward");
}
