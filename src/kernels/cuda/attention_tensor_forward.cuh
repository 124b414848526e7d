/* Forward attention with tensor cores. See attention_tensor.cuh. */
#pragma once
#include "src/kernels/cuda/attention_tensor_task.cuh"

template <int D, bool BIAS, bool DROP> struct forward_layout {
    static constexpr int q = 0, k = TENSOR_TILE * D * 2;
    /* If D is 128, V has only one buffer, so that three blocks fit on a multiprocessor. */
    static constexpr bool ONE_V = D == 128;
    static constexpr int v = k + 2 * STEP * D * 2, bias = v + (ONE_V ? 1 : 2) * STEP * D * 2;
    static constexpr int keep = bias + (BIAS ? 2 * (TENSOR_TILE + STEP) * 4 : 0);
    static constexpr int bytes = keep + (DROP ? 2 * TENSOR_TILE * (STEP / 8) : 0) + 1024;
};

/* For each of the thread's two rows, the running maximum of the scores and the running sum of their
 * exponentials. These are updated tile by tile (Milakov & Gimelshein 2018). */
typedef struct softmax_pair {
    float most[2], sum[2];
} softmax_pair;

/* Replace the scores of a tile by their exponentials, and add them to the running sums in `rows`.
 * Because the running maximum of row r may have grown, the sums that row r of the output already
 * contains must be multiplied by a factor. Set shrink[r] to this factor. */
template <int NF>
FSDP_DEVICE void softmax_step(float (&x)[NF][4], float (&shrink)[2], softmax_pair &rows,
                              float scale)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float most = rows.most[r], sum = 0;
#pragma unroll
        for (int n = 0; n < NF; n++)
            most = fmaxf(most, fmaxf(x[n][2 * r], x[n][2 * r + 1]));
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
        const float base = most == -INFINITY ? 0.0f : most * scale;
        shrink[r] = ex2(rows.most[r] * scale - base);
        rows.most[r] = most;
#pragma unroll
        for (int n = 0; n < NF; n++)
#pragma unroll
            for (int e = 2 * r; e < 2 * r + 2; e++) {
                x[n][e] = ex2(x[n][e] * scale - base);
                sum += x[n][e];
            }
        rows.sum[r] = rows.sum[r] * shrink[r] + sum;
    }
}

template <bool WGMMA, int D, bool BIAS, bool DROP>
inline constexpr int forward_blocks = D == 128                   ? (WGMMA ? 3 : 2)
                                      : !WGMMA || (BIAS && DROP) ? 3
                                                                 : 4;

