/* RMSNorm and LayerNorm. With n = (x - mean) rstd and g = dy w, LayerNorm computes y = n w + bias
 * and dx = rstd (g - mean(g) - n mean(g n)). RMSNorm uses these formulas without bias, and with 0
 * in place of mean and mean(g). The template argument LAYER chooses LayerNorm. See Note [Chunks] in
 * row_access.cuh. */
#pragma once
#include "src/kernels/cuda/column_sums.cuh"

/* --- forward --- */

typedef struct norm_forward {
    void *y; /* NULL: only mean and rstd are computed */
    float *mean, *rstd;
    const void *x, *w, *bias;
    fsdp_dtype w_dtype;
    int64_t rows, width;
    float eps;
    bool is_aligned, w_is_aligned;
} norm_forward;

enum {
    NORM_CHUNKS = 4,    /* maximum number of chunks of its row that a thread keeps in registers */
    NORM_MOST = 1024,   /* maximum number of threads for one row */
    NORM_BLOCK_ROWS = 4 /* number of rows in a block if one warp is enough for each row */
};

/* Write one chunk of y. */
template <typename T, bool LAYER, typename W>
FSDP_DEVICE void store_normalized(const norm_forward &a, const W &weights, int64_t row, int64_t i,
                                  const vector_of<T> &x, float mean, float rstd, bool is_aligned)
{
    constexpr int N = vector_of<T>::N;
    float f[N], w[N];
    widen(f, x);
    weights.template load<N>(w, a.w, i);
#pragma unroll
    for (int e = 0; e < N; e++)
        f[e] = (LAYER ? f[e] - mean : f[e]) * rstd * w[e];
    if (LAYER && a.bias) {
        weights.template load<N>(w, a.bias, i);
#pragma unroll
        for (int e = 0; e < N; e++)
            f[e] += w[e];
    }
    store_chunk((T *)a.y + row * a.width, i, a.width, narrow<T>(f), is_aligned);
}

/* Each row is computed by blockDim.x threads. These threads are one warp if the block has several
 * rows; otherwise they are the whole block. If KEPT is true, the row is aligned and is kept in
 * registers. Otherwise the row is read from memory each time it is needed. */
template <typename T, bool LAYER, bool KEPT>
static __global__ void __launch_bounds__(NORM_MOST) norm_forward_kernel(norm_forward a)
{
    constexpr int N = vector_of<T>::N;
    SHARED(float, mean_sums, [WARP]);
    SHARED(float, square_sums, [WARP]);
    const int64_t row = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= a.rows)
        return;
    const T *x = (const T *)a.x + row * a.width;
    const int64_t first = (int64_t)threadIdx.x * N, step = (int64_t)blockDim.x * N;
    const bool is_aligned = KEPT || a.is_aligned;
    const int chunks = KEPT ? NORM_CHUNKS : (int)((a.width + step - 1) / step);
    vector_of<T> kept[NORM_CHUNKS];
    auto load = [&](int k) { return load_chunk(x, first + k * step, a.width, is_aligned); };
#pragma unroll
    for (int k = 0; k < NORM_CHUNKS; k++)
        kept[k] = KEPT ? load(k) : vector_of<T>();
    auto chunk = [&](int k) { return KEPT ? kept[KEPT ? k : 0] : load(k); };
    float mean = 0, sum = 0, f[N];
    if (LAYER) {
#pragma unroll
        for (int k = 0; k < chunks; k++) {
            widen(f, chunk(k));
#pragma unroll
            for (int e = 0; e < N; e++)
                sum += f[e];
        }
        mean = row_sum(sum, mean_sums) / (float)a.width;
        sum = 0;
    }
