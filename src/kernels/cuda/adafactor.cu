/* The kernels of an Adafactor step; src/kernels/cpu/isa/optim.c explains the formulas. The Makefile
 * compiles this file with -fmad=false, so that products and sums are rounded separately, as on the
 * CPU. Column sums and the update have the same bits as on the CPU. Row sums are added in a
 * different order than on the CPU. */
#include "src/kernels/cuda/fours.cuh"
#include "src/kernels/cuda/row_sums.cuh"
#include "src/kernels/cuda/tree.cuh"

enum {
    THREADS = 256
};

/* --- moments --- */

FSDP_DEVICE double square_of(float grad, float grad_scale, float eps)
{
    const float g = grad * grad_scale;
    return (double)(g * g + eps);
}

struct squares {
    enum {
        N = 4
    };
    const float *grad;
    int64_t width;
    float grad_scale, eps;
    bool vectorizable;

    __device__ __forceinline__ void load(double (&terms)[N], int64_t row, int64_t column,
                                         int count) const
    {
        float g[N];
        const float *from = grad + row * width + column;
        if (vectorizable)
            load_four<true>(g, from, 0, count);
        else
            load_four<false>(g, from, 0, count);
        for (int e = 0; e < N; e++)
            terms[e] = e < count ? square_of(g[e], grad_scale, eps) : 0.0;
    }
    __device__ __forceinline__ double join(double a, double b) const
    {
        return a + b;
    }
};

extern "C" void fsdp_cuda_square_row_sums(fsdp_kernel_context *context, double *sums,
                                          const float *grad, int64_t rows, int64_t cols,
                                          float grad_scale, float eps)
{
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    const squares terms = {grad, cols, grad_scale, eps, is_vectorizable<float>(cols, grad)};
    start_row_sums(c, sums, terms, rows, cols);
    fsdp_cuda_launched(c, "square_row_sums");
}

enum {
    /* The number of rows that one thread adds up. The next kernel then adds up the sums of these
     * groups of rows. */
    TREE_ROWS = 64,
    TREE_THREADS = 128
};

/* The terms that the first kernel adds up: the squares of the gradient. */
struct square_terms {
    const float *grad;
    float grad_scale, eps;
    __device__ __forceinline__ double at(int64_t element) const
    {
        return square_of(grad[element], grad_scale, eps);
    }
};

/* The terms that each later kernel adds up: the sums that the previous kernel computed. */
struct sum_terms {
    const double *sums;
    __device__ __forceinline__ double at(int64_t element) const
    {
        return sums[element];
    }
};

/* Set sums[g, j] to the sum of the terms in rows [g TREE_ROWS, (g + 1) TREE_ROWS) of column j,
 * added pairwise in a binary tree. If there are no rows, set sums[0, j] to 0. */
template <typename TERMS>
static __global__ void __launch_bounds__(TREE_THREADS)
    sum_row_groups(double *sums, TERMS terms, int64_t rows, int64_t cols)
{
    const int64_t first = (int64_t)blockIdx.x * TREE_ROWS, step = (int64_t)gridDim.y * TREE_THREADS;
    for (int64_t j = (int64_t)blockIdx.y * TREE_THREADS + threadIdx.x; j < cols; j += step) {
        const double sum = tree_of<TREE_ROWS, double>(
            [&](int i) { return first + i < rows ? terms.at((first + i) * cols + j) : -0.0; });
        sums[blockIdx.x * cols + j] = rows ? sum : 0.0;
    }
}

template <typename TERMS>
static void start_row_groups(fsdp_cuda_context *c, double *sums, const TERMS &terms, int64_t rows,
                             int64_t cols)
{
    const dim3 grid(blocks_for(rows, TREE_ROWS, INT32_MAX),
                    blocks_for(cols, TREE_THREADS, 1 << 15));
    CUDA_LAUNCH((sum_row_groups<TERMS>), grid, TREE_THREADS, 0, fsdp_cuda_stream(c), sums, terms,
                rows, cols);
}

