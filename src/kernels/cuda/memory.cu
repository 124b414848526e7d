/* Plain memory: fill, copy, cast. */
#include "src/kernels/cuda/elements.cuh"

enum {
    THREADS = 256
};

template <typename T> static __global__ void fill(T *dst, T value, int64_t n)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
        dst[i] = value;
}

template <typename T> static void start_fill(fsdp_cuda_context *c, void *dst, T value, int64_t n)
{
    CUDA_LAUNCH(fill<T>, blocks_for(n, THREADS), THREADS, 0, fsdp_cuda_stream(c), (T *)dst, value,
                n);
}

extern "C" void fsdp_cuda_fill(fsdp_kernel_context *context, void *dst, fsdp_dtype dtype,
                               double value, int64_t n)
{
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    if (!n)
        return;
    switch (dtype) {
    case FSDP_DTYPE_F32:
        start_fill(c, dst, (float)value, n);
        break;
    case FSDP_DTYPE_F64:
        start_fill(c, dst, value, n);
        break;
    case FSDP_DTYPE_BF16:
        start_fill(c, dst, __float2bfloat16_rn((float)value), n);
        break;
    case FSDP_DTYPE_F16:
        start_fill(c, dst, __float2half_rn((float)value), n);
        break;
    case FSDP_DTYPE_I64:
        start_fill(c, dst, (int64_t)value, n);
        break;
    case FSDP_DTYPE_I32:
        start_fill(c, dst, (int32_t)value, n);
        break;
    default:
        start_fill(c, dst, (uint8_t)value, n);
    }
    fsdp_cuda_launched(c, "fill");
}

extern "C" void fsdp_cuda_copy(fsdp_kernel_context *context, void *dst, const void *src,
                               size_t bytes)
{
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    if (bytes)
        fsdp_cuda_check(
            c, cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToDevice, fsdp_cuda_stream(c)),
            "copy");
}
