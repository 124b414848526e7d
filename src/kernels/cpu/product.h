/* One matrix product on one thread: oneDNN's matmul primitives behind a bounded cache
 * (product_onednn.c), or plain loops in a build without it (product_plain.c). gemm_onednn.c and
 * attention cut their work into these. */
#pragma once
#include "src/kernels/cpu/context.h"

/* C[m, n] = op(A) op(B) (+ C) (+ bias over n), m, n, k > 0; names as in fsdp_gemm_args. A and B are
 * f32, or bf16 if fsdp_cpu_multiplies_bf16(); C is f32 or of their dtype. A panel whose leading
 * dimension equals its row length takes oneDNN's faster path. */
typedef struct fsdp_cpu_product {
    int64_t m, n, k;
    int64_t lda, ldb, ldc;
    fsdp_dtype ab_dtype, c_dtype;
    bool trans_a, trans_b;
    bool accumulate; /* C is added to the result */
    bool bias;       /* [n] of ab_dtype */
} fsdp_cpu_product;

typedef struct fsdp_cpu_products fsdp_cpu_products;

FSDP_MUST_CHECK fsdp_status fsdp_cpu_products_create(int workers, fsdp_cpu_products **products);
void fsdp_cpu_products_destroy(fsdp_cpu_products *products); /* accepts NULL */

/* The products of a context, created by its first operation. Each operation calls it once, before
 * its tasks. If there are too many primitives, it frees those that have not been used for long;
 * none is freed while tasks run. */
FSDP_MUST_CHECK fsdp_status fsdp_kernel_context_products(fsdp_kernel_context *c,
                                                         fsdp_cpu_products **products);
void fsdp_cpu_products_begin(fsdp_cpu_products *products);

/* Whether the CPU has AVX512-BF16 and DNNL_MAX_CPU_ISA does not forbid it. */
bool fsdp_cpu_has_bf16(void);
/* Whether oneDNN multiplies bf16 matrices directly. Without AVX512-BF16 (or if the context has a
 * lower ISA) they are widened first: oneDNN's emulation on plain AVX-512 reaches 61 to 79 GFLOP/s,
 * f32 200 to 217. */
bool fsdp_cpu_multiplies_bf16(const fsdp_kernel_context *c);
/* False if DNNL_MAX_CPU_ISA forbids AMX, or oneDNN does not find it. */
bool fsdp_cpu_may_use_amx(void);
/* Products of fewer rows than this go to oneDNN, because packing B does not pay off for them.
 * Exceptions go to our tiles: products for which AVX-512 tiles widen bf16, since oneDNN would widen
 * it too, or is slow (17 rows of 3072 x 768: our tiles take 1.3 ms, oneDNN 2.4 ms); and AMX, which
 * is as fast as oneDNN's (8 rows: 0.27 ms and 0.26 ms) and gives a row the same bits in every
 * batch. 0 in builds with plain loops alone. */
extern const int64_t fsdp_cpu_tiles_least_rows;

/* Several workers may call it at once. Can fail with FSDP_ERR_NOMEM. */
FSDP_MUST_CHECK fsdp_status fsdp_cpu_product_run(fsdp_cpu_products *products, int worker,
                                                 const fsdp_cpu_product *shape, const void *a,
                                                 const void *b, void *c, const void *bias);

/* The first failure among the tasks of an operation, with its message, which is otherwise only in
 * the worker's thread. */
typedef struct fsdp_cpu_failure { /* zero-filled: none */
    _Atomic int taken;
    _Atomic int status;
    char message[256];
} fsdp_cpu_failure;

void fsdp_cpu_failure_note(fsdp_cpu_failure *failure, fsdp_status status); /* ignores FSDP_OK */
bool fsdp_cpu_failure_any(const fsdp_cpu_failure *failure); /* lets the other tasks stop early */
/* After the tasks: raises the failure again in this thread. */
FSDP_MUST_CHECK fsdp_status fsdp_cpu_failure_raise(const fsdp_cpu_failure *failure);
