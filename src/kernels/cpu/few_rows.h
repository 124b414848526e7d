/* Matrix products C = A op(B) in which A has few rows, as in generation. Such a product spends
 * nearly all of its time reading B from memory. There is one table of functions for AVX2 and one
 * for AVX-512 (isa/few_rows.c).
 *
 * Note [Few rows]. B is read once, in place. Each element of B is converted to f32 in a register
 * and multiplied with every row of A. Each task computes some columns of C. There are enough tasks
 * for all threads, unless C has too few columns. The order in which the products of an element of C
 * are summed over k does not depend on where the element is in C. So the logits of a text have the
 * same bits whatever other texts are in its batch. */
#pragma once
#include "src/kernels/cpu/context.h"

enum {
    FSDP_FEW_ROWS = 16 /* maximum number of rows of A */
};

/* One product: C [rows, columns] = A op(B). */
typedef struct fsdp_few_rows {
    int64_t rows, columns, k; /* k > 0 */
    const float *a;           /* [rows, k] */
    int64_t a_ld;
    const char *b; /* if trans_b is true, rows of k elements, otherwise rows of `columns`
                    * elements */
    fsdp_dtype b_dtype;
    bool trans_b;
    int64_t b_row; /* bytes from one row of b to the next */
    float *c;      /* [rows, columns rounded up to 16]; undefined beyond `columns` */
    int64_t c_ld;
} fsdp_few_rows;

typedef struct fsdp_cpu_few_rows {
    void (*multiply)(const fsdp_few_rows *product);
    /* Copy the matrix A of a GEMM to `a`, converted to float32. The rows of `a` are a_ld elements
     * apart. trans_a must be false. */
    void (*widen_a)(const fsdp_gemm_args *args, float *a, int64_t a_ld);
    /* `product` has computed columns [column, column + product->columns) of a GEMM. Finish these
     * columns: copy product->c to the GEMM's C, and add the GEMM's bias. If the GEMM's beta is 1,
     * also add the previous values of C. */
    void (*finish)(const fsdp_gemm_args *args, int64_t column, const fsdp_few_rows *product);
} fsdp_cpu_few_rows;

/* Return the row stride of A, in elements. The stride is an odd number of cache lines. Otherwise
 * the distances between many rows could be multiples of 4096 bytes, and the first-level cache can
 * keep only a few lines with such distances. */
static inline int64_t fsdp_few_rows_ld(int64_t k)
{
    return ((k + 15) / 16 | 1) * 16;
}

extern const fsdp_cpu_few_rows fsdp_cpu_few_rows_x86_64_v3;
extern const fsdp_cpu_few_rows fsdp_cpu_few_rows_x86_64_v4;

/* Return the table for the context's ISA, or NULL if the ISA is below x86-64-v3 (AVX2). */
const fsdp_cpu_few_rows *fsdp_cpu_few_rows_of_isa(const fsdp_kernel_context *c);
/* Return the table for GEMMs of few rows with this dtype. Return NULL if other code computes such
 * GEMMs. There are three such cases: the ISA is below AVX2; the multiplier is oneDNN; or the ISA
 * has AVX-512 and our tiles multiply this dtype without widening it. */
const fsdp_cpu_few_rows *fsdp_cpu_few_rows_of(const fsdp_kernel_context *c, fsdp_dtype dtype);
