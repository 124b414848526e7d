/* Assembles one table of kernels per ISA out of the parts: each file of isa/ fills its own slots,
 * gemm.c and attention.c serve all ISAs and look at the context's. */
#include <pthread.h>

#include "src/kernels/cpu/isa/isa.h"
#include "src/kernels/cpu/table.h"

static fsdp_kernels tables[FSDP_CPU_ISA_COUNT]; /* constant once built */
static pthread_once_t built = PTHREAD_ONCE_INIT;

static void build_tables(void)
{
    tables[FSDP_CPU_ISA_V1].name = "cpu x86-64";
    tables[FSDP_CPU_ISA_V3].name = "cpu x86-64-v3";
    tables[FSDP_CPU_ISA_V4].name = "cpu x86-64-v4";
}

const fsdp_kernels *fsdp_cpu_table(fsdp_cpu_isa isa)
{
    pthread_once(&built, build_tables);
    return &tables[isa];
}
