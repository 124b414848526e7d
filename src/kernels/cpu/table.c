/* Assembles one table of kernels per ISA out of the parts: each file of isa/ fills its own slots,
 * gemm.c and attention.c serve all ISAs and look at the context's. */
#include <pthread.h>

#include "src/kernels/cpu/attention.h"
#include "src/kernels/cpu/gemm.h"
#include "src/kernels/cpu/isa/isa.h"
#include "src/kernels/cpu/panel.h"
#include "src/kernels/cpu/table.h"

static fsdp_kernels tables[FSDP_CPU_ISA_COUNT]; /* constant once built */
static pthread_once_t built = PTHREAD_ONCE_INIT;

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
    } while (0)

static void fill_shared(fsdp_kernels *k)
{
    k->gemm = fsdp_cpu_gemm;
    k->attention = fsdp_cpu_attention_forward;
    k->attention_backward = fsdp_cpu_attention_backward;
}

static void build_tables(void)
{
    for (int i = 0; i < FSDP_CPU_ISA_COUNT; i++)
        fill_shared(&tables[i]);
    tables[FSDP_CPU_ISA_V1].name = "cpu x86-64";
    tables[FSDP_CPU_ISA_V3].name = "cpu x86-64-v3";
    tables[FSDP_CPU_ISA_V4].name = "cpu x86-64-v4";
    FILL_TABLE(&tables[FSDP_CPU_ISA_V1], x86_64);
    FILL_TABLE(&tables[FSDP_CPU_ISA_V3], x86_64_v3);
    FILL_TABLE(&tables[FSDP_CPU_ISA_V4], x86_64_v4);
}

const fsdp_kernels *fsdp_cpu_table(fsdp_cpu_isa isa)
{
    pthread_once(&built, build_tables);
    return &tables[isa];
}

const fsdp_cpu_panels *fsdp_cpu_panels_of(const fsdp_kernel_context *c)
{
    static const fsdp_cpu_panels *const panels[FSDP_CPU_ISA_COUNT] = {
        &fsdp_cpu_panels_x86_64, &fsdp_cpu_panels_x86_64_v3, &fsdp_cpu_panels_x86_64_v4};
    return panels[fsdp_kernel_context_isa(c)];
}
