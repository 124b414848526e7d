/* The computation of cublasLtMatmul() on plain loops: column-major matrices with strides and
 * batches, f32 sums with k in order. */
#include <math.h>
#include <algorithm>
#include <vector>

#include "check.h"
#include "cublaslt.h"
#include "emu.h"
#include "src/base/float8.h"

namespace emu
{
size_t bytes_of_type(int type)
{
    return type == CUDA_R_32F                          ? 4
           : type == CUDA_R_16BF || type == CUDA_R_16F ? 2
           : is_float8(type)                           ? 1
                                                       : 0;
}

static float load(const void *p, int64_t i, int type)
{
    if (type == CUDA_R_32F)
        return ((const float *)p)[i];
    if (is_float8(type))
        return fsdp_f32_from_float8(type == CUDA_R_8F_E4M3 ? FSDP_FLOAT8_E4M3FN : FSDP_FLOAT8_E5M2,
                                    ((const uint8_t *)p)[i]);
    return type == CUDA_R_16BF ? __bfloat162float(((const __nv_bfloat16 *)p)[i])
                               : __half2float(((const __half *)p)[i]);
}

static void store(void *p, int64_t i, int type, float x)
{
    if (type == CUDA_R_32F)
        ((float *)p)[i] = x;
    else if (type == CUDA_R_16BF)
        ((__nv_bfloat16 *)p)[i] = __float2bfloat16(x);
    else
        ((__half *)p)[i] = __float2half(x);
}

static void *element_at(const void *p, int64_t i, int type)
{
    return (char *)p + i * (int64_t)bytes_of_type(type);
}

static void touch_matrix(const void *p, const matrix_layout &l, int batch, int flags)
{
    for (int64_t column = 0; column < (int64_t)l.columns; column++)
        touch(element_at(p, batch * l.stride + column * l.ld, l.type),
              l.rows * bytes_of_type(l.type), flags);
}

/* Return an n x k matrix of floats, in which k is contiguous. */
static std::vector<float> unpack(const void *p, const matrix_layout &l, int batch, bool rows_are_k,
                                 int64_t n, int64_t k)
{
    std::vector<float> x((size_t)(n * k));
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < k; j++)
            x[(size_t)(i * k + j)] =
                load(p, batch * l.stride + (rows_are_k ? j + i * l.ld : i + j * l.ld), l.type);
    return x;
}

static float gelu_tanh(float x)
{
    return tanhf(0.7978845608f * (x + 0.044715f * x * x * x));
}

static float gelu(float x)
{
    return 0.5f * x * (1 + gelu_tanh(x));
}

static float gelu_gradient(float x)
{
    const float t = gelu_tanh(x);
    return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * 0.7978845608f * (1 + 3 * 0.044715f * x * x);
}

static int bias_type(const matmul &m)
{
    return m.desc.bias_type >= 0 ? m.desc.bias_type : m.d_layout.type;
}

/* Apply the epilogue to element i of a column. aux is the column's auxiliary data. */
static float apply_epilogue(const matmul &m, float x, int64_t i, void *aux)
{
    const cublasLtEpilogue_t e = m.desc.epilogue;
    if (is_dgelu(e))
        return x * gelu_gradient(load(aux, i, m.d_layout.type));
    if (has_bit(e, BIAS_BIT))
        x += load(m.desc.bias, i, bias_type(m));
    if (has_bit(e, AUX_BIT))
        store(aux, i, m.d_layout.type, x);
    if (has_bit(e, GELU_BIT))
        x = gelu(x);
    if (has_bit(e, RELU_BIT))
        x = x > 0 ? x : 0;
    return x;
}

static float scale_at(const float *scale)
{
    if (!scale)
        return 1.0f;
    touch(scale, sizeof *scale, READ);
    return *scale;
}

