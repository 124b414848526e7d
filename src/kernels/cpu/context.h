/* The context of one CPU rank. One thread at a time calls kernels with a context. The tasks of a
 * kernel run on the workers of the context's pool. Worker 0 is the caller. */
#pragma once
#include "src/kernels/kernels.h"

typedef enum fsdp_cpu_isa {
    FSDP_CPU_ISA_V1, /* x86-64 */
    FSDP_CPU_ISA_V3,
    FSDP_CPU_ISA_V4,
    FSDP_CPU_ISA_COUNT
} fsdp_cpu_isa;

/* How matrices are multiplied with AVX-512. */
typedef enum fsdp_cpu_multiplier {
    FSDP_CPU_MULTIPLY_BF16,  /* our tiles, bf16 by AVX512-BF16 */
    FSDP_CPU_MULTIPLY_FMA,   /* our tiles, bf16 widened to f32 */
    FSDP_CPU_MULTIPLY_AMX,   /* our tiles, bf16 by AMX */
    FSDP_CPU_MULTIPLY_ONEDNN /* oneDNN */
} fsdp_cpu_multiplier;

enum {
    /* A request for up to this many bytes of scratch never fails. Kernels that return void rely on
     * this. */
    FSDP_KERNEL_SCRATCH_MIN = 1 << 18
};

/* Create the context for fsdp_kernels_cpu_open(), which then adds the table of kernels.
 * fsdp_kernels_cpu_close() destroys it. */
FSDP_MUST_CHECK fsdp_status fsdp_kernel_context_create(const char *isa, int threads,
                                                       fsdp_kernel_context **context);
/* Return the thread pool, for fsdp_parallel_for(). */
fsdp_thread_pool *fsdp_kernel_context_pool(const fsdp_kernel_context *c);
/* Return the ISA of the table that this context was opened with. */
fsdp_cpu_isa fsdp_kernel_context_isa(const fsdp_kernel_context *c);
/* Return the multiplier: the fastest one on this CPU, unless the context was opened with
 * another. */
fsdp_cpu_multiplier fsdp_kernel_context_multiplier(const fsdp_kernel_context *c);

/* Return memory for one worker until the kernel returns: at least `bytes`, 64-byte aligned,
 * contents undefined. Each worker has one block: a second call returns the same block, which may
 * move in order to grow. The block is kept until the context is closed. A task passes its worker
 * number; code outside fsdp_parallel_for() passes 0. Return NULL with an error message when out of
 * memory, but never for bytes <= FSDP_KERNEL_SCRATCH_MIN. */
void *fsdp_kernel_scratch(fsdp_kernel_context *c, int worker, size_t bytes);
