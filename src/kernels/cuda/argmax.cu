/* The kernel argmax finds the index of the largest value of each row. A value and its index are
 * packed into one integer key. The maximum of the keys does not depend on the order of the
 * comparisons. */
#include "src/kernels/cuda/row_access.cuh"

enum {
    WARPS = 8
};

/* Return the key of element i of a row with value x. A larger value has a larger key. NaN counts as
 * larger than any number, as in PyTorch, and 0 and -0 are equal. Among equal values, the first one
 * has the largest key. A key is never 0. */
FSDP_DEVICE unsigned long long key_of(float x, int64_t i)
{
    const uint32_t bits = __float_as_uint(x + 0.0f);
    uint32_t value = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    if (isnan(x))
        value = ~0u;
    return (unsigned long long)value << 32 | (uint32_t)~i;
}

FSDP_DEVICE unsigned long long warp_max(unsigned long long key)
{
#pragma unroll
    for (int i = WARP / 2; i; i /= 2)
        key = max(key, __shfl_xor_sync(~0u, key, i));
    return key;
}

template <typename T>
static __global__ void __launch_bounds__(WARP *WARPS)
    argmax(int32_t *index, const T *x, int64_t width, bool is_aligned)
{
    constexpr int N = vector_of<T>::N;
    SHARED(unsigned long long, keys, [WARPS]);
    const T *row = x + blockIdx.x * width;
    unsigned long long key = 0;
#pragma unroll 4
    for (int64_t i = (int64_t)threadIdx.x * N; i < width; i += (int64_t)blockDim.x * N) {
        float f[N];
        widen(f, load_chunk(row, i, width, is_aligned));
#pragma unroll
        for (int e = 0; e < N; e++)
            if (i + e < width)
                key = max(key, key_of(f[e], i + e));
    }
    key = warp_max(key);
    if (threadIdx.x % WARP == 0)
        keys[threadIdx.x / WARP] = key;
    __syncthreads();
    if (threadIdx.x >= WARP)
        return;
    key = warp_max(threadIdx.x < WARPS ? keys[threadIdx.x] : 0);
    if (threadIdx.x == 0)
        index[blockIdx.x] = (int32_t) ~(uint32_t)key;
}

extern "C" void fsdp_cuda_argmax(fsdp_kernel_context *context, int32_t *index, const void *x,
                                 fsdp_dtype dtype, int64_t rows, int64_t width)
{
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    if (!rows)
        return;
    with_type(dtype, [&](auto zero) {
        typedef decltype(zero) T;
        CUDA_LAUNCH(argmax<T>, (unsigned)rows, WARP * WARPS, 0, fsdp_cuda_stream(c), index,
                    (const T *)x, width, is_vectorizable<T>(width, x));
    });
    fsdp_cuda_launched(c, "argmax");
}
