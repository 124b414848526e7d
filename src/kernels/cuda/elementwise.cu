/* Arithmetic on arrays of one dtype. Each result is computed by one float32 operation and rounded
 * to the dtype, so it has the same bits as the result of the CPU's kernel. */
#include "src/kernels/cuda/elementwise.cuh"

struct sum_of {
    template <int N>
    __device__ void operator()(float (&out)[1][N], const float (&in)[2][N], int64_t) const
    {
#pragma unroll
        for (int j = 0; j < N; j++)
            out[0][j] = in[0][j] + in[1][j];
    }
};

struct product_of {
    template <int N>
    __device__ void operator()(float (&out)[1][N], const float (&in)[2][N], int64_t) const
    {
#pragma unroll
        for (int j = 0; j < N; j++)
            out[0][j] = in[0][j] * in[1][j];
    }
};

struct multiple_of {
    float factor;
    template <int N>
    __device__ void operator()(float (&out)[1][N], const float (&in)[1][N], int64_t) const
    {
#pragma unroll
        for (int j = 0; j < N; j++)
            out[0][j] = in[0][j] * factor;
    }
};

/* Limits x to [-limit, limit]. NaN stays NaN, because comparisons with NaN are false. */
struct clamped {
    float limit;
    template <int N>
    __device__ void operator()(float (&out)[1][N], const float (&in)[1][N], int64_t) const
    {
#pragma unroll
        for (int j = 0; j < N; j++) {
            const float x = in[0][j];
            out[0][j] = x > limit ? limit : x < -limit ? -limit : x;
        }
    }
};

extern "C" void fsdp_cuda_add(fsdp_kernel_context *context, void *out, const void *x, const void *y,
                              fsdp_dtype dtype, int64_t n)
{
    const elementwise_arrays<2, 1> arrays = {{x, y}, {out}};
    start_elementwise<0>(context, "add", dtype, n, arrays, sum_of());
}

extern "C" void fsdp_cuda_mul(fsdp_kernel_context *context, void *out, const void *x, const void *y,
                              fsdp_dtype dtype, int64_t n)
{
    const elementwise_arrays<2, 1> arrays = {{x, y}, {out}};
    start_elementwise<0>(context, "mul", dtype, n, arrays, product_of());
}

extern "C" void fsdp_cuda_scale(fsdp_kernel_context *context, void *out, const void *x,
                                float factor, fsdp_dtype dtype, int64_t n)
{
    const elementwise_arrays<1, 1> arrays = {{x}, {out}};
    start_elementwise<0>(context, "scale", dtype, n, arrays, multiple_of{factor});
}

extern "C" void fsdp_cuda_clamp(fsdp_kernel_context *context, float *x, float limit, int64_t n)
{
    const elementwise_arrays<1, 1> arrays = {{x}, {x}};
    start_elementwise<0>(context, "clamp", FSDP_DTYPE_F32, n, arrays, clamped{limit});
}
