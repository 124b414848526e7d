/* Sets C before a product is added to it. */
#pragma once
#include "src/kernels/cuda/context.h"

#ifdef __cplusplus
extern "C" {
#endif
/* Set C = beta C + bias, where beta, C and bias are those of `args`. A bias that is NULL counts as
 * 0. */
void fsdp_cuda_gemm_begin(fsdp_cuda_context *c, const fsdp_gemm_args *args);
#ifdef __cplusplus
}
#endif
