/* Matrix products (GEMM) of any size, divided into tasks for the context's threads. If the CPU has
 * AVX2, our own tiles (tile.h) compute the products that are large enough, and few_rows.h computes
 * some of the products with few rows. oneDNN computes all other products. */
#pragma once
#include "src/kernels/cpu/context.h"

FSDP_MUST_CHECK fsdp_status fsdp_cpu_gemm(fsdp_kernel_context *c, const fsdp_gemm_args *args);

/* Multiply the values of float8 codes, which are bfloat16: see fsdp_float8_gemm_args. */
FSDP_MUST_CHECK fsdp_status fsdp_cpu_float8_gemm(fsdp_kernel_context *c,
                                                 const fsdp_float8_gemm_args *args);

/* Compute a GEMM in one of three ways. All three functions require m > 0 and n > 0.
 * fsdp_cpu_gemm_tiles() also requires k > 0 and a dtype for which fsdp_cpu_tiles_of() returns
 * tiles. fsdp_cpu_gemm_rows() requires m <= FSDP_FEW_ROWS, k > 0, trans_a false, and a dtype for
 * which fsdp_cpu_few_rows_of() returns a table. If pool is NULL, all tasks run on the calling
 * thread. */
FSDP_MUST_CHECK fsdp_status fsdp_cpu_gemm_onednn(fsdp_kernel_context *c, const fsdp_gemm_args *args,
                                                 fsdp_thread_pool *pool);
FSDP_MUST_CHECK fsdp_status fsdp_cpu_gemm_tiles(fsdp_kernel_context *c, const fsdp_gemm_args *args,
                                                fsdp_thread_pool *pool);
FSDP_MUST_CHECK fsdp_status fsdp_cpu_gemm_rows(fsdp_kernel_context *c, const fsdp_gemm_args *args,
                                               fsdp_thread_pool *pool);

static inline int64_t fsdp_gemm_min(int64_t x, int64_t y)
{
    return x < y ? x : y;
}

static inline int64_t fsdp_gemm_bytes(fsdp_dtype dtype, int64_t elements)
{
    return elements * (int64_t)fsdp_dtype_size(dtype);
}

/* Return the address of op(A)[row, k]. */
static inline const char *fsdp_gemm_a_at(const fsdp_gemm_args *g, int64_t row, int64_t k)
{
    int64_t element = g->trans_a ? k * g->lda + row : row * g->lda + k;
    return (const char *)g->a + fsdp_gemm_bytes(g->ab_dtype, element);
}

/* Return the address of op(B)[k, column]. */
static inline const char *fsdp_gemm_b_at(const fsdp_gemm_args *g, int64_t k, int64_t column)
{
    int64_t element = g->trans_b ? column * g->ldb + k : k * g->ldb + column;
    return (const char *)g->b + fsdp_gemm_bytes(g->ab_dtype, element);
}

/* Return the address of C[row, column]. */
static inline char *fsdp_gemm_c_at(const fsdp_gemm_args *g, int64_t row, int64_t column)
{
    return (char *)g->c + fsdp_gemm_bytes(g->c_dtype, row * g->ldc + column);
}

/* Return the address of the bias of a column; NULL if there is no bias. */
static inline const char *fsdp_gemm_bias_at(const fsdp_gemm_args *g, int64_t column)
{
    return g->bias ? (const char *)g->bias + fsdp_gemm_bytes(g->ab_dtype, column) : NULL;
}
