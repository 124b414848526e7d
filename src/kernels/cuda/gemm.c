/* Matrix products, computed by cublasLt (gemm_plans.c). cublasLt's workspace is the context's
 * scratch memory. Note [Bits of a CUDA product] in gemm_plans.c says when two products have the
 * same bits.
 *
 * Note [Odd extents]. If the elements of the operands have 2 bytes, cublasLt's fast algorithms
 * require that the row strides are multiples of 8 elements. They require the same of each extent
 * (m, n or k) along which a matrix is contiguous. On an H100, the product of a language model's
 * last layer (lm_head) with 50257 rows runs at an eighth of the rate of one with 50304 rows. So if
 * the strides of a product are multiples of 8 but such an extent is not, the product is computed in
 * two parts: one part for the extent up to a multiple of 64, and another part for the rest. The
 * whole extent is at least 1024 and the rest is less than 64, so the low rate of the rest hardly
 * matters. */
#include "src/kernels/cuda/gemm_bias.h"
#include "src/kernels/cuda/gemm_plans.h"
#include "src/kernels/cuda/slots.h"

static fsdp_status multiply(fsdp_cuda_context *c, const fsdp_gemm_args *args)
{
    fsdp_gemm_plans *plans = fsdp_cuda_gemm_plans(c);
    const fsdp_gemm_plan *plan;
    FSDP_TRY(fsdp_gemm_plans_find(plans, args, NULL, &plan));
    const size_t bytes = fsdp_gemm_plan_workspace(plan);
    void *workspace = bytes ? fsdp_cuda_scratch(c, bytes) : NULL;
    if (bytes && !workspace)
        return fsdp_cuda_report(c);
    float beta = args->beta;
    if (args->bias && !fsdp_gemm_plan_has_bias(plan)) {
        fsdp_cuda_gemm_begin(c, args);
        beta = 1.0f;
    }
    return fsdp_gemm_plan_start(plans, plan, args, NULL, beta, workspace, fsdp_cuda_stream(c));
}

enum {
    FAST_MULTIPLE = 8, /* elements */
    PART_MULTIPLE = 64,
    LEAST_EXTENT = 1024 /* a shorter extent is not divided into two parts */
};

static bool is_fast(int64_t n)
{
    return n % FAST_MULTIPLE == 0;
}

/* Return true if a product must be computed in two parts along this extent (Note [Odd extents]). ld
 * and other_ld are the row strides of the two matrices that are contiguous along the extent. */
static bool is_odd(int64_t extent, int64_t ld, int64_t other_ld)
{
    return extent >= LEAST_EXTENT && !is_fast(extent) && is_fast(ld) && is_fast(other_ld);
}

static const void *element_of(const void *x, fsdp_dtype dtype, int64_t i)
{
    return (const char *)x + (size_t)i * fsdp_dtype_size(dtype);
}

/* These functions divide a product into two parts along n, m or k. *even and *rest are copies of
 * the arguments of the whole product. Reduce *even to the part whose extent is the largest multiple
 * of PART_MULTIPLE, and reduce *rest to the part that remains. @{ */
static void split_n(fsdp_gemm_args *even, fsdp_gemm_args *rest)
{
    const int64_t n = even->n / PART_MULTIPLE * PART_MULTIPLE;
    rest->n = even->n - n;
    rest->b = element_of(even->b, even->ab_dtype, even->trans_b ? n * even->ldb : n);
    rest->c = (char *)even->c + (size_t)n * fsdp_dtype_size(even->c_dtype);
    if (even->bias)
        rest->bias = element_of(even->bias, even->ab_dtype, n);
    even->n = n;
}

static void split_m(fsdp_gemm_args *even, fsdp_gemm_args *rest)
{
    const int64_t m = even->m / PART_MULTIPLE * PART_MULTIPLE;
    rest->m = even->m - m;
    rest->a = element_of(even->a, even->ab_dtype, even->trans_a ? m : m * even->lda);
    rest->c = (char *)even->c + (size_t)(m * even->ldc) * fsdp_dtype_size(even->c_dtype);
    even->m = m;
}

/* Divides the product along k. The product *rest is computed first, and *even is added to its
 * result. *rest is the smaller summand, so its rounding error is smaller: if an element of C has 2
 * bytes, the result of *rest is rounded before the addition, and the sum is rounded after the
 * addition. */
static void split_k(fsdp_gemm_args *even, fsdp_gemm_args *rest)
{
    const int64_t k = even->k / PART_MULTIPLE * PART_MULTIPLE;
    rest->k = even->k - k;
    rest->a = element_of(even->a, even->ab_dtype, even->trans_a ? k * even->lda : k);
    rest->b = element_of(even->b, even->ab_dtype, even->trans_b ? k : k * even->ldb);
    even->k = k;
    even->beta = 1.0f;
}
/* @} */

/* Compute the product in parts if that is faster; see Note [Odd extents]. */
static fsdp_status multiply_parts(fsdp_cuda_context *c, const fsdp_gemm_args *args)
{
    fsdp_gemm_args even = *args, rest = *args;
    if (fsdp_dtype_size(args->ab_dtype) != 2)
        return multiply(c, args);
    if (is_odd(args->n, args->ldc, args->trans_b ? args->ldc : args->ldb))
        split_n(&even, &rest);
    else if (args->trans_a && is_odd(args->m, args->lda, args->lda))
        split_m(&even, &rest);
    else if ((!args->trans_a || args->trans_b) && !args->bias &&
             is_odd(args->k, args->trans_a ? args->ldb : args->lda,
                    args->trans_b ? args->ldb : args->lda))
        split_k(&even, &rest);
    else
        return multiply(c, args);
    FSDP_TRY(multiply_parts(c, &rest));
    return multiply_parts(c, &even);
}

fsdp_status fsdp_cuda_gemm(fsdp_kernel_context *context, const fsdp_gemm_args *args)
{
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    fsdp_status status = FSDP_OK;
    FSDP_TRY(fsdp_cuda_status(c)); /* fails if an earlier function of fsdp_kernels has failed */
    if (!args->m || !args->n)
        return FSDP_OK;
    if (args->k)
        status = multiply_parts(c, args);
    else if (args->bias || args->beta == 0.0f)
        fsdp_cuda_gemm_begin(c, args);
    /* The context does not keep FSDP_ERR_NOMEM as its failure: the caller may continue, and later
     * calls may succeed. */
    if (status != FSDP_OK && status != FSDP_ERR_NOMEM)
        fsdp_cuda_fail(c, status);
    return status;
}
