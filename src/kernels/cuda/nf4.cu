/* Reads weights in NF4: Note [NF4] in src/kernels/nf4.h. A thread computes eight adjacent elements
 * at a time. Their indices take four bytes. The levels and the map are in shared memory, because
 * each thread looks up different entries. The Makefile compiles this file with -fmad=false, so the
 * values have the bits of the CPU. */
#include "src/kernels/cuda/row_access.cuh"

enum {
    THREADS = 256,
    GROUP = 8, /* elements that a thread computes at a time */
};

struct nf4_levels {
    float at[FSDP_NF4_LEVELS];
};

/* A number by which quotient() divides. The divisor is the number of elements in a block, which is
 * usually a power of two. In this case quotient() shifts, which is much faster than a division. */
struct divisor {
    int64_t by;
    int shift; /* log2 of `by`; -1: `by` is no power of two */
};

static divisor divisor_of(int64_t by)
{
    int shift = 0;
    while (shift < 62 && (int64_t)1 << shift < by)
        shift++;
    return {by, (int64_t)1 << shift == by ? shift : -1};
}

FSDP_DEVICE int64_t quotient(int64_t x, divisor d)
{
    return d.shift >= 0 ? x >> d.shift : x / d.by;
}

/* The scales of a part, all in device memory. With double quantization, absmax is NULL. */
struct nf4_scales {
    divisor block, nested_block;
    const float *absmax;
    const uint8_t *codes;
    const float *nested;
    float offset;
};

FSDP_DEVICE float scale_of(const nf4_scales &s, const float *map, int64_t block)
{
    return s.absmax ? s.absmax[block]
                    : map[s.codes[block]] * s.nested[quotient(block, s.nested_block)] + s.offset;
}

/* Return the bytes with the indices of elements [i, i + GROUP); the first byte is the lowest one.
 */
FSDP_DEVICE uint32_t load_indices(const uint8_t *packed, int64_t i, int64_t n, bool vectors)
{
    if (vectors && i + GROUP <= n)
        return *(const uint32_t *)(packed + i / 2);
    uint32_t bytes = 0;
#pragma unroll
    for (int b = 0; b < GROUP / 2; b++)
        if (i + 2 * b < n)
            bytes |= (uint32_t)packed[i / 2 + b] << 8 * b;
    return bytes;
}

/* `is_uniform` is true if all elements of a group have the same scale. */
template <typename T>
static __global__ void __launch_bounds__(THREADS)
    dequantize(T *out, const uint8_t *packed, int64_t n, nf4_scales scales, nf4_levels levels,
               const float *map, bool is_uniform, bool vectors)
{
    SHARED(float, of_map, [FSDP_NF4_MAP]);
    SHARED(float, of_level, [FSDP_NF4_LEVELS]);
    if (threadIdx.x < FSDP_NF4_LEVELS)
        of_level[threadIdx.x] = levels.at[threadIdx.x];
    if (map)
        of_map[threadIdx.x] = map[threadIdx.x];
    __syncthreads();
    const int64_t step = (int64_t)gridDim.x * THREADS * GROUP;
    for (int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * GROUP; i < n; i += step) {
        const uint32_t bytes = load_indices(packed, i, n, vectors);
        float scale = scale_of(scales, of_map, quotient(i, scales.block)), values[GROUP];
#pragma unroll
        for (int b = 0; b < GROUP / 2; b++) {
            if (b && !is_uniform && i + 2 * b < n)
                scale = scale_of(scales, of_map, quotient(i + 2 * b, scales.block));
            const uint32_t two = bytes >> 8 * b & 0xff;
            values[2 * b] = of_level[two >> 4] * scale;
            values[2 * b + 1] = of_level[two & 0xf] * scale;
        }
        store_floats<GROUP>(out, i, n, values, vectors && i + GROUP <= n);
    }
}

static_assert((int)THREADS == (int)FSDP_NF4_MAP, "each thread copies one number of the map");

extern "C" void fsdp_cuda_nf4_dequantize(fsdp_kernel_context *context, const fsdp_nf4_args *args)
{
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    const fsdp_nf4_args *a = args;
    const int64_t blocks = ceil_div(a->n, a->block);
    nf4_scales scales = {divisor_of(a->block), {}, a->absmax, a->codes, NULL, a->offset};
    nf4_levels levels;
    const float *map = NULL;
    if (a->n <= 0)
        return;
    memcpy(levels.at, fsdp_nf4_levels, sizeof levels.at);
    if (!a->absmax) {
        const int64_t nested = ceil_div(blocks, a->nested_block);
        scales.nested_block = divisor_of(a->nested_block);
        scales.nested =
            (const float *)fsdp_cuda_upload(c, a->nested, (size_t)nested * sizeof(float));
        map = (const float *)fsdp_cuda_upload(c, a->map, FSDP_NF4_MAP * sizeof(float));
        if (!scales.nested || !map)
            return;
    }
    with_type(a->dtype, [&](auto zero) {
        typedef decltype(zero) T;
        CUDA_LAUNCH(dequantize<T>, blocks_for(ceil_div(a->n, GROUP), THREADS), THREADS, 0,
                    fsdp_cuda_stream(c), (T *)a->out, a->packed, a->n, scales, levels, map,
                    a->block % GROUP == 0,
                    is_aligned_16(a->out) && (uintptr_t)a->packed % sizeof(uint32_t) == 0);
    });
    fsdp_cuda_launched(c, "nf4_dequantize");
}
