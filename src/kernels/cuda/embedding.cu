/* Embedding lookup and its gradient. */
#include "src/kernels/cuda/row_access.cuh"
#include "src/kernels/cuda/token_runs.h"

enum {
    THREADS = 128,
    CHUNK = 8 /* number of elements that a thread converts at a time */
};

/* --- forward, if the dtype of the output differs from the dtype of the weight --- */

typedef struct lookup_job {
    void *out;
    const void *weight;
    const int32_t *ids;
    int64_t tokens, width;
    bool is_aligned;
} lookup_job;

/* A block computes the rows of blockDim.y tokens. */
template <typename T, typename W>
static __global__ void __launch_bounds__(THREADS) embedding(lookup_job job)
{
    const int64_t t = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
    if (t >= job.tokens)
        return;
    const W *from = (const W *)job.weight + job.ids[t] * job.width;
    T *to = (T *)job.out + t * job.width;
    for (int64_t i = (int64_t)threadIdx.x * CHUNK; i < job.width;
         i += (int64_t)blockDim.x * CHUNK) {
        float f[CHUNK];
        load_floats<CHUNK>(f, from, i, job.width, job.is_aligned);
        store_floats<CHUNK>(to, i, job.width, f, job.is_aligned);
    }
}

template <typename T, typename W>
static void start_embedding(fsdp_cuda_context *c, const lookup_job &job)
{
    const unsigned x = warps_of(smaller(ceil_div(job.width, CHUNK), THREADS)), y = THREADS / x;
    CUDA_LAUNCH((embedding<T, W>), (unsigned)ceil_div(job.tokens, y), dim3(x, y), 0,
                fsdp_cuda_stream(c), job);
}

extern "C" void fsdp_cuda_embedding(fsdp_kernel_context *context, void *out, fsdp_dtype dtype,
                                    const void *weight, fsdp_dtype w_dtype, const int32_t *ids,
                                    int64_t tokens, int64_t width)
{
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    if (dtype == w_dtype) {
        fsdp_cuda_gather_rows(context, out, weight, ids, tokens,
                              (size_t)width * fsdp_dtype_size(dtype));
        return;
    }
    lookup_job job = {};
    job.out = out;
    job.weight = weight;
    job.tokens = tokens;
    job.width = width;
    job.is_aligned = width % CHUNK == 0 && is_aligned_16(out) && is_aligned_16(weight);
    if (!width)
        return;
    job.ids = (const int32_t *)fsdp_cuda_upload(c, ids, (size_t)tokens * sizeof *ids);
    if (!job.ids)
        return;
    with_type(dtype, [&](auto zero) {
        with_type(w_dtype,
                  [&](auto w_zero) { start_embedding<decltype(zero), decltype(w_zero)>(c, job); });
    });
    fsdp_cuda_launched(c, "embedding");
}

/* --- backward: see token_runs.h --- */

typedef struct gradient_job {
    void *dw;
    fsdp_dtype dw_dtype;
    const void *dy;
    const int32_t *order;
    const fsdp_token_piece *pieces;
    const fsdp_token_long *longs;
    float *parts; /* [slots, width] */
    int64_t width;
    bool is_aligned, is_added; /* is_added: the gradient is added to the old values of dw */
} gradient_job;

/* Set `sum` to the initial values of this thread's chunk of a row of dw: to the old values if
 * is_added, otherwise to zero. */
template <int N>
FSDP_DEVICE void begin_row(float *sum, const gradient_job &job, int32_t id, int64_t column)
{
#pragma unroll
    for (int e = 0; e < N; e++)
        sum[e] = 0;
    if (job.is_added)
        load_as<N>(job.dw_dtype, sum, job.dw, id * job.width + column, (id + 1) * job.width,
                   job.is_aligned);
}

template <int N>
FSDP_DEVICE void end_row(const float *sum, const gradient_job &job, int32_t id, int64_t column)
{
    store_as<N>(job.dw_dtype, job.dw, id * job.width + column, (id + 1) * job.width, sum,
                job.is_aligned);
}

/* Each block adds up the rows of dy that belong to one piece (token_runs.h). A thread computes one
 * chunk of columns (Note [Chunks] in row_access.cuh). */