static int64_t row_groups(int64_t rows)
{
    return (rows + TREE_ROWS - 1) / TREE_ROWS;
}

/* Each kernel adds up groups of TREE_ROWS rows, and the next kernel does the same with the
 * resulting sums, until one row is left. The kernels write to the first and the second half of
 * `scratch` in turn, and the last kernel writes to `sums`. */
extern "C" void fsdp_cuda_square_column_sums(fsdp_kernel_context *context, double *sums,
                                             const float *grad, int64_t rows, int64_t cols,
                                             float grad_scale, float eps)
{
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    const int64_t groups = row_groups(rows), half = groups * cols;
    double *scratch = NULL;
    if (!cols)
        return;
    if (groups > 1) {
        const size_t bytes = (size_t)(half + row_groups(groups) * cols) * sizeof *sums;
        scratch = (double *)fsdp_cuda_scratch(c, bytes);
        if (!scratch)
            return;
    }
    start_row_groups(c, groups > 1 ? scratch : sums, square_terms{grad, grad_scale, eps}, rows,
                     cols);
    double *from = scratch;
    for (int64_t n = groups; n > 1; n = row_groups(n)) {
        double *to = n <= TREE_ROWS ? sums : from == scratch ? scratch + half : scratch;
        start_row_groups(c, to, sum_terms{from}, n, cols);
        from = to;
    }
    fsdp_cuda_launched(c, "square_column_sums");
}

static __global__ void average(float *average, const double *sums, double count, float keep,
                               float rest, int64_t n)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < n)
        average[i] = average[i] * keep + rest * (float)(sums[i] / count);
}

extern "C" void fsdp_cuda_moving_average(fsdp_kernel_context *context, float *values,
                                         const double *sums, double count, double beta, int64_t n)
{
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    if (!n)
        return;
    CUDA_LAUNCH(average, blocks_for(n, THREADS, INT32_MAX), THREADS, 0, fsdp_cuda_stream(c), values,
                sums, count, (float)beta, (float)(1.0 - beta), n);
    fsdp_cuda_launched(c, "moving_average");
}

static __global__ void reciprocal_sqrt(float *out, const float *x, float divisor, int64_t n)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < n)
        out[i] = 1.0f / sqrtf(x[i] / divisor);
}

extern "C" void fsdp_cuda_rsqrt(fsdp_kernel_context *context, float *out, const float *x,
                                float divisor, int64_t n)
{
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    if (!n)
        return;
    CUDA_LAUNCH(reciprocal_sqrt, blocks_for(n, THREADS, INT32_MAX), THREADS, 0, fsdp_cuda_stream(c),
                out, x, divisor, n);
    fsdp_cuda_launched(c, "rsqrt");
}

/* --- update --- */

struct update {
    int64_t rows, cols;
    const float *grad, *row_factor, *col_factor;
    void *param;
    float *exp_avg; /* NULL: no first moment */
    /* decay: -lr * weight_decay; rest1: 1 - beta1 */
    float grad_scale, divisor, lr, decay, beta1, rest1;
    /* true: rows of grad, col_factor and exp_avg are aligned for accesses of four elements */
    bool whole;
};

static update update_of(const fsdp_adafactor_args *a)
{
    update u;
    u.rows = a->rows;
    u.cols = a->cols;
    u.grad = a->grad;
    u.row_factor = a->row_factor;
    u.col_factor = a->col_factor;
    u.param = a->param;
    u.exp_avg = a->exp_avg;
    u.grad_scale = a->grad_scale;
    u.divisor = a->divisor;
    u.lr = (float)a->lr;
    u.decay = (float)-(a->weight_decay * a->lr);
    u.beta1 = (float)a->beta1;
    u.rest1 = (float)(1.0 - a->beta1);
    u.whole = a->cols % 4 == 0 && has_fours<float>(a->grad, a->col_factor, a->exp_avg);
    return u;
}