#pragma unroll
    for (int k = 0; k < chunks; k++) {
        widen(f, chunk(k));
#pragma unroll
        for (int e = 0; e < N; e++)
            if (first + k * step + (KEPT ? 0 : e) < a.width)
                sum += (f[e] - mean) * (f[e] - mean);
    }
    const float rstd = 1.0f / sqrtf(row_sum(sum, square_sums) / (float)a.width + a.eps);
    if (threadIdx.x == 0) {
        a.rstd[row] = rstd;
        if (LAYER)
            a.mean[row] = mean;
    }
    if (!a.y)
        return;
    with_weights<T>(a.w_dtype, KEPT && a.w_is_aligned, a.width, [&](auto weights) {
#pragma unroll
        for (int k = 0; k < chunks; k++)
            if (first + k * step < a.width)
                store_normalized<T, LAYER>(a, weights, row, first + k * step, chunk(k), mean, rstd,
                                           is_aligned);
    });
}

template <bool LAYER>
static inline void start_norm_forward(fsdp_cuda_context *c, norm_forward a, fsdp_dtype dtype)
{
    with_type(dtype, [&](auto zero) {
        typedef decltype(zero) T;
        const int64_t chunks = ceil_div(a.width, vector_of<T>::N);
        a.is_aligned = is_vectorizable<T>(a.width, a.x, a.y);
        a.w_is_aligned = is_aligned_16(a.w) && is_aligned_16(a.bias);
        dim3 block(WARP, NORM_BLOCK_ROWS);
        if (chunks > WARP * NORM_CHUNKS)
            block = dim3(warps_of(smaller(ceil_div(chunks, NORM_CHUNKS), NORM_MOST)));
        const unsigned grid = (unsigned)ceil_div(a.rows, block.y);
        if (a.is_aligned && chunks <= NORM_MOST * NORM_CHUNKS)
            CUDA_LAUNCH((norm_forward_kernel<T, LAYER, true>), grid, block, 0, fsdp_cuda_stream(c),
                        a);
        else
            CUDA_LAUNCH((norm_forward_kernel<T, LAYER, false>), grid, block, 0, fsdp_cuda_stream(c),
                        a);
    });
}

/* --- backward --- */

typedef struct norm_backward {
    void *dx; /* NULL: dx is not computed */
    const void *dy, *x, *w;
    const float *mean, *rstd;
    fsdp_dtype w_dtype;
    int64_t rows, width;
    float *parts; /* [gridDim.x, LAYER ? 2 : 1, width]; partial sums of dw and dbias; NULL: dw and
                   * dbias are not computed */
    bool is_aligned, w_is_aligned;
} norm_backward;

enum {
    /* maximum number of threads in a block; if a thread has only one chunk, the maximum is half of
     * this number */
    NORM_BACKWARD_MOST = 512,
    NORM_BACKWARD_CHUNKS = 2, /* maximum number of chunks of columns that a thread has */
    NORM_BACKWARD_ROWS = 2,   /* maximum number of rows that a block has in registers at one time */
    NORM_BACKWARD_TERMS = 2   /* number of sums over a row: the sum of g n and the sum of g */
};

/* One row as a thread sees it: the elements of dy and x in the thread's columns, and the row's mean
 * and rstd. */
template <typename T, int CHUNKS> struct norm_row {
    static constexpr int ROWS = CHUNKS == 1 ? NORM_BACKWARD_ROWS : 1; /* rows in registers */
    vector_of<T> dy[CHUNKS], x[CHUNKS];
    float mean, rstd;
};

/* Load the thread's columns of row `row`. If the matrix has no row with this number, set the
 * columns to zeros, which add nothing to dw. */
template <bool LAYER, typename T, int CHUNKS>
FSDP_DEVICE void load_norm_row(norm_row<T, CHUNKS> &r, const norm_backward &a, int64_t row)
{
    const int64_t end = row < a.rows ? a.width : 0, at = row < a.rows ? row * a.width : 0;
    r.rstd = row < a.rows ? a.rstd[row] : 0.0f;
    r.mean = LAYER && row < a.rows ? a.mean[row] : 0.0f;
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        const int64_t i = ((int64_t)k * blockDim.x + threadIdx.x) * vector_of<T>::N;
        r.dy[k] = load_chunk((const T *)a.dy + at, i, end, true);
        r.x[k] = load_chunk((const T *)a.x + at, i, end, true);
    }
}

