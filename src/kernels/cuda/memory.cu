/* The kernels fill, copy and cast. */
#include <type_traits>

#include "src/kernels/cuda/elementwise.cuh"

enum {
    THREADS = 256
};

/* Convert x to an integer, rounded towards zero and limited to [low, high]; NaN gives 0. */
static __host__ __device__ __forceinline__ int64_t integer_within(double x, int64_t low,
                                                                  int64_t high)
{
    if (!(x > (double)low))
        return x <= (double)low ? low : 0;
    return x < (double)high ? (int64_t)x : high;
}

/* --- fill --- */

/* Each thread sets 16 bytes of elements. If `vectors` is true, the thread sets all of them by one
 * store, and dst must be a multiple of 16. Otherwise, the thread sets one element after another. */
template <typename T>
static __global__ void __launch_bounds__(THREADS) fill(T *dst, T value, int64_t n, bool vectors)
{
    constexpr int N = vector_of<T>::N;
    const int64_t step = (int64_t)gridDim.x * THREADS * N;
    vector_of<T> some;
#pragma unroll
    for (int j = 0; j < N; j++)
        some.at[j] = value;
    for (int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * N; i < n; i += step)
        if (vectors && i + N <= n)
            *(vector_of<T> *)(dst + i) = some;
        else
            for (int64_t j = i; j < i + N && j < n; j++)
                dst[j] = value;
}

template <typename T> static void start_fill(fsdp_cuda_context *c, void *dst, T value, int64_t n)
{
    constexpr int N = vector_of<T>::N;
    CUDA_LAUNCH(fill<T>, blocks_for((n + N - 1) / N, THREADS), THREADS, 0, fsdp_cuda_stream(c),
                (T *)dst, value, n, is_vectorizable<T>(0, dst));
}

/* Set n elements of dst to `value`. The double `value` is rounded only once, directly to `dtype`,
 * as in cast(). */
extern "C" void fsdp_cuda_fill(fsdp_kernel_context *context, void *dst, fsdp_dtype dtype,
                               double value, int64_t n)
{
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    if (n <= 0)
        return;
    switch (dtype) {
    case FSDP_DTYPE_F32:
        start_fill(c, dst, (float)value, n);
        break;
    case FSDP_DTYPE_F64:
        start_fill(c, dst, value, n);
        break;
    case FSDP_DTYPE_BF16:
        start_fill(c, dst, __double2bfloat16(value), n);
        break;
    case FSDP_DTYPE_F16:
        start_fill(c, dst, __double2half(value), n);
        break;
    case FSDP_DTYPE_I64:
        start_fill(c, dst, integer_within(value, INT64_MIN, INT64_MAX), n);
        break;
    case FSDP_DTYPE_I32:
        start_fill(c, dst, (int32_t)integer_within(value, INT32_MIN, INT32_MAX), n);
        break;
    default:
        start_fill(c, dst, (uint8_t)integer_within(value, 0, UINT8_MAX), n);
    }
    fsdp_cuda_launched(c, "fill");
}

/* --- copy --- */

extern "C" void fsdp_cuda_copy(fsdp_kernel_context *context, void *dst, const void *src,
                               size_t bytes)
{
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    if (bytes)
        fsdp_cuda_check(
            c, cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToDevice, fsdp_cuda_stream(c)),
            "copy");
}

/* --- cast between float32, bfloat16 and float16 --- */

template <typename To, typename From, int N>
static __global__ void __launch_bounds__(THREADS)
    cast_floats(To *to, const From *from, int64_t n, bool vectors)
{
    const int64_t step = (int64_t)gridDim.x * THREADS * N;
    for (int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * N; i < n; i += step) {
        float x[N];
        load_group(x, from, i, n, vectors);
        store_group(to, x, i, n, vectors);
    }
}

static bool is_within_f32(fsdp_dtype dtype)
{
    return dtype == FSDP_DTYPE_F32 || dtype == FSDP_DTYPE_BF16 || dtype == FSDP_DTYPE_F16;
}

/* Each thread converts groups of elements. A group has 16 bytes in the wider of the two dtypes. So
 * neighboring threads access neighboring memory in both arrays. */
static void start_cast_floats(fsdp_cuda_context *c, void *dst, fsdp_dtype to, const void *src,
                              fsdp_dtype from, int64_t n)
{
    with_type(to, [&](auto to_zero) {
        with_type(from, [&](auto from_zero) {
            typedef decltype(to_zero) To;
            typedef decltype(from_zero) From;
            constexpr int N = sizeof(To) == 2 && sizeof(From) == 2 ? 8 : 4;
            if constexpr (!std::is_same<To, From>::value)
                CUDA_LAUNCH((cast_floats<To, From, N>), blocks_for((n + N - 1) / N, THREADS),
                            THREADS, 0, fsdp_cuda_stream(c), (To *)dst, (const From *)src, n,
                            is_vectorizable<float>(0, dst, src));
        });
    });
}

/* --- other casts --- */

