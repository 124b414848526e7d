/* One matrix product on one thread: oneDNN's matmul primitives behind a bounded cache
 * (product_onednn.c), or plain loops in a build without it (product_plain.c). gemm_onednn.c and
 * attention cut their work into such products. */
#pragma once
#include "src/kernels/cpu/context.h"

/* C[m, n] = op(A) op(B) (+ C) (+ bias over n), m, n, k > 0. Fields have the same names as in
 * fsdp_gemm_args. A and B are f32, or bf16 if fsdp_cpu_multiplies_bf16(); C is f32 or has the dtype
 * of A and B. oneDNN is faster on a panel whose leading dimension equals its row length. */
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

/* Return the products of a context, which are created for its first operation. Each operation calls
 * this once, before its tasks. This calls fsdp_cpu_products_begin(): if there are too many
 * primitives, it frees those that have not been used for long. None is freed while tasks run. */
FSDP_MUST_CHECK fsdp_status fsdp_kernel_context_products(fsdp_kernel_context *c,
                                                         fsdp_cpu_products **products);
void fsdp_cpu_products_begin(fsdp_cpu_products *products);

/* Whether the CPU has AVX512-BF16 and DNNL_MAX_CPU_ISA does not forbid it. */
bool fsdp_cpu_has_bf16(void);
/* Whether oneDNN multiplies bf16 matrices directly. Without AVX512-BF16 (or if the context has a
 * lower ISA) they are widened first: oneDNN's emulation on plain AVX-512 reaches only 61 to 79
 * GFLOP/s, while products of f32 reach 200 to 217. */
bool fsdp_cpu_multiplies_bf16(const fsdp_kernel_context *c);
/* Returns false if DNNL_MAX_CPU_ISA forbids AMX or oneDNN does not find AMX. */
bool fsdp_cpu_may_use_amx(void);
/* Products of fewer rows than this go to oneDNN, because packing B would take longer than it saves.
 * Two kinds go to our tiles anyway. (1) Products for which AVX-512 tiles widen bf16, since oneDNN
 * would either widen it too or be slow (17 rows of 3072 x 768: our tiles take 1.3 ms, oneDNN 2.4
 * ms). (2) Products with AMX, for which our tiles are as fast as oneDNN (8 rows: 0.27 ms and 0.26
 * ms) and give a row the same bits in every batch. The value is 0 in builds without oneDNN. */
extern const int64_t fsdp_cpu_tiles_least_rows;

/* Compute one product. Several workers may call this at once. Fails with FSDP_ERR_NOMEM when out of
 * memory. */
FSDP_MUST_CHECK fsdp_status fsdp_cpu_product_run(fsdp_cpu_products *products, int worker,
                                                 const fsdp_cpu_product *shape, const void *a,
                                                 const void *b, void *c, const void *bias);

/* The first failure among the tasks of an operation. It has its own copy of the message, since
 * fsdp_last_error() returns the message only in the worker's thread. */
typedef struct fsdp_cpu_failure { /* zero-filled: none */
    _Atomic int taken;
    _Atomic int status;
    char message[256];
} fsdp_cpu_failure;

void fsdp_cpu_failure_note(fsdp_cpu_failure *failure, fsdp_status status); /* ignores FSDP_OK */
/* Return whether any task has failed, so that others can stop early. */
bool fsdp_cpu_failure_any(const fsdp_cpu_failure *failure);
/* Report the failure again, in this thread. Call this after the tasks. */
FSDP_MUST_CHECK fsdp_status fsdp_cpu_failure_raise(const fsdp_cpu_failure *failure);