/* Add a row's terms to the thread's sums for dw and dbias. */
template <typename T, int CHUNKS>
FSDP_DEVICE void add_to_parts(float *dw, float *dbias, const norm_row<T, CHUNKS> &r)
{
    constexpr int N = vector_of<T>::N;
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        float dy[N], x[N];
        widen(dy, r.dy[k]);
        widen(x, r.x[k]);
#pragma unroll
        for (int e = 0; e < N; e++) {
            dw[k * N + e] += dy[e] * ((x[e] - r.mean) * r.rstd);
            dbias[k * N + e] += dy[e];
        }
    }
}

/* A row has two sums, the sum of g n and the sum of g. Set terms[0] and terms[1] to the parts of
 * these sums over the thread's columns. */
template <typename T, int CHUNKS>
FSDP_DEVICE void sum_norm_row(float *terms, const norm_row<T, CHUNKS> &r, const float *w)
{
    constexpr int N = vector_of<T>::N;
    terms[0] = terms[1] = 0;
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        float dy[N], x[N];
        widen(dy, r.dy[k]);
        widen(x, r.x[k]);
#pragma unroll
        for (int e = 0; e < N; e++) {
            const float g = dy[e] * w[k * N + e];
            terms[0] += g * ((x[e] - r.mean) * r.rstd);
            terms[1] += g;
        }
    }
}

/* Return dx for one chunk of a row. For element e of the row, let n be (x[e] - mean) * rstd, and
 * let d be dy[e] * w[e]. `g` is the mean of d over the whole row, and `g_n` is the mean of d * n.
 */
template <typename T>
FSDP_DEVICE vector_of<T> norm_dx(const vector_of<T> &dy_chunk, const vector_of<T> &x_chunk,
                                 const float *w, float mean, float rstd, float g_n, float g)
{
    constexpr int N = vector_of<T>::N;
    float dy[N], x[N];
    widen(dy, dy_chunk);
    widen(x, x_chunk);
#pragma unroll
    for (int e = 0; e < N; e++)
        dy[e] = rstd * ((dy[e] * w[e] - g) - (x[e] - mean) * rstd * g_n);
    return narrow<T>(dy);
}

/* Memory in which the warps of a block exchange their parts of the two sums of each row
 * (sum_norm_row()). The iterations of the loop over rows use half 0 and half 1 in turn, so that one
 * barrier per iteration is enough. */
typedef float norm_sums[2][NORM_BACKWARD_ROWS][NORM_BACKWARD_TERMS][NORM_BACKWARD_MOST / WARP];

/* Compute and write dx for rows [row, row + ROWS). All threads of the block must call this
 * function. */
template <bool LAYER, typename T, int CHUNKS>
FSDP_DEVICE void store_norm_rows(const norm_backward &a, int64_t row, const norm_row<T, CHUNKS> *r,
                                 const float *w, norm_sums &sums, int half)
{
    constexpr int N = vector_of<T>::N;
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, warps = blockDim.x / WARP;
#pragma unroll
    for (int j = 0; j < norm_row<T, CHUNKS>::ROWS; j++) {
        float terms[NORM_BACKWARD_TERMS];
        sum_norm_row(terms, r[j], w);
#pragma unroll
        for (int q = 0; q < (LAYER ? 2 : 1); q++) {
            terms[q] = warp_sum(terms[q]);
            if (lane == 0)
                sums[half][j][q][warp] = terms[q];
        }
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < norm_row<T, CHUNKS>::ROWS; j++) {
        float g_n = 0, g = 0;
        for (int i = 0; i < warps; i++) {
            g_n += sums[half][j][0][i];
            g += LAYER ? sums[half][j][1][i] : 0;
        }
        g_n /= (float)a.width;
        g /= (float)a.width;
#pragma unroll
        for (int k = 0; k < CHUNKS; k++) {
            const int64_t i = ((int64_t)k * blockDim.x + threadIdx.x) * N;
            if (row + j < a.rows && i < a.width)
                store_16((T *)a.dx + (row + j) * a.width + i,
                         norm_dx(r[j].dy[k], r[j].x[k], w + k * N, r[j].mean, r[j].rstd, g_n, g));
        }
    }
}

