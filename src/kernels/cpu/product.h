/* One matrix product on one thread: oneDNN's matmul primitives behind a bounded cache
 * (product_onednn.c), or plain loops in a build without it (product_plain.c). gemm_onednn.c and
 * attention cut their work into these. */
#pragma once
#include "src/kernels/cpu/context.h"

/* C[m, n] = op(A) op(B) (+ C) (+ bias over n), m, n, k > 0; names as in fsdp_gemm_args. A and B
 * are f32, or bf16 where fsdp_cpu_multiplies_bf16; C is f32 or of their dtype. A panel whose
 * leading dimension equals its row length takes oneDNN's faster path. */
typedef struct fsdp_cpu_product {
    int64_t m, n, k;
    int64_t lda, ldb, ldc;
    fsdp_dtype ab_dtype, c_dtype;
    bool trans_a, trans_b;
    bool accumulate; /* C is added to */
    bool bias;       /* [n] of ab_dtype */
} fsdp_cpu_product;

typedef struct fsdp_cpu_products fsdp_cpu_products;

FSDP_MUST_CHECK fsdp_status fsdp_cpu_products_create(int workers, fsdp_cpu_products **products);
void fsdp_cpu_products_destroy(fsdp_cpu_products *products); /* accepts NULL */

/* Those of a context, made by its first operation and ready for the next: called once by each
 * operation, before its tasks. Forgets primitives that were not used for long if there are too
 * many; none is forgotten while tasks run. */
FSDP_MUST_CHECK fsdp_status fsdp_kernel_context_products(fsdp_kernel_context *c,
                                                         fsdp_cpu_products **products);
void fsdp_cpu_products_begin(fsdp_cpu_products *products);

/* AVX512-BF16, unless DNNL_MAX_CPU_ISA forbids it? */
bool fsdp_cpu_has_bf16(void);
/* Does oneDNN multiply bf16 matrices as they are? Without AVX512-BF16 (or with a lower ISA of the
 * context's) they are widened first: its emulation on plain AVX-512 runs at 61 to 79 GFLOP/s where
 * f32 reaches 200 to 217. */
bool fsdp_cpu_multiplies_bf16(const fsdp_kernel_context *c);
/* False where DNNL_MAX_CPU_ISA forbids AMX, or oneDNN does not find it. */
bool fsdp_cpu_may_use_amx(void);
/* A product of fewer rows than these is not left to our tiles: with oneDNN, it does not pay for
 * packing B, unless AVX-512's tiles widen bf16, which oneDNN would, too, or multiplies slowly (17
 * rows of 3072 x 768: 1.3 ms against 2.4), or multiply it with AMX: that is as fast as oneDNN's (8
 * rows: 0.27 ms and 0.26), and a row's bits are the same in every batch. 0 where there are plain
 * loops alone. */
extern const int64_t fsdp_cpu_tiles_least_rows;

/* May be called by several workers at once. FSDP_ERR_NOMEM. */
FSDP_MUST_CHECK fsdp_status fsdp_cpu_product_run(fsdp_cpu_products *products, int worker,
                                                 const fsdp_cpu_product *shape, const void *a,
                                                 const void *b, void *c, const void *bias);

/* The first failure among the tasks of an operation, with its message, which would otherwise stay
 * in the worker's thread. */
typedef struct fsdp_cpu_failure { /* zero-filled: none */
    _Atomic int taken;
    _Atomic int status;
    char message[256];
} fsdp_cpu_failure;

void fsdp_cpu_failure_note(fsdp_cpu_failure *failure, fsdp_status status); /* ignores FSDP_OK */
bool fsdp_cpu_failure_any(const fsdp_cpu_failure *failure); /* lets the other tasks give up */
/* After the tasks: raises it again in this thread. */
FSDP_MUST_CHECK fsdp_status fsdp_cpu_failure_raise(const fsdp_cpu_failure *failure);
