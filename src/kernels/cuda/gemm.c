/* Matrix products. cublasLt computes them (gemm_plans.c); its workspace is the context's scratch.
 * For what is promised about bits, see Note [Bits of a CUDA product] in gemm_plans.c. */
#include "src/kernels/cuda/gemm_bias.h"
#include "src/kernels/cuda/gemm_plans.h"
#include "src/kernels/cuda/slots.h"

static fsdp_status multiply(fsdp_cuda_context *c, const fsdp_gemm_args *args)
{
    fsdp_gemm_plans *plans = fsdp_cuda_gemm_plans(c);
    const fsdp_gemm_plan *plan;
    FSDP_TRY(fsdp_gemm_plans_find(plans, args, &plan));
    const size_t bytes = fsdp_gemm_plan_workspace(plan);
    void *workspace = bytes ? fsdp_cuda_scratch(c, bytes) : NULL;
    if (bytes && !workspace)
        return fsdp_cuda_status(c);
    float beta = args->beta;
    if (args->bias && !fsdp_gemm_plan_has_bias(plan)) {
        fsdp_cuda_gemm_begin(c, args);
        beta = 1.0f;
    }
    return fsdp_gemm_plan_start(plans, plan, args, beta, workspace, fsdp_cuda_stream(c));
}

fsdp_status fsdp_cuda_gemm(fsdp_kernel_context *context, const fsdp_gemm_args *args)
{
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    fsdp_status status = FSDP_OK;
    if (!args->m || !args->n)
        return FSDP_OK;
    if (args->k)
        status = multiply(c, args);
    else if (args->bias || args->beta == 0.0f)
        fsdp_cuda_gemm_begin(c, args);
    if (status != FSDP_OK)
        fsdp_cuda_fail(c, status);
    return status;
}
