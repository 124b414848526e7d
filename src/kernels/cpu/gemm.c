/* Which way a matrix product goes, and how fast the machine is at it. */
#include "src/kernels/cpu/gemm.h"

#include <string.h>

#include "src/base/alloc.h"
#include "src/base/clock.h"
#include "src/kernels/cpu/product.h"
#include "src/kernels/cpu/tile.h"

static fsdp_status run(fsdp_kernel_context *c, const fsdp_gemm_args *args, fsdp_thread_pool *pool)
{
    if (args->m == 0 || args->n == 0)
        return FSDP_OK;
    if (args->m >= fsdp_cpu_tiles_least_rows && args->k > 0 && fsdp_cpu_tiles_of(c, args->ab_dtype))
        return fsdp_cpu_gemm_tiles(c, args, pool);
    return fsdp_cpu_gemm_onednn(c, args, pool);
}

fsdp_status fsdp_cpu_gemm(fsdp_kernel_context *c, const fsdp_gemm_args *args)
{
    return run(c, args, fsdp_kernel_context_pool(c));
}

fsdp_status fsdp_kernels_cpu_gemm_rate(fsdp_kernel_context *context, fsdp_dtype dtype, int64_t m,
                                       int64_t n, int64_t k, double seconds, double *gflops)
{
    size_t size = fsdp_dtype_size(dtype),
           counts[] = {(size_t)(m * k), (size_t)(n * k), (size_t)(m * n)};
    void *x[3] = {0};
    fsdp_status status = FSDP_OK;
    for (int i = 0; i < 3; i++)
        if (!(x[i] = fsdp_calloc(counts[i], size)))
            status = fsdp_error_nomem();
        else
            memset(x[i], 0x3c, counts[i] * size); /* about 0.01 in f32 and bf16, 1.06 in f16 */
    fsdp_gemm_args args = {.m = m,
                           .n = n,
                           .k = k,
                           .a = x[0],
                           .b = x[1],
                           .c = x[2],
                           .lda = k,
                           .ldb = k,
                           .ldc = n,
                           .trans_b = true,
                           .ab_dtype = dtype,
                           .c_dtype = dtype};
    /* The first run creates primitives; the best of the others is the machine undisturbed. */
    double best = 0;
    for (double start = 0, end = 0; status == FSDP_OK && (best == 0 || end - start < seconds);) {
        double begin = fsdp_clock_s();
        status = run(context, &args, NULL);
        end = fsdp_clock_s();
        if (start == 0)
            start = end;
        else if (best == 0 || end - begin < best)
            best = end - begin;
    }
    if (status == FSDP_OK)
        *gflops = 2e-9 * (double)m * (double)n * (double)k / best;
    for (int i = 0; i < 3; i++)
        fsdp_free(x[i]);
    return status;
}
