/* Products of few rows, those of generation: what they take is reading B. A table for AVX2 and one
 * for AVX-512 (isa/few_rows.c).
 *
 * Note [Few rows]. B is read once and as it lies, each element widened in a register and multiplied
 * with every row of A. C is cut into tasks of so many columns that each thread has some. An element
 * of C sums over k in an order that its place does not change, so that a text's logits have the
 * same bits whatever else is in its batch. */
#pragma once
#include "src/kernels/cpu/context.h"

enum {
    FSDP_FEW_ROWS = 16 /* at most */
};

typedef struct fsdp_cpu_few_rows {
    /* Columns [column, column + columns) of C. `a`: scratch [m, fsdp_few_rows_ld(k)]; `c`: scratch
     * [m, columns rounded up to 16]. m > 0, k > 0, not trans_a. */
    void (*multiply)(const fsdp_gemm_args *args, int64_t column, int64_t columns, float *a,
                     float *c);
} fsdp_cpu_few_rows;

/* Rows of A lie a whole number of cache lines apart, an odd one: the first cache has room for few
 * places a multiple of 4096 bytes apart. */
static inline int64_t fsdp_few_rows_ld(int64_t k)
{
    return ((k + 15) / 16 | 1) * 16;
}

extern const fsdp_cpu_few_rows fsdp_cpu_few_rows_x86_64_v3;
extern const fsdp_cpu_few_rows fsdp_cpu_few_rows_x86_64_v4;

/* NULL where such products of this dtype are left to oneDNN: below AVX2, and with AVX-512 unless
 * they would be widened in memory first. */
const fsdp_cpu_few_rows *fsdp_cpu_few_rows_of(const fsdp_kernel_context *c, fsdp_dtype dtype);
