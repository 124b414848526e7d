/* A loop over arrays of one floating dtype. Each thread loads a group of elements as float32, calls
 * a function object, and stores the results. A group is loaded completely before its results are
 * stored, so an output may be the same array as an input. */
#pragma once
#include "src/kernels/cuda/elements.cuh"

enum {
    ELEMENTWISE_THREADS = 256,
    /* The maximum number of blocks in a grid. A card runs about a thousand blocks at the same
     * time. */
    ELEMENTWISE_BLOCKS = 8192
};

/* --- groups of N elements --- */

/* N elements that are loaded or stored by one access of N * sizeof(T) bytes, at most 16. */
template <typename T, int N> struct alignas(N * sizeof(T)) packed {
    static_assert(N * sizeof(T) <= 16, "an access has at most 16 bytes");
    T at[N];
};

/* N elements as they are in memory. A kernel that reads several arrays loads all of its groups
 * before it converts the first one, because a conversion waits for its load. */
template <typename T, int N> struct raw_group {
    static constexpr int AT_ONCE = N < vector_of<T>::N ? N : vector_of<T>::N;
    packed<T, AT_ONCE> part[N / AT_ONCE];
    __device__ __forceinline__ T at(int j) const
    {
        return part[j / AT_ONCE].at[j % AT_ONCE];
    }
    __device__ __forceinline__ void set(int j, T x)
    {
        part[j / AT_ONCE].at[j % AT_ONCE] = x;
    }
};

/* Load elements [i, i + N) of an array of n elements; the other elements of the result become 0.
 * `vectors` is true if the array's address is a multiple of 16 bytes and i is a multiple of N. */
template <int N, typename T>
FSDP_DEVICE raw_group<T, N> load_raw(const T *from, int64_t i, int64_t n, bool vectors)
{
    constexpr int AT_ONCE = raw_group<T, N>::AT_ONCE;
    raw_group<T, N> to;
    if (vectors && i + N <= n) {
#pragma unroll
        for (int k = 0; k < N / AT_ONCE; k++)
            to.part[k] = *(const packed<T, AT_ONCE> *)(from + i + k * AT_ONCE);
    } else {
#pragma unroll
        for (int j = 0; j < N; j++)
            to.set(j, i + j < n ? from[i + j] : from_float<T>(0.0f));
    }
    return to;
}

/* Store elements [i, i + N) of an array of n elements. Elements with an index of n or more are not
 * stored. `vectors` has the same meaning as in load_raw(). */
template <typename T, int N>
FSDP_DEVICE void store_raw(T *to, const raw_group<T, N> &from, int64_t i, int64_t n, bool vectors)
{
    constexpr int AT_ONCE = raw_group<T, N>::AT_ONCE;
    if (vectors && i + N <= n) {
#pragma unroll
        for (int k = 0; k < N / AT_ONCE; k++)
            *(packed<T, AT_ONCE> *)(to + i + k * AT_ONCE) = from.part[k];
    } else {
#pragma unroll
        for (int j = 0; j < N; j++)
            if (i + j < n)
                to[i + j] = from.at(j);
    }
}

template <typename T, int N>
FSDP_DEVICE void widen_group(float (&to)[N], const raw_group<T, N> &from)
{
#pragma unroll
    for (int j = 0; j < N; j++)
        to[j] = to_float(from.at(j));
}

/* Load or store a group as float32. @{ */
template <typename T, int N>
FSDP_DEVICE void load_group(float (&to)[N], const T *from, int64_t i, int64_t n, bool vectors)
{
    widen_group(to, load_raw<N>(from, i, n, vectors));
}

template <typename T, int N>
FSDP_DEVICE void store_group(T *to, const float (&from)[N], int64_t i, int64_t n, bool vectors)
{
    raw_group<T, N> raw;
#pragma unroll
    for (int j = 0; j < N; j++)
        raw.set(j, from_float<T>(from[j]));
    store_raw(to, raw, i, n, vectors);
}
/* @} */

/* --- the loop --- */

template <int IN, int OUT> struct elementwise_arrays {
    const void *in[IN];
    void *out[OUT];
};

/* Call compute(out, in, group) for each group of N elements. Group number g consists of the
 * elements g * N ... g * N + N - 1. */
template <typename T, int N, int IN, int OUT, typename F>
static __global__ void __launch_bounds__(ELEMENTWISE_THREADS)
    elementwise(elementwise_arrays<IN, OUT> arrays, int64_t n, bool vectors, F compute)
{
    const int64_t groups = (n + N - 1) / N, step = (int64_t)gridDim.x * blockDim.x;
    int64_t group = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (; group < groups; group += step) {
        raw_group<T, N> raw[IN];
        float in[IN][N], out[OUT][N] = {};
#pragma unroll
        for (int k = 0; k < IN; k++)
            raw[k] = load_raw<N>((const T *)arrays.in[k], group * N, n, vectors);
#pragma unroll
        for (int k = 0; k < IN; k++)
            widen_group(in[k], raw[k]);
        compute(out, in, group);
#pragma unroll
        for (int k = 0; k < OUT; k++)
            store_group((T *)arrays.out[k], out[k], group * N, n, vectors);
    }
}

/* Start the loop over n elements of `dtype`, in groups of N elements. If N is 0, a group has 16
 * bytes of elements. `what` is the name of the calling function in fsdp_kernels, for error
 * messages. */
template <int N, int IN, int OUT, typename F>
static void start_elementwise(fsdp_kernel_context *context, const char *what, fsdp_dtype dtype,
                              int64_t n, const elementwise_arrays<IN, OUT> &arrays, F compute)
{
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    bool vectors = true;
    if (n <= 0)
        return;
    for (int k = 0; k < IN; k++)
        vectors = vectors && is_vectorizable<float>(0, arrays.in[k]);
    for (int k = 0; k < OUT; k++)
        vectors = vectors && is_vectorizable<float>(0, arrays.out[k]);
    with_type(dtype, [&](auto zero) {
        typedef decltype(zero) T;
        constexpr int GROUP = N ? N : vector_of<T>::N;
        CUDA_LAUNCH((elementwise<T, GROUP, IN, OUT, F>),
                    blocks_for((n + GROUP - 1) / GROUP, ELEMENTWISE_THREADS, ELEMENTWISE_BLOCKS),
                    ELEMENTWISE_THREADS, 0, fsdp_cuda_stream(c), arrays, n, vectors, compute);
    });
    fsdp_cuda_launched(c, what);
}
