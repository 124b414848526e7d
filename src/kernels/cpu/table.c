/* Opens the CPU's kernels. There is one table of kernels per ISA. Each file of isa/ stores its
 * kernels in the table. The kernels in gemm.c and attention.c are the same for all ISAs and check
 * the context's ISA. */
#include <pthread.h>

#include "src/kernels/cpu/attention.h"
#include "src/kernels/cpu/context.h"
#include "src/kernels/cpu/gemm.h"
#include "src/kernels/cpu/isa/isa.h"

static fsdp_kernels tables[FSDP_CPU_ISA_COUNT]; /* each is built once and is constant after that */

#define FILL_TABLE(table, isa)                                                                     \
    do {                                                                                           \
        fsdp_cpu_fill_memory_##isa(table);                                                         \
        fsdp_cpu_fill_halves_##isa(table);                                                         \
        fsdp_cpu_fill_elementwise_##isa(table);                                                    \
        fsdp_cpu_fill_norm_##isa(table);                                                           \
        fsdp_cpu_fill_layer_norm_##isa(table);                                                     \
        fsdp_cpu_fill_rope_##isa(table);                                                           \
        fsdp_cpu_fill_rows_##isa(table);                                                           \
        fsdp_cpu_fill_embedding_##isa(table);                                                      \
        fsdp_cpu_fill_loss_##isa(table);                                                           \
        fsdp_cpu_fill_optim_##isa(table);                                                          \
        fsdp_cpu_fill_reduce_##isa(table);                                                         \
        fsdp_cpu_fill_combine_##isa(table);                                                        \
        fsdp_cpu_fill_clamp_infinite_##isa(table);                                                 \
        fsdp_cpu_fill_float8_##isa(table);                                                         \
        fsdp_cpu_fill_nf4_##isa(table);                                                            \
        fsdp_cpu_fill_magnitude_##isa(table);                                                      \
    } while (0)

/* A table is built only when it is first requested. The code that fills a table is compiled for the
 * ISA of the table, so it may contain instructions that a CPU without this ISA does not have. */
#define DEFINE_BUILD(id, isa, text)                                                                \
    static void build_##isa(void)                                                                  \
    {                                                                                              \
        tables[id].name = "cpu " text;                                                             \
        tables[id].gemm = fsdp_cpu_gemm;                                                           \
        tables[id].float8_gemm = fsdp_cpu_float8_gemm;                                             \
        tables[id].attention = fsdp_cpu_attention_forward;                                         \
        tables[id].attention_backward = fsdp_cpu_attention_backward;                               \
        FILL_TABLE(&tables[id], isa);                                                              \
    }
DEFINE_BUILD(FSDP_CPU_ISA_V1, x86_64, "x86-64")
DEFINE_BUILD(FSDP_CPU_ISA_V3, x86_64_v3, "x86-64-v3")
DEFINE_BUILD(FSDP_CPU_ISA_V4, x86_64_v4, "x86-64-v4")

/* Returns the table of an ISA. The first call, from any thread, builds the table. */
static const fsdp_kernels *table_of(fsdp_cpu_isa isa)
{
    static pthread_once_t once[FSDP_CPU_ISA_COUNT] = {PTHREAD_ONCE_INIT, PTHREAD_ONCE_INIT,
                                                      PTHREAD_ONCE_INIT};
    static void (*const build[FSDP_CPU_ISA_COUNT])(void) = {build_x86_64, build_x86_64_v3,
                                                            build_x86_64_v4};
    pthread_once(&once[isa], build[isa]);
    return &tables[isa];
}

fsdp_status fsdp_kernels_cpu_open(const char *isa, int threads, fsdp_kernel_context **context,
                                  const fsdp_kernels **kernels)
{
    FSDP_TRY(fsdp_kernel_context_create(isa, threads, context));
    *kernels = table_of(fsdp_kernel_context_isa(*context));
    return FSDP_OK;
}
