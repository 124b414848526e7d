/* Clamps float16 values if one of them is infinite, and computes the gradient of this clamp. As on
 * the CPU, magnitudes are compared as integers. The integer of an element consists of the bits of
 * the element without its sign bit. The first kernel looks for infinite values and for values that
 * have the largest finite magnitude, and writes to device memory whether it has found any. The
 * second kernel reads this result from device memory, so the host need not wait for it. Usually no
 * such value was found, and the second kernel has nothing to do. */
#include "src/kernels/cuda/elements.cuh"

enum {
    THREADS = 256,
    /* elements that a thread processes at a time: 16 bytes; their codes take two bytes */
    GROUP = 8,

    MAGNITUDE = 0x7fff,
    INFINITE = 0x7c00,
    LARGEST = 0x7bff, /* 65504, the bound to which elements are clamped if no element is infinite */
    BOUND = 0x7be0,   /* 64512, the bound if an element is infinite */

    PER_BYTE = 4, /* codes of gradient factors in a byte of `factors` */

    /* The bits that may be set in byte 0 of `factors`. */
    HAS_INFINITE = 1,
    HAS_LARGEST = 2
};

/* Two-bit codes for the factors by which backward multiplies the gradients. */
enum {
    FACTOR_1,
    FACTOR_HALF, /* |x| is the bound: x gets half of the gradient, as in torch.clamp */
    FACTOR_0     /* x was clamped */
};

/* The values that the first kernel has found. `infinite` is 1 if at least one element is infinite,
 * and `largest` is 1 if at least one element has the magnitude LARGEST; otherwise they are 0. */
typedef struct findings {
    unsigned infinite, largest;
} findings;

struct alignas(16) group {
    uint16_t at[GROUP];
};

/* Load elements [i, i + GROUP) of an array of n elements. Elements past the end become zeros. */
FSDP_DEVICE group load_group(const uint16_t *from, int64_t i, int64_t n, bool vectors)
{
    group x;
    if (vectors && i + GROUP <= n)
        return *(const group *)(from + i);
#pragma unroll
    for (int j = 0; j < GROUP; j++)
        x.at[j] = i + j < n ? from[i + j] : (uint16_t)0;
    return x;
}

FSDP_DEVICE void store_group(uint16_t *to, group x, int64_t i, int64_t n, bool vectors)
{
    if (vectors && i + GROUP <= n) {
        *(group *)(to + i) = x;
        return;
    }
#pragma unroll
    for (int j = 0; j < GROUP; j++)
        if (i + j < n)
            to[i + j] = x.at[j];
}

/* --- forward --- */

static __global__ void __launch_bounds__(THREADS)
    look(findings *found, const uint16_t *x, int64_t n, bool vectors)
{
    const int64_t step = (int64_t)gridDim.x * THREADS * GROUP;
    bool infinite = false, largest = false;
    for (int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * GROUP; i < n; i += step) {
        const group some = load_group(x, i, n, vectors);
#pragma unroll
        for (int j = 0; j < GROUP; j++) {
            const unsigned magnitude = some.at[j] & MAGNITUDE;
            infinite |= magnitude == INFINITE;
            largest |= magnitude == LARGEST;
        }
    }
    infinite = __syncthreads_or(infinite);
    largest = __syncthreads_or(largest);
    if (threadIdx.x == 0 && infinite)
        atomicMax(&found->infinite, 1u);
    if (threadIdx.x == 0 && largest)
        atomicMax(&found->largest, 1u);
}

/* Clamp the elements of a group, and return the codes of their gradient factors. */
FSDP_DEVICE unsigned clamp_group(group *some, unsigned bound)
{
    unsigned codes = 0;
#pragma unroll
    for (int j = 0; j < GROUP; j++) {
        const unsigned x = some->at[j], magnitude = x & MAGNITUDE;
        const bool clamped = magnitude > bound && magnitude <= INFINITE;
        codes |= (clamped ? FACTOR_0 : magnitude == bound ? FACTOR_HALF : FACTOR_1) << 2 * j;
        if (clamped)
            some->at[j] = (uint16_t)((x & ~(unsigned)MAGNITUDE) | bound);
    }
    return codes;
}

