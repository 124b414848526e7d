/* CUDA's intrinsics for a C++ compiler. Those that hardware only approximates (__expf, rsqrtf and
 * others, within 1 or 2 ulp) are rounded correctly or nearly so here. */
#pragma once
#include <math.h>
#include <stdint.h>
#include <string.h>
#include <type_traits>

/* --- loads and stores with a cache hint --- */

template <typename T> static inline T __ldg(const T *p)
{
    return *p;
}
template <typename T> static inline T __ldcs(const T *p)
{
    return *p;
}
template <typename T> static inline T __ldcg(const T *p)
{
    return *p;
}
template <typename T> static inline void __stcs(T *p, T x)
{
    *p = x;
}

/* --- floats --- */

static inline float rsqrtf(float x)
{
    return (float)(1.0 / sqrt((double)x));
}
/* glibc declares some of these names itself. */
#define __expf(x) expf(x)
#define __logf(x) logf(x)
#define __log2f(x) log2f(x)
#define __powf(x, y) powf(x, y)
static inline float __fdividef(float x, float y)
{
    return x / y;
}
static inline float __fdiv_rn(float x, float y)
{
    return x / y;
}
static inline float __frcp_rn(float x)
{
    return 1 / x;
}
static inline float __fsqrt_rn(float x)
{
    return sqrtf(x);
}
static inline float __fmaf_rn(float x, float y, float z)
{
    return fmaf(x, y, z);
}
static inline float __fmul_rn(float x, float y)
{
    return x * y;
}
static inline float __fadd_rn(float x, float y)
{
    return x + y;
}
static inline float __fsub_rn(float x, float y)
{
    return x - y;
}
static inline double __fma_rn(double x, double y, double z)
{
    return fma(x, y, z);
}
static inline double __dmul_rn(double x, double y)
{
    return x * y;
}
static inline double __dadd_rn(double x, double y)
{
    return x + y;
}
/* NaN becomes 0, as on a card. */
static inline float __saturatef(float x)
{
    return x > 0 ? x < 1 ? x : 1 : 0;
}

/* --- integers --- */

static inline uint32_t __umulhi(uint32_t a, uint32_t b)
{
    return (uint32_t)((uint64_t)a * b >> 32);
}
static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
static inline int __clz(int x)
{
    return x ? __builtin_clz((unsigned)x) : 32;
}
static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}

/* --- bits as another type --- */

template <typename To, typename From> static inline To emu_bits(From x)
{
    static_assert(sizeof(To) == sizeof(From), "the types have one size");
    To y;
    memcpy(&y, &x, sizeof y);
    return y;
}
static inline unsigned __float_as_uint(float x)
{
    return emu_bits<unsigned>(x);
}
static inline int __float_as_int(float x)
{
    return emu_bits<int>(x);
}
static inline float __uint_as_float(unsigned x)
{
    return emu_bits<float>(x);
}
static inline float __int_as_float(int x)
{
    return emu_bits<float>(x);
}
static inline long long __double_as_longlong(double x)
{
    return emu_bits<long long>(x);
}
static inline double __longlong_as_double(long long x)
{
    return emu_bits<double>(x);
}

/* --- min and max of two types --- */

template <typename A, typename B> static inline typename std::common_type<A, B>::type min(A a, B b)
{
    typedef typename std::common_type<A, B>::type T;
    return (T)b < (T)a ? (T)b : (T)a;
}
template <typename A, typename B> static inline typename std::common_type<A, B>::type max(A a, B b)
{
    typedef typename std::common_type<A, B>::type T;
    return (T)a < (T)b ? (T)b : (T)a;
}
