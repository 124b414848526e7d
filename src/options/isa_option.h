/* The help text of --isa, which several commands share. fsdp_kernels_cpu_open() describes the
 * values. */
#pragma once

#define FSDP_ISA_HELP                                                                              \
    "instruction set: x86-64, x86-64-v3 or x86-64-v4; x86-64-v4+amx, x86-64-v4+bf16, "             \
    "x86-64-v4+fma and x86-64-v4+onednn choose what multiplies matrices"