/* Backward for aligned rows. A block processes ROWS rows at a time. A thread processes the same
 * columns in all rows, so its sums for dw and dbias stay in registers. */
template <typename T, bool LAYER, int CHUNKS>
static __global__ void __launch_bounds__(NORM_BACKWARD_MOST / (CHUNKS == 1 ? 2 : 1),
                                         CHUNKS == 1 ? 3 : 1) norm_backward_kernel(norm_backward a)
{
    constexpr int N = vector_of<T>::N, ROWS = norm_row<T, CHUNKS>::ROWS;
    SHARED(norm_sums, sums, );
    float w[CHUNKS * N], dw[CHUNKS * N] = {0}, dbias[CHUNKS * N] = {0};
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        const int64_t i = ((int64_t)k * blockDim.x + threadIdx.x) * N;
        load_as<N>(a.w_dtype, w + k * N, a.w, i, a.width, a.w_is_aligned && i < a.width);
    }
    int half = 0;
    for (int64_t row = (int64_t)blockIdx.x * ROWS; row < a.rows;
         row += (int64_t)gridDim.x * ROWS, half ^= 1) {
        norm_row<T, CHUNKS> r[ROWS];
#pragma unroll
        for (int j = 0; j < ROWS; j++)
            load_norm_row<LAYER>(r[j], a, row + j);
        if (a.dx)
            store_norm_rows<LAYER>(a, row, r, w, sums, half);
#pragma unroll
        for (int j = 0; j < ROWS; j++)
            add_to_parts(dw, dbias, r[j]);
    }
    if (!a.parts)
        return;
    float *part = a.parts + (int64_t)blockIdx.x * (LAYER ? 2 : 1) * a.width;
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        const int64_t i = ((int64_t)k * blockDim.x + threadIdx.x) * N;
        if (i >= a.width)
            return;
        store_floats<N>(part, i, a.width, dw + k * N, true);
        if (LAYER)
            store_floats<N>(part + a.width, i, a.width, dbias + k * N, true);
    }
}

/* The rows are divided into slices, and each slice is processed by one block. Return the number of
 * slices, which is about the number of blocks that a large card runs at the same time. `chunks` is
 * the number of chunks in a row. */
static inline int64_t norm_slices(int64_t rows, int64_t chunks)
{
    return smaller(ceil_div(rows, 4), chunks <= 128 ? 792 : chunks <= 256 ? 396 : 264);
}

/* --- backward of rows that are not aligned or too wide for registers --- */

/* Compute dx of one row by one block, which reads the row twice. */
template <typename T, bool LAYER>
static __global__ void __launch_bounds__(NORM_BACKWARD_MOST) plain_norm_backward(norm_backward a)
{
    constexpr int N = vector_of<T>::N;
    SHARED(float, g_n_sums, [WARP]);
    SHARED(float, g_sums, [WARP]);
    const int64_t row = blockIdx.x;
    const int64_t first = (int64_t)threadIdx.x * N, step = (int64_t)blockDim.x * N;
    const T *dy_row = (const T *)a.dy + row * a.width, *x_row = (const T *)a.x + row * a.width;
    const float rstd = a.rstd[row], mean = LAYER ? a.mean[row] : 0.0f;
    float g_n = 0, g = 0;
    for (int64_t i = first; i < a.width; i += step) {
        float dy[N], x[N], w[N];
        load_as<N>(a.w_dtype, w, a.w, i, a.width, false);
        widen(dy, load_chunk(dy_row, i, a.width, a.is_aligned));
        widen(x, load_chunk(x_row, i, a.width, a.is_aligned));
#pragma unroll
        for (int e = 0; e < N; e++) {
            g_n += dy[e] * w[e] * ((x[e] - mean) * rstd);
            g += dy[e] * w[e];
        }
    }
    g_n = row_sum(g_n, g_n_sums) / (float)a.width;
    g = LAYER ? row_sum(g, g_sums) / (float)a.width : 0.0f;
    for (int64_t i = first; i < a.width; i += step) {
        float w[N];
        load_as<N>(a.w_dtype, w, a.w, i, a.width, false);
        const vector_of<T> dx =
            norm_dx(load_chunk(dy_row, i, a.width, a.is_aligned),
                    load_chunk(x_row, i, a.width, a.is_aligned), w, mean, rstd, g_n, g);
        store_chunk((T *)a.dx + row * a.width, i, a.width, dx, a.is_aligned);
    }
}

