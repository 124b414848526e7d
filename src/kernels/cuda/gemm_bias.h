/* What a product adds to. */
#pragma once
#include "src/kernels/cuda/context.h"

#ifdef __cplusplus
extern "C" {
#endif
/* C = beta C + bias, for the operands of `args`; a bias that is NULL is 0. */
void fsdp_cuda_gemm_begin(fsdp_cuda_context *c, const fsdp_gemm_args *args);
#ifdef __cplusplus
}
#endif
