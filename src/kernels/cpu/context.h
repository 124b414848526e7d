/* The kernel context of one CPU rank. Only one thread at a time may call kernels with a context. A
 * kernel's tasks run on the workers of the context's thread pool. Worker 0 is the thread that
 * called the kernel. */
#pragma once
#include "src/kernels/kernels.h"

typedef enum fsdp_cpu_isa {
    FSDP_CPU_ISA_V1, /* x86-64 */
    FSDP_CPU_ISA_V3,
    FSDP_CPU_ISA_V4,
    FSDP_CPU_ISA_COUNT
} fsdp_cpu_isa;

/* The code that multiplies matrices if the ISA is x86-64-v4 (AVX-512). */
typedef enum fsdp_cpu_multiplier {
    FSDP_CPU_MULTIPLY_BF16,  /* our tiles, which multiply bf16 with AVX512-BF16 */
    FSDP_CPU_MULTIPLY_FMA,   /* our tiles, which convert bf16 to f32 first */
    FSDP_CPU_MULTIPLY_AMX,   /* our tiles, which multiply bf16 with AMX */
    FSDP_CPU_MULTIPLY_ONEDNN /* oneDNN */
} fsdp_cpu_multiplier;

enum {
    /* A request for up to this many bytes of scratch never fails. Kernels that return void rely on
     * this. */
    FSDP_KERNEL_SCRATCH_MIN = 1 << 18
};

/* Create a context. fsdp_kernels_cpu_open() calls this and then chooses the table of kernels.
 * fsdp_kernels_cpu_close() destroys the context. */
FSDP_MUST_CHECK fsdp_status fsdp_kernel_context_create(const char *isa, int threads,
                                                       fsdp_kernel_context **context);
/* Return the thread pool, for fsdp_parallel_for(). */
fsdp_thread_pool *fsdp_kernel_context_pool(const fsdp_kernel_context *c);
/* Return the ISA that was chosen when the context was created. */
fsdp_cpu_isa fsdp_kernel_context_isa(const fsdp_kernel_context *c);
/* Return which code multiplies matrices if the ISA is x86-64-v4. By default, this is the code that
 * is fastest on this CPU. A suffix of the ISA's name selects other code
 * (fsdp_kernels_cpu_open()). */
fsdp_cpu_multiplier fsdp_kernel_context_multiplier(const fsdp_kernel_context *c);

/* Return scratch memory of at least `bytes` bytes for one worker. It is 64-byte aligned, its
 * contents are undefined, and it is valid until the kernel returns. A task passes its worker
 * number; code outside fsdp_parallel_for() passes 0. Each worker has one block: a second call
 * returns the same block, which may move in order to grow. The blocks are freed when the context is
 * closed. Return NULL with an error message when out of memory; this never happens if bytes <=
 * FSDP_KERNEL_SCRATCH_MIN. */
void *fsdp_kernel_scratch(fsdp_kernel_context *c, int worker, size_t bytes);
