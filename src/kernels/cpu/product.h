/* Computes one matrix product on one thread. product_onednn.c uses oneDNN's matmul primitives,
 * which it keeps in a cache of limited size. In builds without oneDNN, product_plain.c uses plain
 * loops. gemm_onednn.c and attention divide their work into such products. */
#pragma once
#include "src/kernels/cpu/context.h"

/* The shape of a product: C[m, n] = op(A) op(B) (+ C) (+ bias[n]), with m, n, k > 0. Fields have
 * the same names as in fsdp_gemm_args. A and B are f32. If fsdp_cpu_multiplies_bf16() returns true,
 * they may also be bf16. C is f32 or has the dtype of A and B. A leading dimension may be longer
 * than a row. But oneDNN is faster if the matrix is dense, that is, if the leading dimension is
 * equal to the length of a row. */
typedef struct fsdp_cpu_product {
    int64_t m, n, k;
    int64_t lda, ldb, ldc;
    fsdp_dtype ab_dtype, c_dtype;
    bool trans_a, trans_b;
    bool accumulate; /* add the previous C */
    bool bias;       /* add a bias [n] of ab_dtype */
} fsdp_cpu_product;

typedef struct fsdp_cpu_products fsdp_cpu_products;

FSDP_MUST_CHECK fsdp_status fsdp_cpu_products_create(int workers, fsdp_cpu_products **products);
void fsdp_cpu_products_destroy(fsdp_cpu_products *products); /* accepts NULL */

/* Set *products to the context's products. The first call creates them. This function calls
 * fsdp_cpu_products_begin(), which may free primitives. No primitive may be freed while tasks run,
 * so each operation calls this function once, before its tasks. */
FSDP_MUST_CHECK fsdp_status fsdp_kernel_context_products(fsdp_kernel_context *c,
                                                         fsdp_cpu_products **products);
/* If there are too many primitives, free those that have not been used recently. */
void fsdp_cpu_products_begin(fsdp_cpu_products *products);

/* Return true if the CPU has AVX512-BF16 and DNNL_MAX_CPU_ISA does not forbid it. */
bool fsdp_cpu_has_bf16(void);
/* Return true if oneDNN multiplies bf16 matrices directly. This needs a CPU with AVX512-BF16 and a
 * context whose ISA is x86-64-v4. In all other cases, bf16 is widened to f32 before oneDNN
 * multiplies it. oneDNN could also multiply bf16 on plain AVX-512, but it would emulate bf16 and
 * reach only 61 to 79 GFLOP/s, while products of f32 reach 200 to 217. */
bool fsdp_cpu_multiplies_bf16(const fsdp_kernel_context *c);
/* Return true if oneDNN may use AMX, that is, if the CPU has it and DNNL_MAX_CPU_ISA permits it.
 * Builds without oneDNN always return true. */
bool fsdp_cpu_may_use_amx(void);
/* oneDNN computes products with fewer rows than this, unless few_rows.h computes them. For fewer
 * rows than this, our tiles lose more time by packing B than they save. Two kinds of products are
 * exceptions and are always computed by our tiles. The first kind is products of bf16 that the
 * AVX-512 tiles widen. oneDNN would also widen bf16 or emulate it slowly: for 17 rows and a B of
 * 3072 x 768, our tiles take 1.3 ms and oneDNN takes 2.4 ms. The second kind is products with AMX,
 * for which our tiles are about as fast as oneDNN: for 8 rows, our tiles take 0.27 ms and oneDNN
 * takes 0.26 ms. In addition, our tiles compute the same bits for a row whatever other rows are in
 * the batch. In builds without oneDNN, the value is 0. */
extern const int64_t fsdp_cpu_tiles_least_rows;

/* Compute one product. Several workers may call this at the same time. Fails with FSDP_ERR_NOMEM
 * when out of memory. */
FSDP_MUST_CHECK fsdp_status fsdp_cpu_product_run(fsdp_cpu_products *products, int worker,
                                                 const fsdp_cpu_product *shape, const void *a,
                                                 const void *b, void *c, const void *bias);

/* The first failure among the tasks of an operation. It has its own copy of the message, because
 * fsdp_last_error() returns the message only in the thread of the worker that failed. */
typedef struct fsdp_cpu_failure { /* all bytes zero: no task has failed */
    _Atomic int taken;
    _Atomic int status;
    char message[256];
} fsdp_cpu_failure;

/* Record `status` as the failure, unless it is FSDP_OK or a failure is recorded already. */
void fsdp_cpu_failure_note(fsdp_cpu_failure *failure, fsdp_status status);
/* Return true if a task has failed, so that the other tasks can stop early. */
bool fsdp_cpu_failure_any(const fsdp_cpu_failure *failure);
/* If a task failed, copy its message to this thread's error message, and return the status of the
 * task. Otherwise return FSDP_OK. Call this after the tasks. */
FSDP_MUST_CHECK fsdp_status fsdp_cpu_failure_raise(const fsdp_cpu_failure *failure);
