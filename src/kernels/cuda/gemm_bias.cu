/* Computes C = beta C + bias. If k is 0, C is then the whole result of gemm. If cublasLt cannot add
 * the bias of a product, this kernel is the first of two steps, and the second step adds the
 * product to C. If beta is 0, the first step rounds nothing, so the result is rounded once, as if
 * cublasLt had added the bias. */
#include "src/kernels/cuda/gemm_bias.h"

#include "src/kernels/cuda/elements.cuh"

enum {
    ROWS = 8 /* rows that a block writes at a time; each warp of the block writes one of them */
};

/* Each thread writes N adjacent columns of every (ROWS * gridDim.y)-th row. beta is 0 or 1. */
template <typename C, typename T, int N>
static __global__ void begin(C *c, const T *bias, float beta, int64_t m, int64_t n, int64_t ld)
{
    struct alignas(N * sizeof(C)) columns {
        C at[N];
    };
    const int64_t j = ((int64_t)blockIdx.x * 32 + threadIdx.x) * N;
    if (j >= n)
        return;
    float add[N];
    for (int e = 0; e < N; e++)
        add[e] = bias ? to_float(bias[j + e]) : 0.0f;
    for (int64_t i = (int64_t)blockIdx.y * ROWS + threadIdx.y; i < m;
         i += (int64_t)gridDim.y * ROWS) {
        columns *at = (columns *)(c + i * ld + j);
        columns x;
        if (beta != 0.0f)
            x = *at;
        for (int e = 0; e < N; e++)
            x.at[e] = from_float<C>(beta != 0.0f ? to_float(x.at[e]) + add[e] : add[e]);
        *at = x;
    }
}

template <typename C, typename T, int N>
static void start(fsdp_cuda_context *context, const fsdp_gemm_args *a)
{
    const dim3 grid(blocks_for(a->n, 32 * N, INT32_MAX), blocks_for(a->m, ROWS, 1024));
    CUDA_LAUNCH((begin<C, T, N>), grid, dim3(32, ROWS), 0, fsdp_cuda_stream(context), (C *)a->c,
                (const T *)a->bias, a->beta, a->m, a->n, a->ldc);
}

template <typename C, typename T>
static void start_any(fsdp_cuda_context *context, const fsdp_gemm_args *a)
{
    constexpr int N = vector_of<C>::N;
    if (a->n % N == 0 && is_vectorizable<C>(a->ldc, a->c))
        start<C, T, N>(context, a);
    else
        start<C, T, 1>(context, a);
}

extern "C" void fsdp_cuda_gemm_begin(fsdp_cuda_context *c, const fsdp_gemm_args *args)
{
    with_type(args->ab_dtype, [&](auto zero) {
        typedef decltype(zero) T;
        if (args->c_dtype == FSDP_DTYPE_F32)
            start_any<float, T>(c, args);
        else
            start_any<T, T>(c, args);
    });
    fsdp_cuda_launched(c, "gemm");
}
