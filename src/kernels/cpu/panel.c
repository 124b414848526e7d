/* Returns the table of panel functions for a context's ISA. */
#include "src/kernels/cpu/panel.h"

#include "src/kernels/cpu/context.h"
#include "src/kernels/cpu/isa/isa.h"

const fsdp_cpu_panels *fsdp_cpu_panels_of(const fsdp_kernel_context *c)
{
    static const fsdp_cpu_panels *const panels[FSDP_CPU_ISA_COUNT] = {
        &fsdp_cpu_panels_x86_64, &fsdp_cpu_panels_x86_64_v3, &fsdp_cpu_panels_x86_64_v4};
    return panels[fsdp_kernel_context_isa(c)];
}
