/* Packs blocks of matrices into panels. A panel is a dense, zero-padded copy of a block in scratch
 * memory, in the dtype in which the product is computed. There is one table of functions per ISA
 * (isa/panel.c). */
#pragma once
#include "src/kernels/cpu/context.h"

typedef struct fsdp_cpu_panels {
    /* Copy src [rows, columns] with leading dimension ld to the upper left part of the panel dst
     * [dst_rows, dst_columns]. Set the rest of the panel to zero. The panel is dense. The dtype
     * `from` of src is f32, bf16 or f16. The dtype `to` of the panel is `from` or f32. */
    void (*pack)(void *dst, fsdp_dtype to, int64_t dst_rows, int64_t dst_columns, const void *src,
                 fsdp_dtype from, int64_t ld, int64_t rows, int64_t columns);
    /* Copy the upper left part of the panel src to dst [rows, columns], which has leading dimension
     * ld. The panel is dense and has src_columns columns. The dtype `to` of dst is f32, bf16 or
     * f16. The dtype `from` of the panel is `to` or f32. */
    void (*unpack)(void *dst, fsdp_dtype to, int64_t ld, const void *src, fsdp_dtype from,
                   int64_t src_columns, int64_t rows, int64_t columns);
} fsdp_cpu_panels;

extern const fsdp_cpu_panels fsdp_cpu_panels_x86_64;
extern const fsdp_cpu_panels fsdp_cpu_panels_x86_64_v3;
extern const fsdp_cpu_panels fsdp_cpu_panels_x86_64_v4;

const fsdp_cpu_panels *fsdp_cpu_panels_of(const fsdp_kernel_context *c);
