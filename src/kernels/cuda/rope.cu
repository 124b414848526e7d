/* Rotary position embedding (Su et al. 2021). Element j of a head is paired with element j + K/2,
 * where K is the head width. */
#include "src/kernels/cuda/row_access.cuh"

enum {
    THREADS = 256
};

typedef struct rope_job {
    void *out;
    const void *x;
    const float *table; /* row p has first the cosines and then the sines of position p */
    const int32_t *positions;
    int64_t tokens;
    int heads, half;
    float turn; /* 1: rotate by the angle; -1: rotate back */
} rope_job;

/* A block of threads processes blockDim.y tokens. A thread rotates N pairs of a head at a time, and
 * `half` is a multiple of N. `out` may be `x`, because each element is read and written by the same
 * thread. */
template <typename T, int N> static __global__ void __launch_bounds__(THREADS) rope(rope_job job)
{
    constexpr bool ALIGNED = N > 1;
    const int64_t token = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
    if (token >= job.tokens)
        return;
    const float *table = job.table + job.positions[token] * (int64_t)(2 * job.half);
    const int chunks = job.half / N;
    const int64_t row = token * job.heads * 2 * job.half;
#pragma unroll 2
    for (int i = threadIdx.x; i < job.heads * chunks; i += blockDim.x) {
        const int head = i / chunks, j = i % chunks * N;
        const int64_t at = row + (int64_t)head * 2 * job.half + j;
        float low[N], high[N], cosine[N], sine[N];
        load_floats<N>(low, (const T *)job.x, at, at + N, ALIGNED);
        load_floats<N>(high, (const T *)job.x, at + job.half, at + job.half + N, ALIGNED);
        load_floats<N>(cosine, table, j, j + N, ALIGNED);
        load_floats<N>(sine, table, job.half + j, job.half + j + N, ALIGNED);
#pragma unroll
        for (int e = 0; e < N; e++) {
            const float s = sine[e] * job.turn, was = low[e];
            low[e] = was * cosine[e] - high[e] * s;
            high[e] = high[e] * cosine[e] + was * s;
        }
        store_floats<N>((T *)job.out, at, at + N, low, ALIGNED);
        store_floats<N>((T *)job.out, at + job.half, at + job.half + N, high, ALIGNED);
    }
}

template <typename T, int N> static void start_rope_by(fsdp_cuda_context *c, const rope_job &job)
{
    const int64_t items = (int64_t)job.heads * (job.half / N);
    const unsigned x = warps_of(smaller(items, THREADS)), y = x < THREADS ? THREADS / x : 1;
    CUDA_LAUNCH((rope<T, N>), (unsigned)ceil_div(job.tokens, y), dim3(x, y), 0, fsdp_cuda_stream(c),
                job);
}

extern "C" void fsdp_cuda_rope(fsdp_kernel_context *context, void *out, const void *x,
                               fsdp_dtype dtype, const float *table, const int32_t *positions,
                               int64_t tokens, int64_t heads, int64_t head_dim, bool inverse)
{
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    rope_job job = {};
    job.out = out;
    job.x = x;
    job.table = table;
    job.tokens = tokens;
    job.heads = (int)heads;
    job.half = (int)(head_dim / 2);
    job.turn = inverse ? -1.0f : 1.0f;
    if (!job.heads || !job.half)
        return;
    job.positions =
        (const int32_t *)fsdp_cuda_upload(c, positions, (size_t)tokens * sizeof *positions);
    if (!job.positions)
        return;
    with_type(dtype, [&](auto zero) {
        typedef decltype(zero) T;
        if (is_vectorizable<T>(job.half, x, out) && is_aligned_16(table))
            start_rope_by<T, vector_of<T>::N>(c, job);
        else
            start_rope_by<T, 1>(c, job);
    });
    fsdp_cuda_launched(c, "rope");
}
