/* Packs blocks of matrices into panels. A panel is a dense, zero-padded copy in scratch, in the
 * dtype in which the product is computed. There is one table of functions per ISA (isa/panel.c). */
#pragma once
#include "src/kernels/cpu/context.h"

typedef struct fsdp_cpu_panels {
    /* Copy src [rows, columns] with leading dimension ld to the upper left part of dst [dst_rows,
     * dst_columns], which is dense. Set the rest of dst to zero. `from` is a float dtype; `to` is
     * `from` or f32. */
    void (*pack)(void *dst, fsdp_dtype to, int64_t dst_rows, int64_t dst_columns, const void *src,
                 fsdp_dtype from, int64_t ld, int64_t rows, int64_t columns);
    /* Copy the upper left part of src to dst [rows, columns], which has leading dimension ld. src
     * is dense and has src_columns columns. `from` is `to` or f32. */
    void (*unpack)(void *dst, fsdp_dtype to, int64_t ld, const void *src, fsdp_dtype from,
                   int64_t src_columns, int64_t rows, int64_t columns);
} fsdp_cpu_panels;

extern const fsdp_cpu_panels fsdp_cpu_panels_x86_64;
extern const fsdp_cpu_panels fsdp_cpu_panels_x86_64_v3;
extern const fsdp_cpu_panels fsdp_cpu_panels_x86_64_v4;

const fsdp_cpu_panels *fsdp_cpu_panels_of(const fsdp_kernel_context *c);