/* The terms that are added up to dw: dy (x - mean) rstd. */
template <typename T, bool LAYER> struct dw_terms {
    static constexpr int N = vector_of<T>::N;
    norm_backward a;
    __device__ void operator()(float *f, int64_t row, int64_t column) const
    {
        const int64_t at = row * a.width;
        const float mean = LAYER ? a.mean[row] : 0.0f, rstd = a.rstd[row];
        float x[N];
        widen(f, load_chunk((const T *)a.dy + at, column, a.width, a.is_aligned));
        widen(x, load_chunk((const T *)a.x + at, column, a.width, a.is_aligned));
#pragma unroll
        for (int e = 0; e < N; e++)
            f[e] *= (x[e] - mean) * rstd;
    }
};

/* Compute dw and dbias before dx, because dx may be the same array as x. */
template <typename T, bool LAYER>
static inline void start_plain_norm_backward(fsdp_cuda_context *c, const norm_backward &a,
                                             column_outputs out)
{
    if (out.dst[0])
        start_column_sums(c, {{out.dst[0]}, {out.dtype[0]}, {out.beta[0]}}, dw_terms<T, LAYER>{a},
                          a.rows, a.width);
    if (out.dst[1])
        start_column_sums(c, {{out.dst[1]}, {out.dtype[1]}, {out.beta[1]}},
                          matrix_terms<T>{(const T *)a.dy, a.width, a.is_aligned}, a.rows, a.width);
    if (a.dx && a.rows)
        CUDA_LAUNCH((plain_norm_backward<T, LAYER>), (unsigned)a.rows, NORM_BACKWARD_MOST, 0,
                    fsdp_cuda_stream(c), a);
}

/* --- starting backward --- */

template <typename T, bool LAYER>
static inline void start_norm_backward_of(fsdp_cuda_context *c, norm_backward a, column_outputs out)
{
    const int sets = LAYER ? 2 : 1;
    const int64_t n = ceil_div(a.width, vector_of<T>::N);
    a.is_aligned = is_vectorizable<T>(a.width, a.dy, a.x, a.dx);
    a.w_is_aligned = is_aligned_16(a.w);
    if (!a.is_aligned || n > NORM_BACKWARD_MOST * NORM_BACKWARD_CHUNKS) {
        start_plain_norm_backward<T, LAYER>(c, a, out);
        return;
    }
    const int chunks = n <= NORM_BACKWARD_MOST / 2 ? 1 : 2;
    const unsigned threads = warps_of(ceil_div(n, chunks));
    const int64_t slices = norm_slices(a.rows, n);
    const bool has_sums = out.dst[0] || out.dst[1];
    if (has_sums && slices) {
        a.parts = (float *)fsdp_cuda_scratch(c, (size_t)(slices * sets * a.width) * sizeof(float));
        if (!a.parts)
            return;
    }
    const cudaStream_t stream = fsdp_cuda_stream(c);
    const unsigned grid = (unsigned)slices;
    if (slices && chunks == 1)
        CUDA_LAUNCH((norm_backward_kernel<T, LAYER, 1>), grid, threads, 0, stream, a);
    else if (slices)
        CUDA_LAUNCH((norm_backward_kernel<T, LAYER, 2>), grid, threads, 0, stream, a);
    if (has_sums)
        start_add_column_parts(c, out, sets, a.parts, slices, a.width);
}

template <bool LAYER>
static inline void start_norm_backward(fsdp_cuda_context *c, const norm_backward &a,
                                       fsdp_dtype dtype, column_outputs out)
{
    with_type(dtype, [&](auto zero) { start_norm_backward_of<decltype(zero), LAYER>(c, a, out); });
}