/* Clamp all elements of x if an element of x is infinite. If `factors` is not NULL, write byte 0 of
 * `factors`. If an element is infinite or has the magnitude LARGEST, also write the codes after
 * byte 0. */
static __global__ void __launch_bounds__(THREADS)
    clamp(uint16_t *x, uint8_t *factors, const findings *found, int64_t n, bool vectors)
{
    const findings f = *found;
    if (factors && blockIdx.x == 0 && threadIdx.x == 0)
        factors[0] = (uint8_t)((f.infinite ? HAS_INFINITE : 0) | (f.largest ? HAS_LARGEST : 0));
    if (!f.infinite && !(f.largest && factors))
        return;
    const int64_t step = (int64_t)gridDim.x * THREADS * GROUP;
    for (int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * GROUP; i < n; i += step) {
        group some = load_group(x, i, n, vectors);
        const unsigned codes = clamp_group(&some, f.infinite ? BOUND : LARGEST);
        if (f.infinite)
            store_group(x, some, i, n, vectors);
        if (factors) {
            factors[1 + i / PER_BYTE] = (uint8_t)codes;
            if (i + PER_BYTE < n)
                factors[2 + i / PER_BYTE] = (uint8_t)(codes >> 8);
        }
    }
}

extern "C" void fsdp_cuda_clamp_infinite(fsdp_kernel_context *context, void *x, uint8_t *factors,
                                         int64_t n)
{
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    if (n <= 0 && !factors)
        return;
    const cudaStream_t stream = fsdp_cuda_stream(c);
    findings *found = (findings *)fsdp_cuda_scratch(c, sizeof *found);
    if (!found ||
        !fsdp_cuda_check(c, cudaMemsetAsync(found, 0, sizeof *found, stream), "clamp_infinite"))
        return;
    const unsigned blocks = blocks_for((n + GROUP - 1) / GROUP, THREADS);
    const bool vectors = is_vectorizable<__half>(0, x);
    if (n > 0)
        CUDA_LAUNCH(look, blocks, THREADS, 0, stream, found, (const uint16_t *)x, n, vectors);
    CUDA_LAUNCH(clamp, blocks, THREADS, 0, stream, (uint16_t *)x, factors, found, n, vectors);
    fsdp_cuda_launched(c, "clamp_infinite");
}

/* --- backward --- */

static __global__ void __launch_bounds__(THREADS)
    clamp_backward(uint16_t *dx, const uint16_t *dy, const uint8_t *factors, int64_t n,
                   bool vectors)
{
    const bool changes = factors[0] != 0;
    if (!changes && dx == dy)
        return;
    const int64_t step = (int64_t)gridDim.x * THREADS * GROUP;
    for (int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * GROUP; i < n; i += step) {
        group some = load_group(dy, i, n, vectors);
        unsigned codes = 0;
        if (changes)
            codes = factors[1 + i / PER_BYTE] | (i + PER_BYTE < n ? factors[2 + i / PER_BYTE] : 0u)
                                                    << 8;
#pragma unroll
        for (int j = 0; j < GROUP; j++) {
            const unsigned code = codes >> 2 * j & 3;
            const float half = 0.5f * __half2float(__ushort_as_half(some.at[j]));
            if (code != FACTOR_1)
                some.at[j] = code == FACTOR_0 ? 0 : __half_as_ushort(__float2half_rn(half));
        }
        store_group(dx, some, i, n, vectors);
    }
}

extern "C" void fsdp_cuda_clamp_infinite_backward(fsdp_kernel_context *context, void *dx,
                                                  const void *dy, const uint8_t *factors, int64_t n)
{
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    if (n <= 0)
        return;
    CUDA_LAUNCH(clamp_backward, blocks_for((n + GROUP - 1) / GROUP, THREADS), THREADS, 0,
                fsdp_cuda_stream(c), (uint16_t *)dx, (const uint16_t *)dy, factors, n,
                is_vectorizable<__half>(0, dx, dy));
    fsdp_cuda_launched(c, "clamp_infinite_backward");
}
