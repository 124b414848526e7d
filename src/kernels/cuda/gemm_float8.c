/* Products of float8 operands: Note [Float8 products] in src/autograd/float8_linear.h.
 *
 * Note [Float8 codes on a card]. From compute capability 8.9 on, tensor cores multiply float8 codes
 * themselves, at twice the rate of bfloat16. cublasLt offers this if k is the last dimension of
 * both operands, if all addresses and the rows of both operands and of C are multiples of 16 bytes,
 * and if at most one operand is e5m2. fsdp_cuda_float8_multiplies_codes() decides in which form the
 * caller stores the operands of a product: as codes, or as the values of the codes in bfloat16. If
 * both operands have a single scale, cublasLt also divides by the scales, so the sums need neither
 * memory nor a kernel of their own.
 *
 * A product of two codes is exact. But the tensor cores of Hopper add products of float8 operands
 * with about 14 bits (DeepSeek-AI 2024, arXiv 2412.19437). Fast accumulation would add all terms in
 * this way. Fast accumulation is off, so cublasLt adds the sums of parts of k in float32. Sums of
 * codes therefore differ slightly from sums of values, which are float32 throughout. */
#include "src/kernels/cuda/gemm_float8.h"

#include "src/kernels/cuda/gemm_plans.h"
#include "src/kernels/cuda/slots.h"

enum {
    LEAST_CAPABILITY = 89,  /* compute capability times 10 */
    RECIPROCALS_BYTES = 256 /* for the reciprocals of both scales; cublasLt's workspace follows */
};

/* Return the arguments of the product in the form that gemm takes. */
static fsdp_gemm_args gemm_of(const fsdp_float8_gemm_args *args)
{
    return (fsdp_gemm_args){.m = args->m,
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
                            .ab_dtype = args->ab_dtype,
                            .c_dtype = args->c_dtype,
                            .beta = args->beta};
}

static fsdp_gemm_float8 float8_of(const fsdp_float8_gemm_args *args)
{
    return (fsdp_gemm_float8){
        .a_format = args->a_format, .b_format = args->b_format, .is_scaled = args->a_scale != NULL};
}

bool fsdp_cuda_float8_multiplies_codes(fsdp_kernel_context *context,
                                       const fsdp_float8_gemm_args *args)
{
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    if (fsdp_cuda_capability(c) < LEAST_CAPABILITY || args->m <= 0 || args->n <= 0 ||
        args->k <= 0 || args->n % FSDP_FLOAT8_MULTIPLE || args->k % FSDP_FLOAT8_MULTIPLE)
        return false;
    fsdp_gemm_args gemm = gemm_of(args);
    gemm.a = gemm.b = gemm.c = NULL; /* NULL counts as an aligned address */
    gemm.ab_dtype = FSDP_DTYPE_U8;
    gemm.lda = gemm.ldb = args->k;
    gemm.trans_a = false;
    gemm.trans_b = true;
    const fsdp_gemm_float8 float8 = float8_of(args);
    const fsdp_gemm_plan *plan;
    return fsdp_gemm_plans_find(fsdp_cuda_gemm_plans(c), &gemm, &float8, &plan) == FSDP_OK;
}

static fsdp_status multiply_codes(fsdp_cuda_context *c, const fsdp_float8_gemm_args *args)
{
    fsdp_gemm_plans *plans = fsdp_cuda_gemm_plans(c);
    const fsdp_gemm_args gemm = gemm_of(args);
    fsdp_gemm_float8 float8 = float8_of(args);
    const fsdp_gemm_plan *plan;
    FSDP_TRY(fsdp_gemm_plans_find(plans, &gemm, &float8, &plan));
    char *scratch = fsdp_cuda_scratch(c, RECIPROCALS_BYTES + fsdp_gemm_plan_workspace(plan));
    if (!scratch)
        return fsdp_cuda_report(c);
    if (float8.is_scaled) {
        float *reciprocals = (float *)(void *)scratch;
        fsdp_cuda_float8_reciprocals(c, reciprocals, args->a_scale, args->b_scale);
        float8.a_reciprocal = reciprocals;
        float8.b_reciprocal = reciprocals + FSDP_FLOAT8_SCALE_STRIDE;
    }
    return fsdp_gemm_plan_start(plans, plan, &gemm, &float8, args->beta,
                                scratch + RECIPROCALS_BYTES, fsdp_cuda_stream(c));
}

fsdp_status fsdp_cuda_float8_gemm(fsdp_kernel_context *context, const fsdp_float8_gemm_args *args)
{
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    if (args->ab_dtype != FSDP_DTYPE_U8) {
        const fsdp_gemm_args values = gemm_of(args);
        return fsdp_cuda_gemm(context, &values);
    }
    FSDP_TRY(fsdp_cuda_status(c)); /* fails if an earlier function of fsdp_kernels has failed */
    const fsdp_status status = multiply_codes(c, args);
    /* As in fsdp_cuda_gemm(): the context does not keep the error that memory is missing. */
    if (status != FSDP_OK && status != FSDP_ERR_NOMEM)
        fsdp_cuda_fail(c, status);
    return status;
}
