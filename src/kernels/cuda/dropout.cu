/* Dropout. One counter of Philox gives eight random numbers, which decide about eight elements. The
 * thread that computes the random numbers also processes these elements. */
#include "src/base/philox.h"
#include "src/kernels/cuda/elementwise.cuh"
#include "src/kernels/cuda/philox.cuh"

struct dropped_out {
    uint64_t key;
    uint32_t threshold;
    float factor;
    bool relu;
    __device__ float of(float x, bool kept) const
    {
        return kept ? (relu && 0.0f > x ? 0.0f : x) * factor : 0.0f;
    }
    __device__ void operator()(float (&out)[1][PHILOX_HALVES], const float (&in)[1][PHILOX_HALVES],
                               int64_t group) const
    {
        const philox_words words = philox(key, (uint64_t)group);
#pragma unroll
        for (int j = 0; j < PHILOX_HALVES; j++)
            out[0][j] = of(in[0][j], philox_half(words, j) >= threshold);
    }
};

FSDP_DEVICE float rounded(fsdp_dtype dtype, float x)
{
    return dtype == FSDP_DTYPE_BF16  ? to_float(from_float<__nv_bfloat16>(x))
           : dtype == FSDP_DTYPE_F16 ? to_float(from_float<__half>(x))
                                     : x;
}

/* Computes the result of dropout, rounds it to `dtype`, and adds in[1]. */
struct dropped_out_and_added {
    dropped_out drop;
    fsdp_dtype dtype;
    __device__ void operator()(float (&out)[1][PHILOX_HALVES], const float (&in)[2][PHILOX_HALVES],
                               int64_t group) const
    {
        const philox_words words = philox(drop.key, (uint64_t)group);
#pragma unroll
        for (int j = 0; j < PHILOX_HALVES; j++) {
            const float y = drop.of(in[0][j], philox_half(words, j) >= drop.threshold);
            out[0][j] = rounded(dtype, y) + in[1][j];
        }
    }
};

extern "C" void fsdp_cuda_dropout(fsdp_kernel_context *context, const fsdp_dropout_args *args)
{
    const dropped_out drop = {args->key, fsdp_drop_threshold(args->p), fsdp_keep_factor(args->p),
                              args->relu};
    if (!args->addend) {
        const elementwise_arrays<1, 1> arrays = {{args->x}, {args->out}};
        start_elementwise<PHILOX_HALVES>(context, "dropout", args->dtype, args->n, arrays, drop);
        return;
    }
    const elementwise_arrays<2, 1> arrays = {{args->x, args->addend}, {args->out}};
    start_elementwise<PHILOX_HALVES>(context, "dropout", args->dtype, args->n, arrays,
                                     dropped_out_and_added{drop, args->dtype});
}
