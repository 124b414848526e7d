/* Attention with tensor cores, for bfloat16 and float16; see Note [Attention in tiles] in
 * attention.cuh and Note [Rows in registers] in attention_products.cuh. Each attention_tensor_*.cu
 * compiles the kernels for some dtypes and head widths.
 *
 * D is 64 or 128. In shared memory, columns from head_dim on are zeros. Forward and d_q read keys
 * tile by tile, and d_kv reads queries tile by tile. There are two buffers in shared memory for
 * these tiles: while the kernel computes with one tile, the next tile is copied to the other
 * buffer. Exponentials are to base 2.
 *
 * In each of the three kernels, the threads compute the dropout bits of the next tile while the
 * tensor cores work on the current one. Backward computes the bits again, because storing them in
 * forward would take one bit of memory for each score. */
#pragma once
#include "src/kernels/cuda/attention_tensor_d_kv.cuh"
#include "src/kernels/cuda/attention_tensor_d_q.cuh"
#include "src/kernels/cuda/attention_tensor_forward.cuh"

/* The kernels for one dtype T, one head width D and one set of features. Kernels whose BIAS or DROP
 * is true also accept arguments without a bias or without dropout. */
template <typename T, int D, bool BIAS, bool DROP, bool WGMMA> struct tensor_kernels {
    static void forward(fsdp_cuda_context *c, const attention_params &p)
    {
        attention_start(c, attention_tensor_forward<T, D, BIAS, DROP, WGMMA>,
                        dim3((unsigned)(p.n_q_tiles * p.heads)), TENSOR_THREADS,
                        forward_layout<D, BIAS, DROP>::bytes, p);
    }
    static void backward(fsdp_cuda_context *c, const attention_params &p)
    {
        attention_start(c, attention_tensor_d_q<T, D, BIAS, DROP, WGMMA>,
                        dim3((unsigned)(p.n_q_tiles * p.heads)), TENSOR_THREADS,
                        d_q_layout<D, BIAS, DROP>::bytes, p);
        attention_start(c, attention_tensor_d_kv<T, D, BIAS, DROP, WGMMA>,
                        dim3((unsigned)(p.n_k_tiles * p.kv_heads)), TENSOR_THREADS,
                        d_kv_bytes(fsdp_cuda_capability(c) == 90), p);
    }
    static size_t d_kv_bytes(bool wgmma)
    {
        return wgmma ? d_kv_layout<D, query_step<true, D>, BIAS, DROP>::bytes
                     : d_kv_layout<D, query_step<false, D>, BIAS, DROP>::bytes;
    }
};

/* Start the kernels for the features that p uses. If ALL is true, kernels are compiled for each
 * combination of bias and dropout. Otherwise there are only kernels with both features and kernels
 * with neither. */
template <typename T, int D, bool ALL, bool WGMMA, bool BACKWARD>
static void start_tensor_kernels(fsdp_cuda_context *c, const attention_params &p)
{
    auto start = [&](auto kernels) {
        if (BACKWARD)
            kernels.backward(c, p);
        else
            kernels.forward(c, p);
    };
    const bool bias = p.bias || p.bias_parts;
    if constexpr (ALL) {
        if (bias && !p.drops)
            return start(tensor_kernels<T, D, true, false, WGMMA>());
        if (!bias && p.drops)
            return start(tensor_kernels<T, D, false, true, WGMMA>());
    }
    if (bias || p.drops)
        start(tensor_kernels<T, D, true, true, WGMMA>());
    else
        start(tensor_kernels<T, D, false, false, WGMMA>());
}

template <typename T, int D, bool ALL, bool BACKWARD>
static void start_tensor(fsdp_cuda_context *c, const attention_params &p)
{
#ifdef CUDA_EMULATED
    if (fsdp_cuda_capability(c) != 90)
        return start_tensor_kernels<T, D, ALL, false, BACKWARD>(c, p);
#endif
    start_tensor_kernels<T, D, ALL, true, BACKWARD>(c, p);
}

template <typename T, int D, bool ALL> constexpr attention_kernels tensor_attention(void)
{
    attention_kernels k = {TENSOR_TILE,
                           TENSOR_TILE,
                           STEP,
                           4,
                           forward_layout<D, true, true>::bytes,
                           d_q_layout<D, true, true>::bytes,
                           start_tensor<T, D, ALL, false>,
                           start_tensor<T, D, ALL, true>};
    return k;
}
