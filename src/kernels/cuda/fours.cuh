/* Four adjacent elements of an array, which one thread updates together. So a warp updates 128
 * adjacent elements of each array, whatever the dtypes of the arrays are. */
#pragma once
#include "src/kernels/cuda/elements.cuh"

template <typename T> struct alignas(4 * sizeof(T)) four_of {
    T at[4];
};

/* Return true if each pointer is aligned for accesses of four elements of T. NULL counts as
 * aligned. */
template <typename T, typename... P> static inline bool has_fours(P... pointers)
{
    return (... && ((uintptr_t)pointers % sizeof(four_of<T>) == 0));
}

/* Load elements [i, i + 4) of an array of n elements; if i + 4 is above n, the elements of x that
 * do not exist in the array become 0. The caller may set WHOLE only if has_fours() is true and i is
 * a multiple of 4. */
template <bool WHOLE, typename T>
FSDP_DEVICE void load_four(float (&x)[4], const T *p, int64_t i, int64_t n)
{
    if (WHOLE && i + 4 <= n) {
        const four_of<T> v = *(const four_of<T> *)(p + i);
        for (int e = 0; e < 4; e++)
            x[e] = to_float(v.at[e]);
    } else
        for (int e = 0; e < 4; e++)
            x[e] = i + e < n ? to_float(p[i + e]) : 0.0f;
}

template <bool WHOLE, typename T>
FSDP_DEVICE void store_four(T *p, const float (&x)[4], int64_t i, int64_t n)
{
    if (WHOLE && i + 4 <= n) {
        four_of<T> v;
        for (int e = 0; e < 4; e++)
            v.at[e] = from_float<T>(x[e]);
        *(four_of<T> *)(p + i) = v;
    } else
        for (int e = 0; e < 4; e++)
            if (i + e < n)
                p[i + e] = from_float<T>(x[e]);
}
