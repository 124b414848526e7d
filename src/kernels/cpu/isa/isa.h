/* Names of the functions and tables that src/kernels/cpu/isa exports. Each .c file of that folder
 * is compiled three times: for x86-64, x86-64-v3 and x86-64-v4. In each compilation, FSDP_ISA is
 * x86_64, x86_64_v3 or x86_64_v4, and FSDP_ISA_NAME is the name of the ISA as a string.
 * FSDP_ISA_NAME_OF appends FSDP_ISA to a name. Every name with external linkage is made in this
 * way, so that the names of the three compilations do not collide. Each function declared below
 * adds the kernels of one file to a table of kernels. */
#pragma once
#include "src/kernels/cpu/context.h"
#include "src/kernels/kernels.h"

#define FSDP_ISA_PASTE_(name, isa) name##_##isa
#define FSDP_ISA_PASTE(name, isa) FSDP_ISA_PASTE_(name, isa)
/* For example, fsdp_cpu_fill_norm becomes fsdp_cpu_fill_norm_x86_64_v3. */
#define FSDP_ISA_NAME_OF(name) FSDP_ISA_PASTE(name, FSDP_ISA)

#define FSDP_CPU_DECLARE_FILLS(isa)                                                                \
    void fsdp_cpu_fill_memory_##isa(fsdp_kernels *k);                                              \
    void fsdp_cpu_fill_halves_##isa(fsdp_kernels *k);                                              \
    void fsdp_cpu_fill_elementwise_##isa(fsdp_kernels *k);                                         \
    void fsdp_cpu_fill_norm_##isa(fsdp_kernels *k);                                                \
    void fsdp_cpu_fill_layer_norm_##isa(fsdp_kernels *k);                                          \
    void fsdp_cpu_fill_rope_##isa(fsdp_kernels *k);                                                \
    void fsdp_cpu_fill_rows_##isa(fsdp_kernels *k);                                                \
    void fsdp_cpu_fill_embedding_##isa(fsdp_kernels *k);                                           \
    void fsdp_cpu_fill_loss_##isa(fsdp_kernels *k);                                                \
    void fsdp_cpu_fill_optim_##isa(fsdp_kernels *k);                                               \
    void fsdp_cpu_fill_reduce_##isa(fsdp_kernels *k);                                              \
    void fsdp_cpu_fill_combine_##isa(fsdp_kernels *k);                                             \
    void fsdp_cpu_fill_clamp_infinite_##isa(fsdp_kernels *k);                                      \
    void fsdp_cpu_fill_float8_##isa(fsdp_kernels *k);                                              \
    void fsdp_cpu_fill_nf4_##isa(fsdp_kernels *k);                                                 \
    void fsdp_cpu_fill_magnitude_##isa(fsdp_kernels *k);

FSDP_CPU_DECLARE_FILLS(x86_64)
FSDP_CPU_DECLARE_FILLS(x86_64_v3)
FSDP_CPU_DECLARE_FILLS(x86_64_v4)
