/* Sums over the rows of a matrix, one for each column, in two stages. The rows are divided into
 * slices, and the number of slices depends only on the shape of the matrix. The first stage writes
 * the sums of each slice to scratch memory (`parts`). The second stage adds the sums of all slices
 * in a fixed order. One pass over the rows can compute several sets of sums, such as those of dw
 * and of dbias. So the shape of `parts` is [slices, sets, width]. */
#pragma once
#include "src/kernels/cuda/row_access.cuh"

enum {
    COLUMN_SETS = 2,
    COLUMN_WARPS = 8
};

/* The outputs of the second stage: for each set of sums, it computes dst = beta dst + sum. Sets
 * whose dst is NULL are skipped. */
typedef struct column_outputs {
    void *dst[COLUMN_SETS];
    fsdp_dtype dtype[COLUMN_SETS];
    float beta[COLUMN_SETS];
} column_outputs;

/* --- first stage, for terms that depend only on their own column --- */

/* The terms that column_sum() adds up: the elements of a matrix. */
template <typename T> struct matrix_terms {
    static constexpr int N = vector_of<T>::N;
    const T *x;
    int64_t width;
    bool is_aligned;
    __device__ void operator()(float *f, int64_t row, int64_t column) const
    {
        widen(f, load_chunk(x + row * width, column, width, is_aligned));
    }
};

static inline int64_t column_slices(int64_t rows, int64_t width)
{
    enum {
        COLUMNS = 256,
        BLOCKS = 528, /* desired number of blocks: a few for each multiprocessor of a large card */
        LEAST = 32,
        MOST = 128,
        ROWS = 2 * COLUMN_WARPS /* minimum number of rows of a slice, approximately */
    };
    const int64_t slices = smaller(BLOCKS / ceil_div(width, COLUMNS), MOST);
    return smaller(slices < LEAST ? (int64_t)LEAST : slices, ceil_div(rows, ROWS));
}

/* Each thread of a warp adds up a chunk of columns. The warps of a block process the rows of the
 * slice in turn. */
template <typename TERMS>
static __global__ void __launch_bounds__(WARP *COLUMN_WARPS)
    column_parts(float *parts, TERMS terms, int64_t rows, int64_t width)
{
    constexpr int N = TERMS::N;
    SHARED(float, sums, [COLUMN_WARPS][WARP * N]);
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const int64_t first = (int64_t)blockIdx.x * WARP * N, column = first + lane * N;
    const int64_t slice_rows = (rows + gridDim.y - 1) / gridDim.y;
    const int64_t begin = blockIdx.y * slice_rows, end = min(rows, begin + slice_rows);
    float z[N] = {0};
    if (column < width)
#pragma unroll 8
        for (int64_t row = begin + warp; row < end; row += COLUMN_WARPS) {
            float f[N];
            terms(f, row, column);
#pragma unroll
            for (int e = 0; e < N; e++)
                z[e] += f[e];
        }
#pragma unroll
    for (int e = 0; e < N; e++)
        sums[warp][lane * N + e] = z[e];
    __syncthreads();
    for (int i = threadIdx.x; i < WARP * N && first + i < width; i += WARP * COLUMN_WARPS) {
        float sum = 0;
#pragma unroll
        for (int w = 0; w < COLUMN_WARPS; w++)
            sum += sums[w][i];
        parts[blockIdx.y * width + first + i] = sum;
    }
}

/* --- second stage --- */

/* Each block computes 32 columns, and each of its 32 warps adds up every 32nd slice. If there were
 * only one thread for each column, the threads would wait for memory most of the time. */
static __global__ void __launch_bounds__(WARP *WARP)
    add_column_parts(column_outputs out, const float *parts, int64_t slices, int64_t width)
{
    SHARED(float, sums, [WARP][WARP]);
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, set = blockIdx.y;
    const int64_t column = (int64_t)blockIdx.x * WARP + lane;
    float z = 0;
    if (column < width)
#pragma unroll 8
        for (int64_t i = warp; i < slices; i += WARP)
            z += parts[(i * gridDim.y + set) * width + column];
    sums[warp][lane] = z;
    __syncthreads();
    if (warp != 0 || column >= width || !out.dst[set])
        return;
    z = 0;
#pragma unroll
    for (int w = 0; w < WARP; w++)
        z += sums[w][lane];
    if (out.beta[set] != 0) {
        float old;
        load_as<1>(out.dtype[set], &old, out.dst[set], column, width, false);
        z = out.beta[set] * old + z;
    }
    store_as<1>(out.dtype[set], out.dst[set], column, width, &z, false);
}

static inline void start_add_column_parts(fsdp_cuda_context *c, column_outputs out, int sets,
                                          const float *parts, int64_t slices, int64_t width)
{
    const dim3 grid((unsigned)ceil_div(width, WARP), (unsigned)sets);
    CUDA_LAUNCH(add_column_parts, grid, WARP * WARP, 0, fsdp_cuda_stream(c), out, parts, slices,
                width);
}

/* Start both stages for one set of sums; width > 0. */
template <typename TERMS>
static inline void start_column_sums(fsdp_cuda_context *c, column_outputs out, TERMS terms,
                                     int64_t rows, int64_t width)
{
    const int64_t slices = column_slices(rows, width);
    float *parts = (float *)fsdp_cuda_scratch(c, (size_t)(slices * width) * sizeof(float));
    if (slices && !parts)
        return;
    const dim3 grid((unsigned)ceil_div(width, WARP * TERMS::N), (unsigned)slices);
    if (slices)
        CUDA_LAUNCH(column_parts<TERMS>, grid, WARP * COLUMN_WARPS, 0, fsdp_cuda_stream(c), parts,
                    terms, rows, width);
    start_add_column_parts(c, out, 1, parts, slices, width);
}
