/* The kernel column_sum, which computes the gradient of a bias. */
#include "src/kernels/cuda/column_sums.cuh"

extern "C" void fsdp_cuda_column_sum(fsdp_kernel_context *context, void *dbias,
                                     fsdp_dtype dbias_dtype, float beta, const void *dy,
                                     fsdp_dtype dtype, int64_t rows, int64_t n)
{
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    const column_outputs out = {{dbias}, {dbias_dtype}, {beta}};
    if (!n)
        return;
    with_type(dtype, [&](auto zero) {
        typedef decltype(zero) T;
        start_column_sums(c, out, matrix_terms<T>{(const T *)dy, n, is_vectorizable<T>(n, dy)},
                          rows, n);
    });
    fsdp_cuda_launched(c, "column_sum");
}
