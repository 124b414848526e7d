/* Functions by which kernels read, write and sum rows of a matrix.
 *
 * Note [Chunks]. A thread processes a row in chunks. A chunk has vector_of<T>::N consecutive
 * elements, which take 16 bytes. If addresses and row strides are multiples of 16 bytes, a chunk is
 * one access. Otherwise the elements are accessed one by one, and so are the elements of an
 * incomplete last chunk. The allocator and the flat buffers of src/fsdp align all tensors to 64
 * bytes, so the kind of access depends only on shapes. */
#pragma once
#include <type_traits>

#include "src/kernels/cuda/elements.cuh"
#include "src/kernels/cuda/ptx.cuh"

enum {
    WARP = 32
};

static inline int64_t ceil_div(int64_t n, int64_t by)
{
    return (n + by - 1) / by;
}

static inline int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Return n rounded up to whole warps. */
static inline unsigned warps_of(int64_t n)
{
    return (unsigned)(ceil_div(n, WARP) * WARP);
}

/* --- chunks --- */

/* Load or store the vector_of<T> at p by a single instruction of 16 bytes. Its bits are copied as
 * one uint4, because the compiler could split the assignment of a vector_of<T> into several
 * accesses. @{ */
template <typename T> FSDP_DEVICE vector_of<T> load_16(const T *p)
{
    const uint4 bits = *(const uint4 *)p;
    vector_of<T> v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

template <typename T> FSDP_DEVICE void store_16(T *p, const vector_of<T> &v)
{
    uint4 bits;
    memcpy(&bits, &v, sizeof v);
    st_global16(p, bits);
}
/* @} */

/* Load elements [i, i + N) of a row that ends at `end`. Elements from `end` on become `past`. */
template <typename T>
FSDP_DEVICE vector_of<T> load_chunk(const T *row, int64_t i, int64_t end, bool is_aligned,
                                    float past = 0.0f)
{
    vector_of<T> v;
    if (is_aligned && i < end)
        return load_16(row + i);
#pragma unroll
    for (int e = 0; e < vector_of<T>::N; e++)
        v.at[e] = i + e < end ? row[i + e] : from_float<T>(past);
    return v;
}

/* Store those elements of a chunk that are before element `end`. */
template <typename T>
FSDP_DEVICE void store_chunk(T *row, int64_t i, int64_t end, const vector_of<T> &v, bool is_aligned)
{
    if (is_aligned && i < end) {
        store_16(row + i, v);
        return;
    }
#pragma unroll
    for (int e = 0; e < vector_of<T>::N; e++)
        if (i + e < end)
            row[i + e] = v.at[e];
}

template <typename T> FSDP_DEVICE void widen(float *to, const vector_of<T> &v)
{
#pragma unroll
    for (int e = 0; e < vector_of<T>::N; e++)
        to[e] = to_float(v.at[e]);
}

template <typename T> FSDP_DEVICE vector_of<T> narrow(const float *from)
{
    vector_of<T> v;
#pragma unroll
    for (int e = 0; e < vector_of<T>::N; e++)
        v.at[e] = from_float<T>(from[e]);
    return v;
}

/* --- N elements whose dtype may differ from that of the chunks --- */

/* Load elements [i, i + N) as float32; elements from `end` on become zeros. The caller may set
 * `is_aligned` only if the array is aligned to 16 bytes, i and `end` are multiples of N, and i <
 * end. */
template <int N, typename T>
FSDP_DEVICE void load_floats(float *to, const T *from, int64_t i, int64_t end, bool is_aligned)
{
    constexpr int V = vector_of<T>::N;
    if (N % V == 0 && is_aligned) {
#pragma unroll
        for (int e = 0; e < N; e += V)
            widen(to + e, load_16(from + i + e));
        return;
    }
#pragma unroll
    for (int e = 0; e < N; e++)
        to[e] = i + e < end ? to_float(from[i + e]) : 0.0f;
}

template <int N, typename T>
FSDP_DEVICE void store_floats(T *to, int64_t i, int64_t end, const float *from, bool is_aligned)
{
    constexpr int V = vector_of<T>::N;
    if (N % V == 0 && is_aligned) {
#pragma unroll
        for (int e = 0; e < N; e += V)
            store_16(to + i + e, narrow<T>(from + e));
        return;
    }
#pragma unroll
    for (int e = 0; e < N; e++)
        if (i + e < end)
            to[i + e] = from_float<T>(from[e]);
}

/* The same as load_floats() and store_floats(), for kernels that get the dtype as an argument. All
 * threads take the same branch, so these functions cost less than compiling a kernel for each pair
 * of dtypes. @{ */
template <int N>
FSDP_DEVICE void load_as(fsdp_dtype dtype, float *to, const void *from, int64_t i, int64_t end,
                         bool is_aligned)
{
    if (dtype == FSDP_DTYPE_F32)
        load_floats<N>(to, (const float *)from, i, end, is_aligned);
    else if (dtype == FSDP_DTYPE_BF16)
        load_floats<N>(to, (const __nv_bfloat16 *)from, i, end, is_aligned);
    else
        load_floats<N>(to, (const __half *)from, i, end, is_aligned);
}

template <int N>
FSDP_DEVICE void store_as(fsdp_dtype dtype, void *to, int64_t i, int64_t end, const float *from,
                          bool is_aligned)
{
    if (dtype == FSDP_DTYPE_F32)
        store_floats<N>((float *)to, i, end, from, is_aligned);
    else if (dtype == FSDP_DTYPE_BF16)
        store_floats<N>((__nv_bfloat16 *)to, i, end, from, is_aligned);
    else
        store_floats<N>((__half *)to, i, end, from, is_aligned);
}
/* @} */

static inline bool is_aligned_16(const void *p)
{
    return (uintptr_t)p % 16 == 0;
}

/* These classes load weights. The weights are a single row, which is used for all rows of a matrix.
 * They may have any dtype. load<N>(f, i) sets f to elements [i, i + N). with_weights() chooses the
 * class once, before a loop. @{ */
template <typename W> struct aligned_weights {
    template <int N> __device__ __forceinline__ void load(float *f, const void *w, int64_t i) const
    {
        load_floats<N>(f, (const W *)w, i, i + N, true);
    }
};

struct any_weights {
    fsdp_dtype dtype;
    int64_t end;
    template <int N> __device__ __forceinline__ void load(float *f, const void *w, int64_t i) const
    {
        load_as<N>(dtype, f, w, i, end, false);
    }
};

/* Call f with an object of the class that loads weights of `dtype`. T is the dtype of the matrix.
 * The fast class, aligned_weights, is used for weights that are aligned and have dtype T or
 * float32. */
template <typename T, typename F>
FSDP_DEVICE void with_weights(fsdp_dtype dtype, bool is_aligned, int64_t end, F f)
{
    const bool is_same = dtype == (sizeof(T) == 4                   ? FSDP_DTYPE_F32
                                   : std::is_same<T, __half>::value ? FSDP_DTYPE_F16
                                                                    : FSDP_DTYPE_BF16);
    if (is_aligned && dtype == FSDP_DTYPE_F32)
        f(aligned_weights<float>());
    else if (is_aligned && is_same)
        f(aligned_weights<T>());
    else
        f(any_weights{dtype, end});
}
/* @} */

/* --- sums --- */

/* Return the sum of x over a warp. All threads get the same result, bit for bit. */
FSDP_DEVICE float warp_sum(float x)
{
#pragma unroll
    for (int i = WARP / 2; i; i /= 2)
        x += __shfl_xor_sync(~0u, x, i);
    return x;
}

/* Return the sum of x over the threads that have the same threadIdx.y. If blockDim.x is 32, these
 * threads are one warp. Otherwise they must be the whole block (blockDim.y must be 1), and the
 * warps of the block exchange their sums in `sums`. If a kernel calls this twice, it must pass two
 * different arrays, because there is no barrier between the reads of the first call and the writes
 * of the second. */
FSDP_DEVICE float row_sum(float x, float (&sums)[WARP])
{
    x = warp_sum(x);
    if (blockDim.x == WARP)
        return x;
    const unsigned lane = threadIdx.x % WARP;
    if (lane == 0)
        sums[threadIdx.x / WARP] = x;
    __syncthreads();
    return warp_sum(lane < blockDim.x / WARP ? sums[lane] : 0.0f);
}
