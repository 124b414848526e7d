/* Sums over the buffers of all ranks (tree_sum), and sums of powers over rows, from which norms are
 * computed (row_power_sums). */
#include "src/kernels/cuda/row_sums.cuh"
#include "src/kernels/cuda/tables.cuh"
#include "src/kernels/cuda/tree.cuh"

/* --- tree_sum --- */

enum {
    THREADS = 256,
    /* The maximum number of sources in a group. The sources of a group are read together and added
     * pairwise. If there are several groups, the sums of the groups are then added pairwise,
     * too. */
    GROUP = 8,
    LEVELS = 10, /* number of levels of the binary tree whose leaves are the groups */
    MOST_SOURCES = GROUP << LEVELS
};

/* The addresses of the sources. If there are at most GROUP sources, their addresses are in `few`,
 * which is passed to the kernel by value. Otherwise they are in an array in device memory. */
struct sources {
    const void *few[GROUP];
    const void *const *many;
    int n;
};

/* Load elements [i, i + N) of src as float32. */
template <typename T, int N> FSDP_DEVICE void load_floats(float (&x)[N], const void *src, int64_t i)
{
    struct alignas(N * sizeof(T)) elements {
        T at[N];
    };
    const elements v = *(const elements *)((const T *)src + i);
    for (int e = 0; e < N; e++)
        x[e] = to_float(v.at[e]);
}

/* For each e, set sum[e] to the sum of element i + e over the first `count` sources. SOURCES is the
 * maximum of `count`. */
template <typename T, int N, int SOURCES>
FSDP_DEVICE void sum_group(float (&sum)[N], const void *const *src, int count, int64_t i)
{
    float x[SOURCES][N];
#pragma unroll
    for (int s = 0; s < SOURCES; s++) {
        for (int e = 0; e < N; e++)
            x[s][e] = -0.0f;
        if (s < count)
            load_floats<T, N>(x[s], src[s], i);
    }
#pragma unroll
    for (int e = 0; e < N; e++)
        sum[e] = tree_of<SOURCES, float>([&](int s) { return x[s][e]; });
}

/* Store sum[e] * scale to dst[e]. dst may be a part of a source, because each thread reads its
 * elements of all sources before it writes. */
template <int N> FSDP_DEVICE void store_scaled(float *dst, const float (&sum)[N], float scale)
{
    struct alignas(N % 4 ? 4 : 16) elements {
        float at[N];
    } v;
    for (int e = 0; e < N; e++)
        v.at[e] = sum[e] * scale;
    *(elements *)dst = v;
}

template <typename T, int N, int SOURCES>
FSDP_DEVICE void sum_few_at(float *dst, const sources &src, int64_t i, float scale)
{
    float sum[N];
    sum_group<T, N, SOURCES>(sum, src.few, src.n, i);
    store_scaled(dst + i, sum, scale);
}

/* Each thread computes the sums of N adjacent elements. */
template <typename T, int N, int SOURCES>
static __global__ void __launch_bounds__(THREADS)
    sum_few(float *dst, sources src, int64_t n, float scale)
{
    const int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * N;
    if (i + N <= n)
        sum_few_at<T, N, SOURCES>(dst, src, i, scale);
    else
        for (int64_t j = i; j < n; j++)
            sum_few_at<T, 1, SOURCES>(dst, src, j, scale);
}

/* Add up more than GROUP sources. levels[l] is the sum of 2^l groups if bit l is set in the number
 * of groups that have been added. The sum of each further group is treated like a carry in a binary
 * counter. As long as levels[l] is in use, levels[l] is added to the sum, and the sum is carried to
 * level l + 1. At the first level that is not in use, the sum is stored. */
template <typename T, int N>
FSDP_DEVICE void sum_many_at(float *dst, const sources &src, int64_t i, float scale)
{
    float levels[LEVELS][N], sum[N];
    const int groups = (src.n + GROUP - 1) / GROUP;
    for (int g = 0; g < groups; g++) {
        sum_group<T, N, GROUP>(sum, src.many + g * GROUP, src.n - g * GROUP, i);
        bool carries = true;
#pragma unroll
        for (int l = 0; l < LEVELS; l++) {
            const bool complete = (g >> l & 1) != 0;
            for (int e = 0; e < N; e++) {
                if (carries && complete)
                    sum[e] = levels[l][e] + sum[e];
                else if (carries)
                    levels[l][e] = sum[e];
            }
            carries = carries && complete;
        }
    }
    for (int e = 0; e < N; e++)
        sum[e] = -0.0f;
#pragma unroll
    for (int l = 0; l < LEVELS; l++)
        if (groups >> l & 1)
            for (int e = 0; e < N; e++)
                sum[e] = levels[l][e] + sum[e];
    store_scaled(dst + i, sum, scale);
}

