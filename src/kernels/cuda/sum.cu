/* The sum of a few numbers, such as the losses of a batch. */
#include "src/kernels/cuda/elements.cuh"

enum {
    THREADS = 512
};

/* Thread i adds elements i, i + THREADS, i + 2 THREADS, and so on. Then the sums of the threads are
 * added pairwise. */
static __global__ void sum_all(float *out, const float *x, int64_t n, float factor)
{
    SHARED(double, sums, [THREADS]);
    double own = 0.0;
    for (int64_t i = threadIdx.x; i < n; i += THREADS)
        own += (double)x[i];
    sums[threadIdx.x] = own;
    for (unsigned half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    if (threadIdx.x == 0)
        *out = (float)(sums[0] * (double)factor);
}

extern "C" void fsdp_cuda_sum(fsdp_kernel_context *context, float *out, const float *x, int64_t n,
                              float factor)
{
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    CUDA_LAUNCH(sum_all, 1, THREADS, 0, fsdp_cuda_stream(c), out, x, n, factor);
    fsdp_cuda_launched(c, "sum");
}
