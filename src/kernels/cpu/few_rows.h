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

/* C [rows, columns] = A op(B). */
typedef struct fsdp_few_rows {
    int64_t rows, columns, k; /* k > 0 */
    const float *a;           /* [rows, k] */
    int64_t a_ld;
    const char *b; /* rows of k if trans_b, else of columns */
    fsdp_dtype b_dtype;
    bool trans_b;
    int64_t b_row; /* bytes from one of its rows to the next */
    float *c; /* [rows, columns rounded up to 16], of which what is beyond columns is undefined */
    int64_t c_ld;
} fsdp_few_rows;

typedef struct fsdp_cpu_few_rows {
    void (*multiply)(const fsdp_few_rows *product);
    /* A GEMM's A in float32, rows a_ld apart; not trans_a. */
    void (*widen_a)(const fsdp_gemm_args *args, float *a, int64_t a_ld);
    /* C's columns from `column` on, of a GEMM: the product, and what is added. */
    void (*finish)(const fsdp_gemm_args *args, int64_t column, const fsdp_few_rows *product);
} fsdp_cpu_few_rows;

/* Rows of A lie a whole number of cache lines apart, an odd one: the first cache has room for few
 * places a multiple of 4096 bytes apart. */
static inline int64_t fsdp_few_rows_ld(int64_t k)
{
    return ((k + 15) / 16 | 1) * 16;
}

extern const fsdp_cpu_few_rows fsdp_cpu_few_rows_x86_64_v3;
extern const fsdp_cpu_few_rows fsdp_cpu_few_rows_x86_64_v4;

/* The ISA's, NULL below AVX2. */
const fsdp_cpu_few_rows *fsdp_cpu_few_rows_of_isa(const fsdp_kernel_context *c);
/* The same for a GEMM, NULL where such products of this dtype go another way: below AVX2, and with
 * AVX-512 unless they would be widened in memory first, to oneDNN; bf16 with AMX to its tiles. */
const fsdp_cpu_few_rows *fsdp_cpu_few_rows_of(const fsdp_kernel_context *c, fsdp_dtype dtype);
