/* Softmax cross-entropy, also of smoothed labels. Each block of threads computes one row. It
 * computes the maximum of the row and the sum of e^(x - maximum) in one pass (Milakov & Gimelshein
 * 2018), and keeps the row in shared memory for the gradient. If the shared memory of a
 * multiprocessor is too small for two such blocks, the row is not kept, but read a second time for
 * the gradient. */
#include <float.h>

#include "src/kernels/cuda/row_access.cuh"

enum {
    MOST_WARPS = 16,
    NARROW = 2048 /* blocks for rows of at most this many elements have few threads */
};

#define LOG2E 1.4426950408889634f

typedef struct loss_job {
    float *losses;
    void *logits;
    const int32_t *labels;
    int64_t vocab, ld; /* ld: row stride of the logits */
    float factor;
    float smoothing; /* the target probability that all classes share; 0: labels are not smoothed */
    bool gradient;
    bool is_kept;    /* true: the rows are kept in shared memory */
    bool is_aligned; /* true: all rows begin at multiples of 16 bytes */
} loss_job;

/* The maximum of some numbers x, and the sum of e^(x - maximum) over them. The maximum starts at a
 * finite number, so that terms with x = -infinity are 0, not NaN. */
typedef struct exp_sum {
    float maximum, sum;
} exp_sum;

FSDP_DEVICE float exp_of(float x)
{
    return ex2(x * LOG2E);
}

FSDP_DEVICE exp_sum merge(exp_sum a, exp_sum b)
{
    const float maximum = fmaxf(a.maximum, b.maximum);
    return {maximum, a.sum * exp_of(a.maximum - maximum) + b.sum * exp_of(b.maximum - maximum)};
}

/* Add the terms of N numbers x to *s. If one of these numbers is NaN, the sum becomes NaN, but the
 * maximum does not. */
template <int N> FSDP_DEVICE void add_terms(exp_sum *s, const float *x)
{
    float most = x[0];
#pragma unroll
    for (int e = 1; e < N; e++)
        most = fmaxf(most, x[e]);
    if (most > s->maximum) {
        s->sum *= exp_of(s->maximum - most);
        s->maximum = most;
    }
#pragma unroll
    for (int e = 0; e < N; e++)
        s->sum += exp_of(x[e] - s->maximum);
}

/* Merge the sums of all threads of the block. All threads get the same result, bit for bit. */
FSDP_DEVICE exp_sum merge_block(exp_sum s)
{
    SHARED(exp_sum, sums, [MOST_WARPS]);
#pragma unroll
    for (int i = WARP / 2; i; i /= 2)
        s = merge(s, {__shfl_xor_sync(~0u, s.maximum, i), __shfl_xor_sync(~0u, s.sum, i)});
    if (threadIdx.x % WARP == 0)
        sums[threadIdx.x / WARP] = s;
    __syncthreads();
    s = sums[0];
    for (int i = 1; i < (int)(blockDim.x / WARP); i++)
        s = merge(s, sums[i]);
    return s;
}

/* Return the sum of `total` over all threads of the block. All threads get the same result. */
FSDP_DEVICE double sum_block(double total)
{
    SHARED(double, sums, [MOST_WARPS]);
#pragma unroll
    for (int i = WARP / 2; i; i /= 2)
        total += __shfl_xor_sync(~0u, total, i);
    if (threadIdx.x % WARP == 0)
        sums[threadIdx.x / WARP] = total;
    __syncthreads();
    total = sums[0];
    for (int i = 1; i < (int)(blockDim.x / WARP); i++)
        total += sums[i];
    return total;
}

/* Return true if the chunk that begins at element i of a row can be accessed as one unit of 16
 * bytes. */
template <int N> FSDP_DEVICE bool is_whole(const loss_job &job, int64_t i)
{
    return job.is_aligned && i + N <= job.vocab;
}

template <typename T> FSDP_DEVICE void zero_row(T *x, const loss_job &job)
{
    constexpr int N = vector_of<T>::N;
    const float zeros[N] = {0};
    for (int64_t i = (int64_t)threadIdx.x * N; i < job.vocab; i += (int64_t)blockDim.x * N)
        store_chunk(x, i, job.vocab, narrow<T>(zeros), is_whole<N>(job, i));
}

/* What the gradient of a row depends on, besides its logits. */
struct row_gradient {
    exp_sum s;
    int32_t label;
    float scale; /* factor / s.sum */
    float factor;
    float even; /* the target probability of every class, times factor */
    float own;  /* the target probability of the label */
};

FSDP_DEVICE row_gradient row_gradient_of(const loss_job &job, int32_t label, exp_sum s)
{
    const float even = job.smoothing / (float)job.vocab;
    return {
        s, label, job.factor / s.sum, job.factor, even * job.factor, 1.0f - job.smoothing + even};
}

/* Return the gradient of logit i, whose value is x. Without smoothing, 0 is subtracted, which
 * changes no bit. */
FSDP_DEVICE float gradient_of(float x, int64_t i, const row_gradient &r)
{
    const float e = exp_of(x - r.s.maximum);
    return i == r.label ? (e / r.s.sum - r.own) * r.factor : e * r.scale - r.even;
}

/* Write the gradient of a row. A row that is not aligned is written one element at a time, so that
 * the threads of a warp write to consecutive addresses. */
