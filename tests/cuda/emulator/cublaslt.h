/* The emulated cublasLtMatmul(), as its two files share it. */
#pragma once
#include <cublasLt.h>
#include <stdint.h>

namespace emu
{
struct matmul_desc { /* in cublasLtMatmulDescOpaque_t */
    cublasOperation_t trans_a, trans_b;
    cublasLtEpilogue_t epilogue;
    void *bias, *aux;
    int64_t aux_ld;
    int bias_type; /* a cudaDataType, or -1: the type of D */
    /* Factors of the result in device memory, or NULL. Only for float8 operands. */
    const float *a_scale, *b_scale;
    int8_t fast_accumulation;
};
struct matrix_layout { /* in cublasLtMatrixLayoutOpaque_t */
    cudaDataType type;
    uint64_t rows, columns;
    int64_t ld, stride; /* elements; stride is that of the batch */
    int32_t batch;
};

/* D = epilogue(alpha op(A) op(B) + beta C) */
struct matmul {
    matmul_desc desc;
    float alpha, beta;
    const void *a, *b, *c;
    void *d;
    matrix_layout a_layout, b_layout, c_layout, d_layout;
};

enum epilogue_bit { /* bits of cublasLtEpilogue_t, if it is less than 256 */
    RELU_BIT = 2,
    BIAS_BIT = 4,
    GELU_BIT = 32,
    AUX_BIT = 128
};
static_assert(CUBLASLT_EPILOGUE_RELU_BIAS == (RELU_BIT | BIAS_BIT) &&
                  CUBLASLT_EPILOGUE_GELU_AUX_BIAS == (GELU_BIT | AUX_BIT | BIAS_BIT),
              "the epilogues of forward are sets of bits");
static inline bool has_bit(cublasLtEpilogue_t epilogue, epilogue_bit bit)
{
    return epilogue < 256 && epilogue & bit;
}
static inline bool is_dgelu(cublasLtEpilogue_t epilogue)
{
    return epilogue == CUBLASLT_EPILOGUE_DGELU || epilogue == CUBLASLT_EPILOGUE_DGELU_BGRAD;
}

static inline bool is_float8(int type)
{
    return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2;
}
size_t bytes_of_type(int type); /* 0: not emulated */
void run_matmul(const matmul &m);
} // namespace emu