/* Store a column of D. `products` has the sums over k; `sums` gets the values added. */
static void store_column(const matmul &m, int batch, int64_t column,
                         const std::vector<float> &products, std::vector<float> &sums)
{
    const matrix_layout &d = m.d_layout, &c = m.c_layout;
    const int64_t at = batch * d.stride + column * d.ld;
    const size_t bytes = d.rows * bytes_of_type(d.type);
    void *aux = element_at(m.desc.aux, column * m.desc.aux_ld, d.type);
    touch(element_at(m.d, at, d.type), bytes, WRITE);
    if (is_dgelu(m.desc.epilogue) || has_bit(m.desc.epilogue, AUX_BIT))
        touch(aux, bytes, is_dgelu(m.desc.epilogue) ? READ : WRITE);
    const float factor = m.alpha * scale_at(m.desc.a_scale) * scale_at(m.desc.b_scale);
    for (int64_t i = 0; i < (int64_t)d.rows; i++) {
        float x = factor * products[(size_t)i];
        if (m.beta != 0)
            x += m.beta * load(m.c, batch * c.stride + column * c.ld + i, c.type);
        x = apply_epilogue(m, x, i, aux);
        sums[(size_t)i] += x;
        store(m.d, at + i, d.type, x);
    }
}

/* Sums over k of the n rows of A or B. */
static std::vector<float> row_sums(const std::vector<float> &x, int64_t n, int64_t k)
{
    std::vector<float> sums((size_t)n, 0.0f);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < k; j++)
            sums[(size_t)i] += x[(size_t)(i * k + j)];
    return sums;
}

static void store_bias_gradient(const matmul &m, const std::vector<float> &sums)
{
    touch(m.desc.bias, sums.size() * bytes_of_type(bias_type(m)), WRITE);
    for (size_t i = 0; i < sums.size(); i++)
        store(m.desc.bias, (int64_t)i, bias_type(m), sums[i]);
}

static void run_batch(const matmul &m, int batch)
{
    const matrix_layout &a_layout = m.a_layout;
    const bool a_is_plain = m.desc.trans_a == CUBLAS_OP_N,
               b_is_plain = m.desc.trans_b == CUBLAS_OP_N;
    const int64_t rows = (int64_t)m.d_layout.rows, columns = (int64_t)m.d_layout.columns;
    const int64_t depth = (int64_t)(a_is_plain ? a_layout.columns : a_layout.rows);
    touch_matrix(m.a, m.a_layout, batch, READ);
    touch_matrix(m.b, m.b_layout, batch, READ);
    if (m.beta != 0)
        touch_matrix(m.c, m.c_layout, batch, READ);
    if (has_bit(m.desc.epilogue, BIAS_BIT))
        touch(m.desc.bias, (size_t)rows * bytes_of_type(bias_type(m)), READ);
    const std::vector<float> a = unpack(m.a, m.a_layout, batch, !a_is_plain, rows, depth);
    const std::vector<float> b = unpack(m.b, m.b_layout, batch, b_is_plain, columns, depth);
    /* The innermost loop is over rows. */
    std::vector<float> a_columns(a.size());
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < depth; k++)
            a_columns[(size_t)(k * rows + i)] = a[(size_t)(i * depth + k)];
    std::vector<float> products((size_t)rows), sums((size_t)rows, 0.0f);
    for (int64_t column = 0; column < columns; column++) {
        std::fill(products.begin(), products.end(), 0.0f);
        for (int64_t k = 0; k < depth; k++) {
            const float factor = b[(size_t)(column * depth + k)];
            const float *x = a_columns.data() + k * rows;
            for (int64_t i = 0; i < rows; i++)
                products[(size_t)i] += x[i] * factor;
        }
        store_column(m, batch, column, products, sums);
    }
    if (m.desc.epilogue == CUBLASLT_EPILOGUE_BGRADA)
        store_bias_gradient(m, row_sums(a, rows, depth));
    else if (m.desc.epilogue == CUBLASLT_EPILOGUE_BGRADB)
        store_bias_gradient(m, row_sums(b, columns, depth));
    else if (m.desc.epilogue == CUBLASLT_EPILOGUE_DGELU_BGRAD)
        store_bias_gradient(m, sums);
}

void run_matmul(const matmul &m)
{
    for (int batch = 0; batch < m.d_layout.batch; batch++)
        run_batch(m, batch);
}
} // namespace emu
