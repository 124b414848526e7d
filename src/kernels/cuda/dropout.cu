/* Dropout. A thread computes the eight elements that one counter of Philox decides about. */
#include "src/base/philox.h"
#include "src/kernels/cuda/elementwise.cuh"
#include "src/kernels/cuda/philox.cuh"

struct dropped_out {
    uint64_t key;
    uint32_t threshold;
    float factor;
    __device__ void operator()(float (&out)[1][PHILOX_HALVES], const float (&in)[1][PHILOX_HALVES],
                               int64_t group) const
    {
        const philox_words words = philox(key, (uint64_t)group);
#pragma unroll
        for (int j = 0; j < PHILOX_HALVES; j++)
            out[0][j] = philox_half(words, j) >= threshold ? in[0][j] * factor : 0.0f;
    }
};

extern "C" void fsdp_cuda_dropout(fsdp_kernel_context *context, void *out, const void *x,
                                  fsdp_dtype dtype, int64_t n, float p, uint64_t key)
{
    const elementwise_arrays<1, 1> arrays = {{x}, {out}};
    start_elementwise<PHILOX_HALVES>(context, "dropout", dtype, n, arrays,
                                     dropped_out{key, fsdp_drop_threshold(p), fsdp_keep_factor(p)});
}
