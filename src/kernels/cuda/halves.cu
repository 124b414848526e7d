/* Splits float32 values into halves and joins them again; see Note [Halves] in src/base/halves.h.
 * Each thread processes four adjacent elements, so the accesses of a warp are adjacent, too. The
 * elements of four threads share a word of mark bits. */
#include "src/kernels/cuda/halves.cuh"

enum {
    THREADS = 256,
    GROUP = 4 /* number of elements that a thread processes at a time */
};

struct alignas(8) four_halves {
    uint16_t at[GROUP];
};
struct alignas(16) four_floats {
    float at[GROUP];
};

/* Load elements [i, i + GROUP) of `from`. If `vectors` is true and the array has all of these
 * elements, load them by one access. Elements past the end of the array become 0. */
template <typename V, typename T>
FSDP_DEVICE V load_four(const T *from, int64_t i, int64_t n, bool vectors)
{
    V some;
    if (vectors && i + GROUP <= n)
        return *(const V *)(from + i);
#pragma unroll
    for (int j = 0; j < GROUP; j++)
        some.at[j] = i + j < n ? from[i + j] : (T)0;
    return some;
}

template <typename V, typename T>
FSDP_DEVICE void store_four(T *to, V some, int64_t i, int64_t n, bool vectors)
{
    if (vectors && i + GROUP <= n) {
        *(V *)(to + i) = some;
        return;
    }
#pragma unroll
    for (int j = 0; j < GROUP; j++)
        if (i + j < n)
            to[i + j] = some.at[j];
}

static __global__ void __launch_bounds__(THREADS)
    join(float *to, fsdp_halves from, int64_t n, bool vectors)
{
    const int64_t step = (int64_t)gridDim.x * THREADS * GROUP;
    for (int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * GROUP; i < n; i += step) {
        const four_halves hi = load_four<four_halves>(from.hi, i, n, vectors);
        const four_halves lo = load_four<four_halves>(from.lo, i, n, vectors);
        const uint32_t marks = from.marks[i / FSDP_HALVES_WORD] >> i % FSDP_HALVES_WORD;
        four_floats x;
#pragma unroll
        for (int j = 0; j < GROUP; j++)
            x.at[j] = join_half({hi.at[j], lo.at[j], marks >> j & 1});
        store_four(to, x, i, n, vectors);
    }
}

/* All threads of a warp run the loop the same number of times, because they exchange mark bits.
 * Elements past the end of the array are zeros, so the unused mark bits of the last word become
 * 0. */
static __global__ void __launch_bounds__(THREADS)
    split(fsdp_halves to, const float *from, int64_t n, bool vectors)
{
    const int64_t step = (int64_t)gridDim.x * THREADS * GROUP;
    for (int64_t first = (int64_t)blockIdx.x * THREADS * GROUP; first < n; first += step) {
        const int64_t i = first + threadIdx.x * GROUP;
        const four_floats x = load_four<four_floats>(from, i, n, vectors);
        four_halves hi, lo;
        uint32_t marks = 0;
#pragma unroll
        for (int j = 0; j < GROUP; j++) {
            const half_pair h = split_half(x.at[j]);
            hi.at[j] = h.hi;
            lo.at[j] = h.lo;
            marks |= h.mark << j;
        }
        store_four(to.hi, hi, i, n, vectors);
        store_four(to.lo, lo, i, n, vectors);
        marks <<= i % FSDP_HALVES_WORD;
        marks |= __shfl_xor_sync(~0u, marks, 1);
        marks |= __shfl_xor_sync(~0u, marks, 2);
        if (i % FSDP_HALVES_WORD == 0 && i < n)
            to.marks[i / FSDP_HALVES_WORD] = (uint16_t)marks;
    }
}

static unsigned blocks_of(int64_t n)
{
    return blocks_for((n + GROUP - 1) / GROUP, THREADS);
}

extern "C" void fsdp_cuda_join(fsdp_kernel_context *context, float *dst, fsdp_halves src, int64_t n)
{
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    if (n <= 0)
        return;
    CUDA_LAUNCH(join, blocks_of(n), THREADS, 0, fsdp_cuda_stream(c), dst, src, n,
                is_vectorizable<float>(0, dst, src.hi, src.lo));
    fsdp_cuda_launched(c, "join");
}

extern "C" void fsdp_cuda_split(fsdp_kernel_context *context, fsdp_halves dst, const float *src,
                                int64_t n)
{
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    if (n <= 0)
        return;
    CUDA_LAUNCH(split, blocks_of(n), THREADS, 0, fsdp_cuda_stream(c), dst, src, n,
                is_vectorizable<float>(0, src, dst.hi, dst.lo));
    fsdp_cuda_launched(c, "split");
}