template <typename T>
FSDP_DEVICE void store_gradient(T *x, const vector_of<T> *kept, const loss_job &job, int32_t label,
                                exp_sum s)
{
    constexpr int N = vector_of<T>::N;
    const row_gradient r = row_gradient_of(job, label, s);
    if (!job.is_aligned) {
        for (int64_t i = threadIdx.x; i < job.vocab; i += blockDim.x)
            x[i] = from_float<T>(
                gradient_of(to_float(job.is_kept ? ((const T *)kept)[i] : x[i]), i, r));
        return;
    }
#pragma unroll 4
    for (int64_t i = (int64_t)threadIdx.x * N; i < job.vocab; i += (int64_t)blockDim.x * N) {
        float f[N];
        widen(f, job.is_kept ? kept[i / N] : load_chunk(x, i, job.vocab, is_whole<N>(job, i)));
#pragma unroll
        for (int e = 0; e < N; e++)
            f[e] = gradient_of(f[e], i + e, r);
        store_chunk(x, i, job.vocab, narrow<T>(f), is_whole<N>(job, i));
    }
}

template <typename T>
static __global__ void __launch_bounds__(WARP *MOST_WARPS) cross_entropy(loss_job job)
{
    constexpr int N = vector_of<T>::N;
    SHARED_DYNAMIC(uint4, dynamic);
    vector_of<T> *kept = (vector_of<T> *)dynamic;
    T *x = (T *)job.logits + blockIdx.x * job.ld;
    const int32_t label = job.labels[blockIdx.x];
    if (label < 0) {
        if (threadIdx.x == 0)
            job.losses[blockIdx.x] = 0;
        if (job.gradient)
            zero_row(x, job);
        return;
    }
    exp_sum s = {-FLT_MAX, 0};
    double total = 0.0;
#pragma unroll 4
    for (int64_t i = (int64_t)threadIdx.x * N; i < job.vocab; i += (int64_t)blockDim.x * N) {
        const vector_of<T> v = load_chunk(x, i, job.vocab, is_whole<N>(job, i), -INFINITY);
        if (job.is_kept)
            kept[i / N] = v;
        float f[N];
        widen(f, v);
        add_terms<N>(&s, f);
        if (job.smoothing > 0.0f)
            for (int e = 0; e < N; e++)
                total += i + e < job.vocab ? (double)f[e] : 0.0;
    }
    s = merge_block(s);
    if (job.smoothing > 0.0f)
        total = sum_block(total);
    if (threadIdx.x == 0) {
        double target = (double)to_float(x[label]);
        if (job.smoothing > 0.0f)
            target += (double)job.smoothing * (total / (double)job.vocab - target);
        job.losses[blockIdx.x] = (float)(log((double)s.sum) + ((double)s.maximum - target));
    }
    if (!job.gradient)
        return;
    __syncthreads(); /* wait until thread 0 has read the label's logit and `kept` is complete */
    store_gradient(x, kept, job, label, s);
}

/* Return the number of bytes of dynamic shared memory that each block may use if two blocks must
 * fit on a multiprocessor. */
static size_t shared_bytes(fsdp_cuda_context *c)
{
    enum {
        RESERVED = 2048 /* bytes for static shared memory and for CUDA itself */
    };
    int most = 0;
    fsdp_cuda_check(
        c,
        cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, fsdp_cuda_device(c)),
        "cross_entropy");
    return most / 2 > RESERVED ? (size_t)(most / 2 - RESERVED) : 0;
}

template <typename T>
static void start_cross_entropy(fsdp_cuda_context *c, loss_job job, int64_t rows)
{
    const size_t limit = shared_bytes(c);
    size_t bytes = (size_t)ceil_div(job.vocab, vector_of<T>::N) * sizeof(vector_of<T>);
    job.is_aligned = is_vectorizable<T>(job.ld, job.logits);
    job.is_kept = job.gradient && bytes <= limit;
    if (!job.is_kept)
        bytes = 0;
    else if (!fsdp_cuda_check(c,
                              cudaFuncSetAttribute((const void *)cross_entropy<T>,
                                                   cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                   (int)limit),
                              "cross_entropy"))
        return;
    const unsigned threads = job.vocab <= NARROW ? 4 * WARP : MOST_WARPS * WARP;
    CUDA_LAUNCH(cross_entropy<T>, (unsigned)rows, threads, bytes, fsdp_cuda_stream(c), job);
}

extern "C" void fsdp_cuda_smoothed_cross_entropy(fsdp_kernel_context *context, float *losses,
                                                 void *logits, fsdp_dtype dtype,
                                                 const int32_t *labels, int64_t rows, int64_t vocab,
                                                 int64_t ld, bool gradient, float factor,
                                                 float smoothing)
{
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    loss_job job = {};
    job.losses = losses;
    job.logits = logits;
    job.vocab = vocab;
    job.ld = ld;
    job.factor = factor;
    job.smoothing = smoothing;
    job.gradient = gradient;
    job.labels = (const int32_t *)fsdp_cuda_upload(c, labels, (size_t)rows * sizeof *labels);
    if (!job.labels)
        return;
    with_type(dtype, [&](auto zero) { start_cross_entropy<decltype(zero)>(c, job, rows); });
    fsdp_cuda_launched(c, "cross_entropy");
}

extern "C" void fsdp_cuda_cross_entropy(fsdp_kernel_context *context, float *losses, void *logits,
                                        fsdp_dtype dtype, const int32_t *labels, int64_t rows,
                                        int64_t vocab, int64_t ld, bool gradient, float factor)
{
    fsdp_cuda_smoothed_cross_entropy(context, losses, logits, dtype, labels, rows, vocab, ld,
                                     gradient, factor, 0.0f);
}
