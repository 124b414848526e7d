/* Matrix products of any size, cut into tiles for the context's threads: by our own tiles where the
 * CPU has AVX-512 and there is enough to do, else by oneDNN. */
#pragma once
#include "src/kernels/cpu/context.h"

FSDP_MUST_CHECK fsdp_status fsdp_cpu_gemm(fsdp_kernel_context *c, const fsdp_gemm_args *args);

/* m, n > 0; the second wants m n k > 0 and fsdp_cpu_tiles_of its dtype. pool NULL: on the calling
 * thread. */
FSDP_MUST_CHECK fsdp_status fsdp_cpu_gemm_onednn(fsdp_kernel_context *c, const fsdp_gemm_args *args,
                                                 fsdp_thread_pool *pool);
FSDP_MUST_CHECK fsdp_status fsdp_cpu_gemm_tiles(fsdp_kernel_context *c, const fsdp_gemm_args *args,
                                                fsdp_thread_pool *pool);
