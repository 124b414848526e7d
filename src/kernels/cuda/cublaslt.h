/* The functions of cublasLt that gemm uses. The library is loaded when a device is opened, so that
 * programs start on machines that do not have it. */
#pragma once
#include <cublasLt.h>

#include <fsdp/base.h>

#define FSDP_CUBLASLT_FUNCTIONS(F)                                                                 \
    F(Create)                                                                                      \
    F(Destroy)                                                                                     \
    F(GetStatusString)                                                                             \
    F(MatmulDescCreate)                                                                            \
    F(MatmulDescDestroy)                                                                           \
    F(MatmulDescSetAttribute)                                                                      \
    F(MatrixLayoutCreate)                                                                          \
    F(MatrixLayoutDestroy)                                                                         \
    F(MatmulPreferenceCreate)                                                                      \
    F(MatmulPreferenceDestroy)                                                                     \
    F(MatmulPreferenceSetAttribute)                                                                \
    F(MatmulAlgoGetHeuristic)                                                                      \
    F(Matmul)

/* The functions of cublasLt: for example, the field Matmul points to cublasLtMatmul(). */
typedef struct fsdp_cublaslt {
#define FSDP_CUBLASLT_FIELD(name) __typeof__(cublasLt##name) *name;
    FSDP_CUBLASLT_FUNCTIONS(FSDP_CUBLASLT_FIELD)
#undef FSDP_CUBLASLT_FIELD
} fsdp_cublaslt;

/* Load cublasLt. Fails with FSDP_ERR_UNSUPPORTED if the library is not found; the message says
 * which package contains it. The library is never unloaded. */
FSDP_MUST_CHECK fsdp_status fsdp_cublaslt_load(fsdp_cublaslt *lt);
