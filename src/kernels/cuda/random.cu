/* Normally distributed values. The kernel computes the same IEEE 754 operations in the same order
 * as the CPU's code (normal_block() in src/kernels/cpu/isa/memory.c, and fsdp_log() in vec.h). So
 * the values have the same bits as on the CPU, and a model begins with the same weights on both
 * devices. times() and plus() use intrinsics, because the compiler may contract the operators * and
 * + to a fused operation. */
#include "src/kernels/cuda/elementwise.cuh"
#include "src/kernels/cuda/philox.cuh"

enum {
    THREADS = 256,
    VALUES = 4 /* number of values that are computed from the four words of one counter */
};

FSDP_DEVICE float times(float x, float y)
{
    return __fmul_rn(x, y);
}

FSDP_DEVICE float plus(float x, float y)
{
    return __fadd_rn(x, y);
}

/* Return x y + z. The product is rounded, and then the sum is rounded. */
FSDP_DEVICE float times_plus(float x, float y, float z)
{
    return plus(times(x, y), z);
}

/* Return ln x for a normal positive x; see fsdp_log() in src/kernels/cpu/isa/vec.h. */
FSDP_DEVICE float natural_log(float x)
{
    const uint32_t bits = __float_as_uint(x) - 0x3f3504f3u;
    const float k = (float)((int32_t)bits >> 23);
    const float f = plus(__uint_as_float((bits & 0x7fffffu) + 0x3f3504f3u), -1.0f);
    float q = -0x1.38b57cp-4f;
    q = times_plus(q, f, 0x1.055b68p-3f);
    q = times_plus(q, f, -0x1.0d8542p-3f);
    q = times_plus(q, f, 0x1.22da1ep-3f);
    q = times_plus(q, f, -0x1.547244p-3f);
    q = times_plus(q, f, 0x1.99a008p-3f);
    q = times_plus(q, f, -0x1.000226p-2f);
    q = times_plus(q, f, 0x1.555554p-2f);
    const float f2 = times(f, f);
    const float rest = plus(times(times(f2, f), q), -times(0.5f, f2));
    return times_plus(k, 0x1.62e4p-1f, plus(times_plus(k, 0x1.7f7d1cp-20f, rest), f));
}

struct point {
    float x, y;
};

/* Return the point of the unit circle at an angle of u turns, u in [0, 1); see sin_cos_turn() in
 * src/kernels/cpu/isa/memory.c. */
FSDP_DEVICE point on_circle(float u)
{
    const float quarters = times(4.0f, u), shifted = plus(quarters, 0x1.8p23f);
    const uint32_t turn = __float_as_uint(shifted);
    const float y = plus(quarters, -plus(shifted, -0x1.8p23f)), z = times(y, y);
    float s = -0x1.2d9b30p-8f;
    s = times_plus(s, z, 0x1.465ec4p-4f);
    s = times_plus(s, z, -0x1.4abbbap-1f);
    s = times(times_plus(s, z, 0x1.921fb6p+0f), y);
    float c = 0x1.d9fc24p-11f;
    c = times_plus(c, z, -0x1.55c676p-6f);
    c = times_plus(c, z, 0x1.03c1dep-2f);
    c = times_plus(c, z, -0x1.3bd3ccp+0f);
    c = times_plus(c, z, 1.0f);
    const bool odd = turn & 1;
    const uint32_t sine_sign = (turn & 2) << 30, cosine_sign = ((turn + 1) & 2) << 30;
    return {__uint_as_float(__float_as_uint(odd ? s : c) ^ cosine_sign),
            __uint_as_float(__float_as_uint(odd ? c : s) ^ sine_sign)};
}

/* Return two values of the standard normal distribution, made from two random words (Box & Muller
 * 1958). */
FSDP_DEVICE point normal_pair(uint32_t radius_bits, uint32_t angle_bits)
{
    const float u = times_plus((float)(int32_t)(radius_bits >> 1), 0x1p-31f, 0x1p-32f);
    const float radius = __fsqrt_rn(times(-2.0f, natural_log(u)));
    const point p = on_circle(times((float)(angle_bits >> 8), 0x1p-24f));
    return {times(radius, p.x), times(radius, p.y)};
}

/* Write values [first, first + n) of a parameter to dst. Values [4 q, 4 q + 4) of the whole
 * parameter are computed from the random words of counter q. */
template <typename T>
static __global__ void __launch_bounds__(THREADS)
    normal(T *dst, uint64_t key, int64_t first, int64_t n, float mean, float std, bool vectors)
{
    const int64_t counters = (first + n + VALUES - 1) / VALUES, step = (int64_t)gridDim.x * THREADS;
    int64_t q = first / VALUES + (int64_t)blockIdx.x * THREADS + threadIdx.x;
    for (; q < counters; q += step) {
        const philox_words words = philox(key, (uint64_t)q);
        const point a = normal_pair(words.v[0], words.v[1]);
        const point b = normal_pair(words.v[2], words.v[3]);
        const int64_t i = q * VALUES - first;
        float z[VALUES] = {a.x, a.y, b.x, b.y};
#pragma unroll
        for (int j = 0; j < VALUES; j++)
            z[j] = plus(mean, times(std, z[j]));
        if (i >= 0)
            store_group(dst, z, i, n, vectors);
        else
            for (int j = 0; j < VALUES; j++)
                if (i + j >= 0 && i + j < n)
                    dst[i + j] = from_float<T>(z[j]);
    }
}

extern "C" void fsdp_cuda_normal(fsdp_kernel_context *context, void *dst, fsdp_dtype dtype,
                                 uint64_t key, int64_t first, int64_t n, float mean, float std)
{
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    if (n <= 0)
        return;
    const int64_t counters = (first + n + VALUES - 1) / VALUES - first / VALUES;
    with_type(dtype, [&](auto zero) {
        typedef decltype(zero) T;
        CUDA_LAUNCH(normal<T>, blocks_for(counters, THREADS), THREADS, 0, fsdp_cuda_stream(c),
                    (T *)dst, key, first, n, mean, std,
                    first % VALUES == 0 && is_vectorizable<T>(0, dst));
    });
    fsdp_cuda_launched(c, "normal");
}