/* Compute columns [j, j + 4) of one row of the update before it is divided by `divisor`. Each
 * element is row_factor * col_factor * the scaled gradient. Elements in column `cols` and after it
 * are set to 0. */
template <bool WHOLE>
FSDP_DEVICE void load_update(float (&x)[4], const update &u, int64_t row, int64_t j)
{
    float g[4], factors[4];
    load_four<WHOLE>(g, u.grad + row * u.cols, j, u.cols);
    load_four<WHOLE>(factors, u.col_factor, j, u.cols);
    const float row_factor = u.row_factor[row];
    for (int e = 0; e < 4; e++)
        x[e] = j + e < u.cols ? row_factor * factors[e] * (g[e] * u.grad_scale) : 0.0f;
}

struct update_squares {
    enum {
        N = 4
    };
    update u;
    __device__ __forceinline__ void load(double (&terms)[N], int64_t row, int64_t column, int) const
    {
        float x[4];
        if (u.whole)
            load_update<true>(x, u, row, column);
        else
            load_update<false>(x, u, row, column);
        for (int e = 0; e < N; e++)
            terms[e] = (double)x[e] * (double)x[e];
    }
    __device__ __forceinline__ double join(double a, double b) const
    {
        return a + b;
    }
};

extern "C" void fsdp_cuda_adafactor_square_sums(fsdp_kernel_context *context, double *sums,
                                                const fsdp_adafactor_args *args)
{
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    start_row_sums(c, sums, update_squares{update_of(args)}, args->rows, args->cols);
    fsdp_cuda_launched(c, "adafactor_square_sums");
}

/* Each block of threads updates blockDim.y rows. In each group of blockDim.x * 4 columns of a row,
 * a thread updates four columns. */
template <typename T, bool WHOLE> static __global__ void __launch_bounds__(THREADS) apply(update u)
{
    const int64_t row = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= u.rows)
        return;
    const int64_t step = (int64_t)gridDim.y * blockDim.x * 4;
    T *param = (T *)u.param + row * u.cols;
    float *exp_avg = u.exp_avg ? u.exp_avg + row * u.cols : NULL;
    for (int64_t j = ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * 4; j < u.cols; j += step) {
        float x[4], p[4], m[4];
        load_update<WHOLE>(x, u, row, j);
        load_four<WHOLE>(p, param, j, u.cols);
        for (int e = 0; e < 4; e++)
            x[e] = x[e] / u.divisor * u.lr;
        if (exp_avg) {
            load_four<WHOLE>(m, exp_avg, j, u.cols);
            for (int e = 0; e < 4; e++)
                x[e] = m[e] * u.beta1 + u.rest1 * x[e];
            store_four<WHOLE>(exp_avg, x, j, u.cols);
        }
        for (int e = 0; e < 4; e++)
            p[e] = p[e] + u.decay * p[e] - x[e];
        store_four<WHOLE>(param, p, j, u.cols);
    }
}

extern "C" void fsdp_cuda_adafactor(fsdp_kernel_context *context, const fsdp_adafactor_args *args)
{
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    const update u = update_of(args);
    if (!u.rows || !u.cols)
        return;
    unsigned width = 8; /* number of threads that share a row */
    while (width < THREADS && width * 4 < u.cols)
        width *= 2;
    const dim3 block(width, THREADS / width);
    const dim3 grid(blocks_for(u.rows, (int)block.y, INT32_MAX),
                    blocks_for(u.cols, (int)width * 4, 1024));
    with_type(args->param_dtype, [&](auto zero) {
        typedef decltype(zero) T;
        if (u.whole && has_fours<T>(u.param))
            CUDA_LAUNCH((apply<T, true>), grid, block, 0, fsdp_cuda_stream(c), u);
        else
            CUDA_LAUNCH((apply<T, false>), grid, block, 0, fsdp_cuda_stream(c), u);
    });
    fsdp_cuda_launched(c, "adafactor");
}
