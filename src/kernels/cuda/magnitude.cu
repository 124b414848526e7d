/* Kernels of DoRA (Note [Magnitudes] in src/autograd/magnitude.h): they compute the norms of a
 * weight's rows, and the factors that scale these rows to other norms. They also multiply each
 * column of a matrix by a factor, and compute the gradient of these factors. The Makefile compiles
 * this file with -fmad=false, so results have the bits of the CPU. The exception is column_dots(),
 * whose results are sums over rows. */
#include "src/kernels/cuda/column_sums.cuh"

enum {
    THREADS = 256,
    COLUMN_THREADS = 32, /* threads of a block along a row; each has a chunk of columns */
    ROW_THREADS = THREADS / COLUMN_THREADS,
    MOST_ROW_BLOCKS = 1 << 12 /* maximum of gridDim.y, which divides the rows */
};

/* --- scale_columns --- */

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    scale_columns(T *y, const T *x, const float *factors, const T *bias, int64_t rows,
                  int64_t width, bool is_aligned)
{
    constexpr int N = vector_of<T>::N;
    const int64_t column = ((int64_t)blockIdx.x * COLUMN_THREADS + threadIdx.x) * N;
    float factor[N], added[N] = {0};
    if (column >= width)
        return;
    load_floats<N>(factor, factors, column, width, false);
    if (bias)
        load_floats<N>(added, bias, column, width, false);
    for (int64_t row = (int64_t)blockIdx.y * ROW_THREADS + threadIdx.y; row < rows;
         row += (int64_t)gridDim.y * ROW_THREADS) {
        float f[N];
        widen(f, load_chunk(x + row * width, column, width, is_aligned));
#pragma unroll
        for (int e = 0; e < N; e++)
            f[e] = bias ? f[e] * factor[e] + added[e] : f[e] * factor[e];
        store_chunk(y + row * width, column, width, narrow<T>(f), is_aligned);
    }
}

extern "C" void fsdp_cuda_scale_columns(fsdp_kernel_context *context, void *y, const void *x,
                                        fsdp_dtype dtype, const float *factors, const void *bias,
                                        int64_t rows, int64_t width)
{
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    if (!rows || !width)
        return;
    with_type(dtype, [&](auto zero) {
        typedef decltype(zero) T;
        const dim3 grid((unsigned)ceil_div(width, COLUMN_THREADS * vector_of<T>::N),
                        (unsigned)smaller(ceil_div(rows, ROW_THREADS), MOST_ROW_BLOCKS));
        CUDA_LAUNCH(scale_columns<T>, grid, dim3(COLUMN_THREADS, ROW_THREADS), 0,
                    fsdp_cuda_stream(c), (T *)y, (const T *)x, factors, (const T *)bias, rows,
                    width, is_vectorizable<T>(width, x, y));
    });
    fsdp_cuda_launched(c, "scale_columns");
}

/* --- column_dots --- */

/* The terms of column_dots(): elements of x times elements of y times the factors of the columns.
 */
template <typename T> struct dot_terms {
    static constexpr int N = vector_of<T>::N;
    const T *x, *y;
    const float *factors;
    int64_t width;
    bool is_aligned;
    __device__ void operator()(float *f, int64_t row, int64_t column) const
    {
        float of_y[N], factor[N];
        widen(f, load_chunk(x + row * width, column, width, is_aligned));
        widen(of_y, load_chunk(y + row * width, column, width, is_aligned));
        load_floats<N>(factor, factors, column, width, false);
#pragma unroll
        for (int e = 0; e < N; e++)
            f[e] = f[e] * of_y[e] * factor[e];
    }
};

extern "C" void fsdp_cuda_column_dots(fsdp_kernel_context *context, void *out, fsdp_dtype out_dtype,
                                      float beta, const void *x, const void *y, fsdp_dtype dtype,
                                      const float *factors, int64_t rows, int64_t width)
{
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    const column_outputs outputs = {{out}, {out_dtype}, {beta}};
    if (!width)
        return;
    with_type(dtype, [&](auto zero) {
        typedef decltype(zero) T;
        const dot_terms<T> terms = {(const T *)x, (const T *)y, factors, width,
                                    is_vectorizable<T>(width, x, y)};
        start_column_sums(c, outputs, terms, rows, width);
    });
    fsdp_cuda_launched(c, "column_dots");
}

/* --- norms and factors --- */

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    store_norms(float *norms, const double *squares, int64_t n)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
        norms[i] = to_float(from_float<T>((float)sqrt(squares[i])));
}

extern "C" void fsdp_cuda_norms_of_squares(fsdp_kernel_context *context, float *norms,
                                           const double *squares, fsdp_dtype dtype, int64_t n)
{
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    if (!n)
        return;
    with_type(dtype, [&](auto zero) {
        CUDA_LAUNCH(store_norms<decltype(zero)>, blocks_for(n, THREADS), THREADS, 0,
                    fsdp_cuda_stream(c), norms, squares, n);
    });
    fsdp_cuda_launched(c, "norms_of_squares");
}

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    store_factors(float *factors, float *reciprocals, const T *magnitudes, const float *norms,
                  int64_t n)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        const float norm = norms[i];
        factors[i] = norm == 0.0f ? 0.0f : to_float(magnitudes[i]) / norm;
        reciprocals[i] = norm == 0.0f ? 0.0f : 1.0f / norm;
    }
}

extern "C" void fsdp_cuda_magnitude_factors(fsdp_kernel_context *context, float *factors,
                                            float *reciprocals, const void *magnitudes,
                                            fsdp_dtype dtype, const float *norms, int64_t n)
{
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    if (!n)
        return;
    with_type(dtype, [&](auto zero) {
        typedef decltype(zero) T;
        CUDA_LAUNCH(store_factors<T>, blocks_for(n, THREADS), THREADS, 0, fsdp_cuda_stream(c),
                    factors, reciprocals, (const T *)magnitudes, norms, n);
    });
    fsdp_cuda_launched(c, "magnitude_factors");
}
