/* What one CPU rank computes with. Kernels are called by one thread at a time for a context; the
 * tasks they hand to the pool run on its workers, numbered from 0 (the caller). */
#pragma once
#include "src/kernels/kernels.h"

typedef enum fsdp_cpu_isa {
    FSDP_CPU_ISA_V1, /* x86-64 */
    FSDP_CPU_ISA_V3,
    FSDP_CPU_ISA_V4,
    FSDP_CPU_ISA_COUNT
} fsdp_cpu_isa;

/* What multiplies matrices with AVX-512. */
typedef enum fsdp_cpu_multiplier {
    FSDP_CPU_MULTIPLY_BF16,  /* our tiles, bf16 by AVX512-BF16 */
    FSDP_CPU_MULTIPLY_FMA,   /* our tiles, bf16 widened to f32 */
    FSDP_CPU_MULTIPLY_AMX,   /* our tiles, bf16 by AMX */
    FSDP_CPU_MULTIPLY_ONEDNN /* oneDNN */
} fsdp_cpu_multiplier;

enum {
    /* A request for up to this many bytes of scratch never fails: for kernels that return void. */
    FSDP_KERNEL_SCRATCH_MIN = 1 << 18
};

/* The context of fsdp_kernels_cpu_open(), which adds the table; ended by fsdp_kernels_cpu_close().
 */
FSDP_MUST_CHECK fsdp_status fsdp_kernel_context_create(const char *isa, int threads,
                                                       fsdp_kernel_context **context);
/* For fsdp_parallel_for. */
fsdp_thread_pool *fsdp_kernel_context_pool(const fsdp_kernel_context *c);
/* Which table this context was opened with. */
fsdp_cpu_isa fsdp_kernel_context_isa(const fsdp_kernel_context *c);
/* The fastest one of this CPU, unless the context was opened for another. */
fsdp_cpu_multiplier fsdp_kernel_context_multiplier(const fsdp_kernel_context *c);

/* Memory of one worker for the length of one kernel: at least `bytes`, 64-byte aligned, contents
 * undefined. There is one block a worker: asking again gives the same block, moved if it had to
 * grow. Kept until the context closes. Called from a task with its own worker number, or by the
 * caller with 0 outside fsdp_parallel_for. NULL with an error message when out of memory, never
 * for bytes <= FSDP_KERNEL_SCRATCH_MIN. */
void *fsdp_kernel_scratch(fsdp_kernel_context *c, int worker, size_t bytes);
