/* Elements of the floating dtypes in device code. For host code: with_type(), which calls a
 * function with the C++ type of a dtype. */
#pragma once
#include "src/kernels/cuda/device.cuh"
#include "src/kernels/cuda/slots.h"

#define FSDP_DEVICE static __device__ __forceinline__

/* --- one element --- */

FSDP_DEVICE float to_float(float x)
{
    return x;
}
FSDP_DEVICE float to_float(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}
FSDP_DEVICE float to_float(__half x)
{
    return __half2float(x);
}
template <typename T> FSDP_DEVICE T from_float(float x);
template <> __device__ __forceinline__ float from_float<float>(float x)
{
    return x;
}
template <> __device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float x)
{
    return __float2bfloat16_rn(x);
}
template <> __device__ __forceinline__ __half from_float<__half>(float x)
{
    return __float2half_rn(x);
}

/* --- 16 bytes of elements --- */

/* N elements that are loaded and stored by one access of 16 bytes. Their address must be a multiple
 * of 16. */
template <typename T> struct alignas(16) vector_of {
    static constexpr int N = 16 / sizeof(T);
    T at[N];
};

/* Return true if all addresses and the row stride (in elements) allow accesses of 16 bytes. */
template <typename T, typename... P> static inline bool is_vectorizable(int64_t ld, P... pointers)
{
    return ld % vector_of<T>::N == 0 && (... && ((uintptr_t)pointers % 16 == 0));
}

/* --- the dtype as a type --- */

/* Call f with a value of the C++ type of `dtype`, which is float32, bfloat16 or float16:
 * with_type(dtype, [&](auto zero) { typedef decltype(zero) T; ... }). */
template <typename F> static inline void with_type(fsdp_dtype dtype, F f)
{
    if (dtype == FSDP_DTYPE_F32)
        f(0.0f);
    else if (dtype == FSDP_DTYPE_BF16)
        f(__nv_bfloat16());
    else
        f(__half());
}

/* --- grids --- */

/* Return the number of blocks of `threads` threads that are needed so that each of n items gets its
 * own thread. The result is at least 1 and at most `most`. If it is limited by `most`, each thread
 * must also process further items, with a stride of the whole grid. */
static inline unsigned blocks_for(int64_t n, int threads, int64_t most = 1 << 16)
{
    const int64_t blocks = (n + threads - 1) / threads;
    return (unsigned)(blocks < 1 ? 1 : blocks < most ? blocks : most);
}
