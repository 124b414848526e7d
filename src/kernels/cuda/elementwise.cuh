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

/* Load elements [i, i + N) of an array of n elements; the other elements of the result become 0.
 * `vectors` is true if the array's address is a multiple of 16 bytes and i is a multiple of N. */
template <typename T, int N>
FSDP_DEVICE void load_group(float (&to)[N], const T *from, int64_t i, int64_t n, bool vectors)
{
    constexpr int AT_ONCE = N < vector_of<T>::N ? N : vector_of<T>::N;
    if (vectors && i + N <= n) {
#pragma unroll
        for (int j = 0; j < N; j += AT_ONCE) {
            const packed<T, AT_ONCE> some = *(const packed<T, AT_ONCE> *)(from + i + j);
#pragma unroll
            for (int k = 0; k < AT_ONCE; k++)
                to[j + k] = to_float(some.at[k]);
        }
    } else {
#pragma unroll
        for (int j = 0; j < N; j++)
            to[j] = i + j < n ? to_float(from[i + j]) : 0.0f;
    }
}

/* Store elements [i, i + N) of an array of n elements, except those from element n on. `vectors`
 * has the same meaning as in load_group(). */
template <typename T, int N>
FSDP_DEVICE void store_group(T *to, const float (&from)[N], int64_t i, int64_t n, bool vectors)
{
    constexpr int AT_ONCE = N < vector_of<T>::N ? N : vector_of<T>::N;
    if (vectors && i + N <= n) {
#pragma unroll
        for (int j = 0; j < N; j += AT_ONCE) {
            packed<T, AT_ONCE> some;
#pragma unroll
            for (int k = 0; k < AT_ONCE; k++)
                some.at[k] = from_float<T>(from[j + k]);
            *(packed<T, AT_ONCE> *)(to + i + j) = some;
        }
    } else {
#pragma unroll
        for (int j = 0; j < N; j++)
            if (i + j < n)
                to[i + j] = from_float<T>(from[j]);
    }
}

/* --- the loop --- */

template <int IN, int OUT> struct elementwise_arrays {
    const void *in[IN];
    void *out[OUT];
};

/* Call compute(out, in, group) for each group of N elements. Group number g consists of elements [g
 * N, (g + 1) N). */
template <typename T, int N, int IN, int OUT, typename F>
static __global__ void __launch_bounds__(ELEMENTWISE_THREADS)
    elementwise(elementwise_arrays<IN, OUT> arrays, int64_t n, bool vectors, F compute)
{
    const int64_t groups = (n + N - 1) / N, step = (int64_t)gridDim.x * blockDim.x;
    int64_t group = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (; group < groups; group += step) {
        float in[IN][N], out[OUT][N];
#pragma unroll
        for (int k = 0; k < IN; k++)
            load_group(in[k], (const T *)arrays.in[k], group * N, n, vectors);
        compute(out, in, group);
#pragma unroll
        for (int k = 0; k < OUT; k++)
            store_group((T *)arrays.out[k], out[k], group * N, n, vectors);
    }
}

/* Start the loop over n elements of `dtype`, in groups of N elements. If N is 0, a group has as
 * many elements as fit in 16 bytes. `what` is the name of the calling function in fsdp_kernels, for
 * error messages. */
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