template <typename T> static __global__ void __launch_bounds__(THREADS) add_pieces(gradient_job job)
{
    constexpr int N = vector_of<T>::N;
    const int64_t column = ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * N;
    const fsdp_token_piece piece = job.pieces[blockIdx.x];
    const int32_t end = job.pieces[blockIdx.x + 1].begin;
    float sum[N] = {0};
    if (column >= job.width)
        return;
    if (piece.slot < 0)
        begin_row<N>(sum, job, piece.id, column);
#pragma unroll 8
    for (int32_t i = piece.begin; i < end; i++) {
        const T *row = (const T *)job.dy + job.order[i] * job.width;
        float f[N];
        widen(f, load_chunk(row, column, job.width, job.is_aligned));
#pragma unroll
        for (int e = 0; e < N; e++)
            sum[e] += f[e];
    }
    if (piece.slot < 0)
        end_row<N>(sum, job, piece.id, column);
    else
        store_floats<N>(job.parts + piece.slot * job.width, column, job.width, sum, job.is_aligned);
}

/* Each block adds up the partial sums of one id whose tokens are divided into several pieces
 * (token_runs.h). */
template <int N> static __global__ void __launch_bounds__(THREADS) add_longs(gradient_job job)
{
    const int64_t column = ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * N;
    const fsdp_token_long run = job.longs[blockIdx.x];
    float sum[N];
    if (column >= job.width)
        return;
    begin_row<N>(sum, job, run.id, column);
#pragma unroll 8
    for (int32_t i = 0; i < run.n; i++) {
        float f[N];
        load_floats<N>(f, job.parts + (run.slot + i) * job.width, column, job.width,
                       job.is_aligned);
#pragma unroll
        for (int e = 0; e < N; e++)
            sum[e] += f[e];
    }
    end_row<N>(sum, job, run.id, column);
}

static void start_embedding_backward(fsdp_cuda_context *c, gradient_job job, fsdp_dtype dtype,
                                     const fsdp_token_runs *runs)
{
    job.order = (const int32_t *)fsdp_cuda_upload(c, runs->order, runs->bytes);
    if (runs->n_slots)
        job.parts =
            (float *)fsdp_cuda_scratch(c, (size_t)(runs->n_slots * job.width) * sizeof(float));
    if (!job.order || (runs->n_slots && !job.parts))
        return;
    job.pieces = (const fsdp_token_piece *)(job.order + runs->n_tokens);
    job.longs = (const fsdp_token_long *)(job.pieces + runs->n_pieces + 1);
    with_type(dtype, [&](auto zero) {
        typedef decltype(zero) T;
        constexpr int N = vector_of<T>::N;
        const int64_t chunks = ceil_div(job.width, N);
        const unsigned threads = warps_of(smaller(chunks, THREADS));
        const unsigned blocks = (unsigned)ceil_div(chunks, threads);
        job.is_aligned = is_vectorizable<T>(job.width, job.dy) && is_aligned_16(job.dw);
        CUDA_LAUNCH(add_pieces<T>, dim3((unsigned)runs->n_pieces, blocks), threads, 0,
                    fsdp_cuda_stream(c), job);
        if (runs->n_longs)
            CUDA_LAUNCH(add_longs<N>, dim3((unsigned)runs->n_longs, blocks), threads, 0,
                        fsdp_cuda_stream(c), job);
    });
}

extern "C" void fsdp_cuda_embedding_backward(fsdp_kernel_context *context, void *dw,
                                             fsdp_dtype dw_dtype, float beta, const void *dy,
                                             fsdp_dtype dtype, const int32_t *ids, int64_t tokens,
                                             int64_t width, int64_t vocab, int32_t padding_idx)
{
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    const size_t bytes = (size_t)(vocab * width) * fsdp_dtype_size(dw_dtype);
    if (!bytes)
        return;
    if (beta == 0.0f && !fsdp_cuda_check(c, cudaMemsetAsync(dw, 0, bytes, fsdp_cuda_stream(c)),
                                         "embedding_backward"))
        return;
    fsdp_token_runs runs;
    const fsdp_status status = fsdp_token_runs_init(&runs, ids, tokens, vocab, padding_idx);
    if (status != FSDP_OK) {
        fsdp_cuda_fail(c, status);
        return;
    }
    gradient_job job = {};
    job.dw = dw;
    job.dw_dtype = dw_dtype;
    job.dy = dy;
    job.width = width;
    job.is_added = beta != 0.0f;
    if (runs.n_pieces)
        start_embedding_backward(c, job, dtype, &runs);
    fsdp_token_runs_fini(&runs);
    fsdp_cuda_launched(c, "embedding_backward");
}
