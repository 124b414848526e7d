/* Matrix products of any size, cut into tiles for the context's threads. */
#pragma once
#include "src/kernels/cpu/context.h"

FSDP_MUST_CHECK fsdp_status fsdp_cpu_gemm(fsdp_kernel_context *c, const fsdp_gemm_args *args);
