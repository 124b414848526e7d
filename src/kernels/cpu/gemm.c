/* Chooses which code computes a matrix product, and measures how fast products are. */
#include "src/kernels/cpu/gemm.h"

#include "src/base/clock.h"
#include "src/kernels/cpu/few_rows.h"
#include "src/kernels/cpu/product.h"
#include "src/kernels/cpu/tile.h"

static bool goes_to_tiles(const fsdp_cpu_tiles *tiles, const fsdp_gemm_args *args)
{
    if (!tiles || args->k == 0)
        return false;
    return args->m >= fsdp_cpu_tiles_least_rows || tiles->amx ||
           tiles == &fsdp_cpu_widening_tiles_x86_64_v4;
}

static fsdp_status run_gemm(fsdp_kernel_context *c, const fsdp_gemm_args *args,
                            fsdp_thread_pool *pool)
{
    if (args->m == 0 || args->n == 0)
        return FSDP_OK;
    if (args->m <= FSDP_FEW_ROWS && args->k > 0 && !args->trans_a &&
        fsdp_cpu_few_rows_of(c, args->ab_dtype))
        return fsdp_cpu_gemm_rows(c, args, pool);
    if (goes_to_tiles(fsdp_cpu_tiles_of(c, args->ab_dtype), args))
        return fsdp_cpu_gemm_tiles(c, args, pool);
    return fsdp_cpu_gemm_onednn(c, args, pool);
}

fsdp_status fsdp_cpu_gemm(fsdp_kernel_context *c, const fsdp_gemm_args *args)
{
    return run_gemm(c, args, fsdp_kernel_context_pool(c));
}

/* Computes a float8 GEMM as a bfloat16 GEMM. A product of two float8 values has at most 8
 * significant bits, so it is exact in float32. So the sums are the same as if float8 values were
 * multiplied and added in float32. */
fsdp_status fsdp_cpu_float8_gemm(fsdp_kernel_context *c, const fsdp_float8_gemm_args *args)
{
    return fsdp_cpu_gemm(c, &(fsdp_gemm_args){.m = args->m,
                                              .n = args->n,
                                              .k = args->k,
                                              .a = args->a,
                                              .lda = args->trans_a ? args->m : args->k,
                                              .trans_a = args->trans_a,
                                              .b = args->b,
                                              .ldb = args->trans_b ? args->k : args->n,
                                              .trans_b = args->trans_b,
                                              .c = args->c,
                                              .ldc = args->n,
                                              .ab_dtype = FSDP_DTYPE_BF16,
                                              .c_dtype = FSDP_DTYPE_F32});
}

fsdp_status fsdp_kernels_cpu_gemm_rate(fsdp_kernel_context *context, const fsdp_gemm_args *product,
                                       double seconds, double *gflops)
{
    /* Ignore the time of the first run, because the first run compiles primitives. Use the fastest
     * of the later runs, because other programs have disturbed it least. */
    double best = 0;
    for (double start = 0, end = 0; best == 0 || end - start < seconds;) {
        double begin = fsdp_clock_s();
        FSDP_TRY(run_gemm(context, product, NULL));
        end = fsdp_clock_s();
        if (start == 0)
            start = end;
        else if (best == 0 || end - begin < best)
            best = end - begin;
    }
    *gflops = 2e-9 * (double)product->m * (double)product->n * (double)product->k / best;
    return FSDP_OK;
}