template <typename T, int N>
static __global__ void __launch_bounds__(THREADS)
    sum_many(float *dst, sources src, int64_t n, float scale)
{
    const int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * N;
    if (i + N <= n)
        sum_many_at<T, N>(dst, src, i, scale);
    else
        for (int64_t j = i; j < n; j++)
            sum_many_at<T, 1>(dst, src, j, scale);
}

/* Start the kernel in which each thread sums N adjacent elements. N is 1 if the addresses are not
 * aligned for accesses of 16 bytes. */
template <typename T, int N>
static void start_tree_sum(fsdp_cuda_context *c, float *dst, const sources &src, int64_t n,
                           float scale)
{
    const unsigned blocks = blocks_for((n + N - 1) / N, THREADS, INT32_MAX);
    const cudaStream_t stream = fsdp_cuda_stream(c);
    if (src.n == 1)
        CUDA_LAUNCH((sum_few<T, N, 1>), blocks, THREADS, 0, stream, dst, src, n, scale);
    else if (src.n == 2)
        CUDA_LAUNCH((sum_few<T, N, 2>), blocks, THREADS, 0, stream, dst, src, n, scale);
    else if (src.n <= 4)
        CUDA_LAUNCH((sum_few<T, N, 4>), blocks, THREADS, 0, stream, dst, src, n, scale);
    else if (src.n <= GROUP)
        CUDA_LAUNCH((sum_few<T, N, GROUP>), blocks, THREADS, 0, stream, dst, src, n, scale);
    else
        CUDA_LAUNCH((sum_many<T, N>), blocks, THREADS, 0, stream, dst, src, n, scale);
}

extern "C" void fsdp_cuda_tree_sum(fsdp_kernel_context *context, float *dst, const void *const *src,
                                   int n_sources, fsdp_dtype dtype, int64_t n, float scale)
{
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    sources all = {{}, NULL, n_sources};
    if (!n)
        return;
    if (n_sources > MOST_SOURCES) {
        fsdp_cuda_fail(c, fsdp_error(FSDP_ERR_UNSUPPORTED, "tree_sum of %d sources, at most %d",
                                     n_sources, MOST_SOURCES));
        return;
    }
    bool aligned = is_vectorizable<float>(0, dst);
    for (int s = 0; s < n_sources; s++) {
        aligned = aligned && is_vectorizable<float>(0, src[s]);
        if (n_sources <= GROUP)
            all.few[s] = src[s];
    }
    if (n_sources > GROUP) {
        const size_t bytes = (size_t)n_sources * sizeof *src;
        all.many = (const void *const *)fsdp_cuda_upload(c, src, bytes);
        if (!all.many)
            return;
    }
    with_type(dtype, [&](auto zero) {
        typedef decltype(zero) T;
        constexpr int N = vector_of<T>::N;
        if (aligned)
            start_tree_sum<T, N>(c, dst, all, n, scale);
        else
            start_tree_sum<T, 1>(c, dst, all, n, scale);
    });
    fsdp_cuda_launched(c, "tree_sum");
}

/* --- row_power_sums --- */

/* The terms of a sum of powers: |x|^power. If SQUARES is true, the power is 2. Otherwise it is the
 * field `power`. If `power` is infinity, the "sum" is the largest |x|. */
template <typename T, bool SQUARES> struct powers {
    enum {
        N = vector_of<T>::N
    };
    const T *x;
    int64_t width;
    double power;
    bool vectorizable;

    __device__ __forceinline__ double term(float x) const
    {
        const double magnitude = fabs((double)x);
        if (SQUARES)
            return magnitude * magnitude;
        return power == 1.0 || isinf(power) ? magnitude : pow(magnitude, power);
    }
    __device__ __forceinline__ void load(double (&terms)[N], int64_t row, int64_t column,
                                         int count) const
    {
        const T *from = x + row * width + column;
        vector_of<T> v;
        if (vectorizable && count == N)
            v = *(const vector_of<T> *)from;
        else
            for (int e = 0; e < N; e++)
                v.at[e] = e < count ? from[e] : from_float<T>(0.0f);
        for (int e = 0; e < N; e++)
            terms[e] = term(to_float(v.at[e]));
    }
    __device__ __forceinline__ double join(double a, double b) const
    {
        if (SQUARES || !isinf(power))
            return a + b;
        return b > a || b != b ? b : a; /* NaN if a or b is NaN */
    }
};