template <typename T, int D, bool BIAS, bool DROP, bool WGMMA_WANTED>
static __global__ void __launch_bounds__(TENSOR_THREADS,
                                         forward_blocks<WGMMA_WANTED && HAS_WGMMA, D, BIAS, DROP>)
    attention_tensor_forward(const attention_params p)
{
    typedef forward_layout<D, BIAS, DROP> L;
    constexpr bool WGMMA = WGMMA_WANTED && HAS_WGMMA;
    constexpr int KF = D / 16, NF = STEP / 8, OF = D / 8, K_BYTES = STEP * D * 2;
    constexpr int BIASES = TENSOR_TILE + STEP, KEEP = TENSOR_TILE * (STEP / 8);
    TENSOR_SHARED(shared);
    const uint32_t s = smem_addr(shared);
    const tensor_task task = tensor_task_of(p.q_tiles, p.heads, blockIdx.x);
    const attention_tile &tile = task.tile;
    const int h = task.head, q0 = tile.first, t = task.t, row = task.row;
    const int64_t kv_column = (int64_t)(h / (p.heads / p.kv_heads)) * p.head_dim;
    const int64_t q_row = tile.query_row + q0, q_column = (int64_t)h * p.head_dim;
    const attention_range keys = visible_keys(p, tile, TENSOR_TILE, STEP);
    const int n_steps = count_steps(keys, STEP);
    const T *k = (const T *)p.k + tile.key_row * p.k_ld + kv_column;
    const T *v = (const T *)p.v + tile.key_row * p.v_ld + kv_column;

    auto copy_v = [&](uint32_t to, int k0) {
        load_tile<STEP, D>(to, v + k0 * p.v_ld, p.v_ld, tile.n_keys - k0, p.head_dim);
    };
    auto copy_keys = [&](int j) {
        const int stage = j & 1, k0 = keys.begin + j * STEP;
        load_tile<STEP, D>(s + L::k + stage * K_BYTES, k + k0 * p.k_ld, p.k_ld, tile.n_keys - k0,
                           p.head_dim);
        if (!L::ONE_V)
            copy_v(s + L::v + stage * K_BYTES, k0);
        if (BIAS)
            load_bias<BIASES - 1>(s + L::bias + stage * BIASES * 4, p, h, tile.shift,
                                  k0 - q0 - (TENSOR_TILE - 1));
    };
    auto make_bits = [&](int j) {
        if (DROP)
            make_keep_bits<TENSOR_TILE, STEP, TENSOR_THREADS>(
                (uint8_t *)shared + L::keep + (j & 1) * KEEP, p, tile, h, q0,
                keys.begin + j * STEP);
    };

    load_tile<TENSOR_TILE, D>(s + L::q, (const T *)p.q + q_row * p.q_ld + q_column, p.q_ld,
                              tile.n_queries - q0, p.head_dim);
    cp_commit();
    if (n_steps) {
        copy_keys(0);
        make_bits(0);
    }
    cp_commit();

    const float c = p.scale * LOG2E, c2 = BIAS ? 1.0f : c;
    float o[OF][4];
    softmax_pair rows = {{-INFINITY, -INFINITY}, {0, 0}};
    clear(o);
    for (int j = 0; j < n_steps; j++) {
        const int stage = j & 1, k0 = keys.begin + j * STEP;
        const uint32_t vs = s + L::v + (L::ONE_V ? 0 : stage) * K_BYTES;
        copies_arrive<WGMMA>();
        if (L::ONE_V) {
            copy_v(vs, k0);
            cp_commit();
        }
        if (j + 1 < n_steps)
            copy_keys(j + 1);
        cp_commit();
        float x[NF][4];
        products_begin<WGMMA>();
        multiply_nt<T, WGMMA, STEP, KF>(x, s + L::q, s + L::k + stage * K_BYTES);
        products_commit<WGMMA>();
        if (j + 1 < n_steps)
            make_bits(j + 1);
        products_wait<WGMMA, 0>();
        pin(x);
        if (BIAS) {
            const float *b =
                (const float *)(shared + L::bias) + stage * BIASES + TENSOR_TILE - 1 - row + 2 * t;
#pragma unroll
            for (int n = 0; n < NF; n++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    x[n][e] = x[n][e] * c + b[8 * n + (e & 1) - 8 * (e >> 1)] * LOG2E;
        }
        if (k0 + STEP > tile.n_keys || crosses_mask(p, tile.shift, q0, TENSOR_TILE, k0, STEP))
            hide_columns(x, seen_keys(p, tile, q0 + row), seen_keys(p, tile, q0 + row + 8), k0,
                         -INFINITY);
        float shrink[2];
        softmax_step(x, shrink, rows, c2);
#pragma unroll
        for (int n = 0; n < OF; n++) {
            o[n][0] *= shrink[0], o[n][1] *= shrink[0];
            o[n][2] *= shrink[1], o[n][3] *= shrink[1];
        }
        if (DROP)
            for_each_kept(shared + L::keep + stage * KEEP, task, [&](int n, int e, bool kept) {
                if (!kept)
                    x[n][e] = 0;
            });
        uint32_t weights[NF / 2][4];
        to_operand<T>(weights, x);
        if (L::ONE_V)
            copies_arrive<WGMMA, 1>();
        pin(weights);
        pin(o);
        products_begin<WGMMA>();
        multiply_nn<T, WGMMA, STEP>(o, weights, vs);
        products_commit<WGMMA>();
        products_wait<WGMMA, 0>();
        pin(weights);
        pin(o);
    }
    float factor[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float sum = rows.sum[r];
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        const bool sees = sum != 0.0f; /* also true if the sum is NaN */
        factor[r] = sees ? (DROP ? p.keep_factor : 1.0f) / sum : 0.0f;
        const float base = rows.most[r] == -INFINITY ? 0.0f : rows.most[r] * c2;
        if (t == 0 && q0 + row + 8 * r < tile.n_queries)
            p.lse[(int64_t)h * p.n_query_rows + q_row + row + 8 * r] =
                sees ? (base + log2f(sum)) * LN2 : -INFINITY;
    }
    if (!n_steps)
        cp_wait<0>();
    /* Wait until the products of all warps have ended. A product of another warp may still read
     * this warp's rows of Q from shared memory, and these rows are overwritten below. */
    __syncthreads();
    store_rows<TENSOR_TILE>(s + L::q, o, factor[0], factor[1],
                            (T *)p.out + q_row * p.out_ld + q_column, p.out_ld, tile.n_queries - q0,
                            p.head_dim);
}