/* Convert i to double for a caller that rounds the result to float32 or a narrower type. If the
 * magnitude of i has more than 53 bits, its lowest 11 bits are cleared, and bit 11 is set if one of
 * these 11 bits was set. The caller's rounding then gives the same result as if i had been rounded
 * directly to the caller's type. */
FSDP_DEVICE double odd_from_i64(int64_t i)
{
    uint64_t magnitude = i < 0 ? -(uint64_t)i : (uint64_t)i;
    if (magnitude >> 53)
        magnitude = (magnitude & ~(uint64_t)0x7ff) | ((magnitude & 0x7ff) ? 0x800 : 0);
    return i < 0 ? -(double)magnitude : (double)magnitude;
}

/* Return element i of src as double. `again` must be true if the caller will round the result to a
 * narrower type. */
FSDP_DEVICE double load_double(const void *src, fsdp_dtype dtype, int64_t i, bool again)
{
    switch (dtype) {
    case FSDP_DTYPE_F64:
        return ((const double *)src)[i];
    case FSDP_DTYPE_F32:
        return (double)((const float *)src)[i];
    case FSDP_DTYPE_BF16:
        return (double)to_float(((const __nv_bfloat16 *)src)[i]);
    case FSDP_DTYPE_F16:
        return (double)to_float(((const __half *)src)[i]);
    case FSDP_DTYPE_I64:
        return again ? odd_from_i64(((const int64_t *)src)[i]) : (double)((const int64_t *)src)[i];
    case FSDP_DTYPE_I32:
        return (double)((const int32_t *)src)[i];
    default:
        return (double)((const uint8_t *)src)[i];
    }
}

FSDP_DEVICE void store_double(void *dst, fsdp_dtype dtype, int64_t i, double x)
{
    switch (dtype) {
    case FSDP_DTYPE_F64:
        ((double *)dst)[i] = x;
        break;
    case FSDP_DTYPE_F32:
        ((float *)dst)[i] = (float)x;
        break;
    case FSDP_DTYPE_BF16:
        ((__nv_bfloat16 *)dst)[i] = __double2bfloat16(x);
        break;
    case FSDP_DTYPE_F16:
        ((__half *)dst)[i] = __double2half(x);
        break;
    case FSDP_DTYPE_I64:
        ((int64_t *)dst)[i] = integer_within(x, INT64_MIN, INT64_MAX);
        break;
    case FSDP_DTYPE_I32:
        ((int32_t *)dst)[i] = (int32_t)integer_within(x, INT32_MIN, INT32_MAX);
        break;
    default:
        ((uint8_t *)dst)[i] = (uint8_t)integer_within(x, 0, UINT8_MAX);
    }
}

/* Cast between two dtypes, at least one of which is floating. Each value is first converted to
 * double and then to the other dtype. */
static __global__ void __launch_bounds__(THREADS)
    cast_doubles(void *dst, fsdp_dtype to, const void *src, fsdp_dtype from, int64_t n)
{
    const int64_t step = (int64_t)gridDim.x * THREADS;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += step)
        store_double(dst, to, i, load_double(src, from, i, to != FSDP_DTYPE_F64));
}

/* Cast between integer dtypes. If a value is out of range, its low bits are stored. */
static __global__ void __launch_bounds__(THREADS)
    cast_integers(void *dst, fsdp_dtype to, const void *src, fsdp_dtype from, int64_t n)
{
    const int64_t step = (int64_t)gridDim.x * THREADS;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += step) {
        const int64_t x = from == FSDP_DTYPE_I64   ? ((const int64_t *)src)[i]
                          : from == FSDP_DTYPE_I32 ? ((const int32_t *)src)[i]
                                                   : ((const uint8_t *)src)[i];
        if (to == FSDP_DTYPE_I64)
            ((int64_t *)dst)[i] = x;
        else if (to == FSDP_DTYPE_I32)
            ((int32_t *)dst)[i] = (int32_t)(uint32_t)x;
        else
            ((uint8_t *)dst)[i] = (uint8_t)x;
    }
}

extern "C" void fsdp_cuda_cast(fsdp_kernel_context *context, void *dst, fsdp_dtype to,
                               const void *src, fsdp_dtype from, int64_t n)
{
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    if (n <= 0 || (to == from && dst == src))
        return;
    if (to == from)
        fsdp_cuda_copy(context, dst, src, (size_t)n * fsdp_dtype_size(to));
    else if (is_within_f32(to) && is_within_f32(from))
        start_cast_floats(c, dst, to, src, from, n);
    else if (fsdp_dtype_is_floating(to) || fsdp_dtype_is_floating(from))
        CUDA_LAUNCH(cast_doubles, blocks_for(n, THREADS), THREADS, 0, fsdp_cuda_stream(c), dst, to,
                    src, from, n);
    else
        CUDA_LAUNCH(cast_integers, blocks_for(n, THREADS), THREADS, 0, fsdp_cuda_stream(c), dst, to,
                    src, from, n);
    fsdp_cuda_launched(c, "cast");
}