/* An entry of the table of tensors: a tensor over whose rows sums are computed. */
struct row_tensor {
    const void *x;
    /* Where the sums over rows are stored. If rows are divided into several parts, this is
     * temporary memory for the sums of the parts. */
    double *to;
    int64_t rows, width;
    int64_t vectorizable;
};

template <typename T, bool SQUARES>
static __global__ void __launch_bounds__(ROW_SUMS_THREADS)
    sum_rows_of_many(table_of<row_tensor> table, double power)
{
    const int i = tensor_of_block(table);
    const row_tensor t = table.tensors[i];
    const powers<T, SQUARES> terms = {(const T *)t.x, t.width, power, t.vectorizable != 0};
    sum_rows_of_block(t.to, terms, t.rows, t.width, blockIdx.x - table.first[i]);
}

template <typename T, bool SQUARES>
static void start_power_sums(fsdp_cuda_context *c, const table_of<row_tensor> &table,
                             unsigned blocks, double power)
{
    CUDA_LAUNCH((sum_rows_of_many<T, SQUARES>), blocks, ROW_SUMS_THREADS, 0, fsdp_cuda_stream(c),
                table, power);
}

/* Return the number of sums of parts that need temporary memory for this tensor. The result is 0 if
 * each row of the tensor has only one part. */
static int64_t scratch_of(const fsdp_row_powers *t)
{
    const int64_t parts = row_sums_parts(t->width);
    return parts > 1 ? t->rows * parts : 0;
}

static double *open_scratch(fsdp_cuda_context *c, const fsdp_row_powers *tensors, size_t n)
{
    int64_t all = 0;
    for (size_t i = 0; i < n; i++)
        all += scratch_of(&tensors[i]);
    return all ? (double *)fsdp_cuda_scratch(c, (size_t)all * sizeof(double)) : NULL;
}

/* Compute the sums over rows for those tensors whose dtype is that of T. */
template <typename T>
static void sum_rows_of_dtype(fsdp_cuda_context *c, const fsdp_row_powers *tensors, size_t n,
                              fsdp_dtype dtype, double power, double *scratch)
{
    table_writer<row_tensor> writer;
    table_of<row_tensor> table;
    if (!writer.begin(c, FSDP_CUDA_TABLE_ROWS, n))
        return;
    for (size_t i = 0; i < n; i++) {
        const fsdp_row_powers *of = &tensors[i];
        row_tensor *t =
            of->dtype == dtype ? writer.add(row_sums_blocks(of->rows, of->width)) : NULL;
        if (t) {
            t->x = of->x;
            t->to = scratch_of(of) ? scratch : of->sums;
            t->rows = of->rows;
            t->width = of->width;
            t->vectorizable = is_vectorizable<T>(of->width, of->x);
        }
        scratch += scratch_of(of);
    }
    if (!writer.end(&table))
        return;
    if (power == 2.0)
        start_power_sums<T, true>(c, table, writer.blocks(), power);
    else
        start_power_sums<T, false>(c, table, writer.blocks(), power);
}

static void add_parts(fsdp_cuda_context *c, const fsdp_row_powers *t, double power,
                      const double *scratch)
{
    const int64_t parts = row_sums_parts(t->width);
    if (power == 2.0)
        start_sum_of_parts(c, t->sums, scratch, powers<float, true>{}, t->rows, parts);
    else
        start_sum_of_parts(c, t->sums, scratch, powers<float, false>{NULL, 0, power, false},
                           t->rows, parts);
}

static bool has_dtype(const fsdp_row_powers *tensors, size_t n, fsdp_dtype dtype)
{
    for (size_t i = 0; i < n; i++)
        if (tensors[i].dtype == dtype)
            return true;
    return false;
}

extern "C" void fsdp_cuda_row_power_sums(fsdp_kernel_context *context,
                                         const fsdp_row_powers *tensors, size_t n, double power)
{
    static const fsdp_dtype dtypes[] = {FSDP_DTYPE_F32, FSDP_DTYPE_BF16, FSDP_DTYPE_F16};
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    double *scratch = open_scratch(c, tensors, n);
    if (fsdp_cuda_status(c) != FSDP_OK)
        return;
    for (int d = 0; d < 3; d++)
        if (has_dtype(tensors, n, dtypes[d]))
            with_type(dtypes[d], [&](auto zero) {
                sum_rows_of_dtype<decltype(zero)>(c, tensors, n, dtypes[d], power, scratch);
            });
    for (size_t i = 0; i < n; i++) {
        if (scratch_of(&tensors[i]))
            add_parts(c, &tensors[i], power, scratch);
        scratch += scratch_of(&tensors[i]);
    }
    fsdp_cuda_launched(c, "row_power_sums");
}
