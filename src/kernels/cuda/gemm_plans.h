/* A plan says how cublasLt computes a product: it contains cublasLt's descriptors and the
 * algorithm. A plan is made once for each shape and then kept. */
#pragma once
#include "src/kernels/cuda/cublaslt.h"
#include "src/kernels/kernels.h"

/* All plans of a context. */
typedef struct fsdp_gemm_plans fsdp_gemm_plans;
typedef struct fsdp_gemm_plan fsdp_gemm_plan;

/* What fsdp_gemm_args does not say about a product of float8 operands, whose codes have one byte
 * each. The ab_dtype of its fsdp_gemm_args is FSDP_DTYPE_U8. */
typedef struct fsdp_gemm_float8 {
    fsdp_float8_format a_format, b_format;
    /* true: the sums are multiplied by *a_reciprocal and *b_reciprocal before beta C is added. Both
     * are in memory of the device. fsdp_gemm_plans_find() ignores their addresses. */
    bool is_scaled;
    const float *a_reciprocal, *b_reciprocal;
} fsdp_gemm_float8;

enum {
    FSDP_GEMM_ALIGNMENT = 16, /* in bytes; larger alignments are treated like this one */
    /* The maximum number of plans. When it has been reached, all plans are removed before a new one
     * is made. */
    FSDP_GEMM_MOST_PLANS = 4096
};

/* Load cublasLt, and create an empty set of plans for the current device. `workspace_bytes` is the
 * largest workspace that a plan may use. */
FSDP_MUST_CHECK fsdp_status fsdp_gemm_plans_create(size_t workspace_bytes, fsdp_gemm_plans **out);
void fsdp_gemm_plans_destroy(fsdp_gemm_plans *plans); /* accepts NULL */
/* If `allow` is true, the factors of float32 products are rounded to TF32 (10 bits of mantissa).
 * Such products are several times as fast. Initially, TF32 is not allowed. */
void fsdp_gemm_plans_allow_tf32(fsdp_gemm_plans *plans, bool allow);

/* Set *out to the plan of this product. m, n and k must be positive. `float8` is NULL if the
 * operands are not float8. If the product has no plan yet, make one. The plan is valid until the
 * next call with the same `plans`. Fails with FSDP_ERR_UNSUPPORTED if cublasLt has no algorithm for
 * the product. */
FSDP_MUST_CHECK fsdp_status fsdp_gemm_plans_find(fsdp_gemm_plans *plans, const fsdp_gemm_args *args,
                                                 const fsdp_gemm_float8 *float8,
                                                 const fsdp_gemm_plan **out);
/* Return the size of the workspace that the plan needs, in bytes. */
size_t fsdp_gemm_plan_workspace(const fsdp_gemm_plan *plan);
/* Return true if the plan adds args->bias. If it returns false, the plan ignores args->bias. */
bool fsdp_gemm_plan_has_bias(const fsdp_gemm_plan *plan);
/* Start the product for which the plan was made, with the pointers of `args` and `float8`, and with
 * `beta` instead of args->beta. */
FSDP_MUST_CHECK fsdp_status fsdp_gemm_plan_start(const fsdp_gemm_plans *plans,
                                                 const fsdp_gemm_plan *plan,
                                                 const fsdp_gemm_args *args,
                                                 const fsdp_gemm_float8 *float8, float beta,
                                                 void *workspace, cudaStream_t stream);
