/* Backward attention with tensor cores: the kernel for d_q and delta. It also writes the rows of
 * bias_parts. Another kernel adds up these rows to get the gradient of the bias. See
 * attention_tensor.cuh. */
#pragma once
#include "src/kernels/cuda/attention_tensor_task.cuh"

enum {
    /* Row stride, in floats, of the buffer in which a warp adds up diagonals. The stride is 8
     * modulo 32, so that the warp can store pairs of floats without bank conflicts. */
    DIAGONAL_LD = 104
};

template <int D, bool BIAS, bool DROP> struct d_q_layout {
    static constexpr int q = 0, g = TENSOR_TILE * D * 2, k = 2 * TENSOR_TILE * D * 2;
    static constexpr int v = k + 2 * STEP * D * 2, bias = v + 2 * STEP * D * 2;
    static constexpr int keep = bias + (BIAS ? 2 * (TENSOR_TILE + STEP) * 4 : 0);
    static constexpr int diagonals = keep + (DROP ? 2 * TENSOR_TILE * (STEP / 8) : 0);
    static constexpr int bytes = diagonals + (BIAS ? 4 * 8 * DIAGONAL_LD * 4 : 0) + 1024;
};

/* Return delta of a row: the dot product of `out` and d_out. Four threads, numbered t = 0 to 3,
 * read the row together. From every 64 bytes of the row, thread t reads the 16 bytes that begin at
 * byte 16 t. If `valid` is false, return 0. */
template <typename T>
FSDP_DEVICE float row_delta(const T *out, const T *d_out, int t, int head_dim, bool valid)
{
    float sum = 0;
    for (int d = t * 8; valid && d < head_dim; d += 32) {
        const vector_of<T> x = *(const vector_of<T> *)(out + d),
                           y = *(const vector_of<T> *)(d_out + d);
#pragma unroll
        for (int e = 0; e < 8; e++)
            sum += to_float(x.at[e]) * to_float(y.at[e]);
    }
    sum += __shfl_xor_sync(~0u, sum, 1);
    return sum + __shfl_xor_sync(~0u, sum, 2);
}

/* Add up the diagonals of a warp's matrix of gradients of scores, which has 16 rows and 64 columns.
 * The element at row r and column c is on diagonal c - r. A thread has columns 8 n + 2 t + e of
 * rows g and g + 8, for n < 8 and e < 2. It first adds its two elements that are on the same
 * diagonal: (g, 8 m + 2 t + e) and (g + 8, 8 (m + 1) + 2 t + e), for m from -1 to 7. It stores each
 * sum in row g of `shared`, at 16 + 8 m + 2 t + e; the elements before and after the sums are
 * zeros. Diagonal d is then at 16 + d + g of row g, so a thread's loads are at constant offsets.
 * Diagonals from 48 on continue in the next tile, so `carry` keeps their sums until the next
 * call. */
template <int NF>
FSDP_DEVICE void add_diagonals(float *part, float &carry, float *shared, const float (&x)[NF][4],
                               int lane)
{
    static_assert(NF == 8, "tiles have 64 keys");
    const int g = lane >> 2, t = lane & 3;
#pragma unroll
    for (int m = 0; m < NF + 1; m++) {
        float2 z = make_float2(0, 0);
        if (m > 0)
            z = make_float2(x[m - 1][0], x[m - 1][1]);
        if (m < NF)
            z.x += x[m][2], z.y += x[m][3];
        *(float2 *)(shared + g * DIAGONAL_LD + 8 + 8 * m + 2 * t) = z;
    }
    __syncwarp();
    float z[3] = {0, 0, 0}; /* sums over the diagonals lane - 16, lane + 16 and lane + 48 */
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const float *e = shared + i * (DIAGONAL_LD + 1) + lane;
        z[0] += e[0], z[1] += e[32], z[2] += e[64];
    }
    part[lane] = z[0] + carry;
    part[32 + lane] = z[1];
    carry = lane < 16 ? z[2] : 0.0f;
    __syncwarp();
}

template <bool WGMMA, int D, bool BIAS>
inline constexpr int d_q_blocks = D == 64 && WGMMA && !BIAS ? 3 : 2;

template <typename T, int D, bool BIAS, bool DROP, bool WGMMA_WANTED>
static __global__ void __launch_bounds__(TENSOR_THREADS,
                                         d_q_blocks<WGMMA_WANTED && HAS_WGMMA, D, BIAS>)
    attention_tensor_d_q(const attention_params p)
{
    typedef d_q_layout<D, BIAS, DROP> L;
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
    const int n_steps = count_steps(keys, STEP), n = tile.n_queries - q0;
    const T *k = (const T *)p.k + tile.key_row * p.k_ld + kv_column;
    const T *v = (const T *)p.v + tile.key_row * p.v_ld + kv_column;
    const T *d_out = (const T *)p.d_out + q_row * p.out_ld + q_column;
    const T *out = (const T *)p.out + q_row * p.out_ld + q_column;

    auto copy_keys = [&](int j) {
        const int stage = j & 1, k0 = keys.begin + j * STEP, valid = tile.n_keys - k0;
        load_tile<STEP, D>(s + L::k + stage * K_BYTES, k + k0 * p.k_ld, p.k_ld, valid, p.head_dim);
        load_tile<STEP, D>(s + L::v + stage * K_BYTES, v + k0 * p.v_ld, p.v_ld, valid, p.head_dim);
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

    load_tile<TENSOR_TILE, D>(s + L::q, (const T *)p.q + q_row * p.q_ld + q_column, p.q_ld, n,
                              p.head_dim);
    load_tile<TENSOR_TILE, D>(s + L::g, d_out, p.out_ld, n, p.head_dim);
    cp_commit();
    if (n_steps) {
        copy_keys(0);
        make_bits(0);
    }
    cp_commit();

    float delta[2], lse2[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int i = row + 8 * r;
        const int64_t at = (int64_t)h * p.n_query_rows + q_row + i;
        delta[r] = row_delta(out + i * p.out_ld, d_out + i * p.out_ld, t, p.head_dim, i < n);
        const float lse = i < n ? p.lse[at] : -INFINITY;
        /* If the query sees no key, set lse2 to infinity, so that all its exponentials become
         * zero. */
        lse2[r] = lse == -INFINITY ? INFINITY : lse * LOG2E;
        if (t == 0 && i < n) {
            p.delta[at] = delta[r];
            p.lse2[at] = lse2[r];
        }
    }
    const float c = p.scale * LOG2E;
    const bool d_bias = BIAS && p.bias_parts;
    float *diagonals = (float *)(shared + L::diagonals) + task.warp * (8 * DIAGONAL_LD);
    if (d_bias)
        for (int e = task.lane; e < 8 * DIAGONAL_LD; e += 32)
            diagonals[e] = 0; /* the loop's first barrier makes these zeros visible to the warp */
    float *part =
        d_bias ? p.bias_parts + (((int64_t)task.index * p.heads + h) * 4 + task.warp) * p.part_ld
               : NULL;
    float d_q[OF][4], carry = 0;
    clear(d_q);
    for (int j = 0; j < n_steps; j++) {
        const int stage = j & 1, k0 = keys.begin + j * STEP;
        const uint32_t ks = s + L::k + stage * K_BYTES, vs = s + L::v + stage * K_BYTES;
        copies_arrive<WGMMA>();
        if (j + 1 < n_steps)
            copy_keys(j + 1);
        cp_commit();
        float x[NF][4], y[NF][4];
        products_begin<WGMMA>();
        multiply_nt<T, WGMMA, STEP, KF>(x, s + L::q, ks);
        products_commit<WGMMA>();
        multiply_nt<T, WGMMA, STEP, KF>(y, s + L::g, vs);
        products_commit<WGMMA>();
        if (j + 1 < n_steps)
            make_bits(j + 1);
        products_wait<WGMMA, 1>();
        pin(x);
        const float *b =
            (const float *)(shared + L::bias) + stage * BIASES + TENSOR_TILE - 1 - row + 2 * t;
#pragma unroll
        for (int m = 0; m < NF; m++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const float z =
                    BIAS ? b[8 * m + (e & 1) - 8 * (e >> 1)] * LOG2E - lse2[e >> 1] : -lse2[e >> 1];
                x[m][e] = ex2(x[m][e] * c + z);
            }
        if (k0 + STEP > tile.n_keys || crosses_mask(p, tile.shift, q0, TENSOR_TILE, k0, STEP))
            hide_columns(x, seen_keys(p, tile, q0 + row), seen_keys(p, tile, q0 + row + 8), k0,
                         0.0f);
        products_wait<WGMMA, 0>();
        pin(y);
        if (DROP)
            for_each_kept(shared + L::keep + stage * KEEP, task, [&](int m, int e, bool kept) {
                y[m][e] = kept ? y[m][e] * p.keep_factor : 0.0f;
            });
#pragma unroll
        for (int m = 0; m < NF; m++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                x[m][e] *= y[m][e] - delta[e >> 1];
        uint32_t d_scores[NF / 2][4];
        to_operand<T>(d_scores, x);
        pin(d_scores);
        pin(d_q);
        products_begin<WGMMA>();
        multiply_nn<T, WGMMA, STEP>(d_q, d_scores, ks);
        products_commit<WGMMA>();
        if (d_bias) /* this runs at the same time as the product */
            add_diagonals(part + j * STEP, carry, diagonals, x, task.lane);
        products_wait<WGMMA, 0>();
        pin(d_scores);
        pin(d_q);
    }
    if (d_bias && n_steps && task.lane < 16)
        part[n_steps * STEP + task.lane] = carry;
    if (!n_steps)
        cp_wait<0>();
    /* Wait until the products of all warps have ended. A product of another warp may still read
     * this warp's rows of Q from shared memory, and these rows are overwritten below. */
    __syncthreads();
    store_rows<TENSOR_TILE>(s + L::q, d_q, p.scale, p.scale,
                            (T *)p.d_q + q_row * p.d_q_ld + q_column, p.d_q_ld, n, p.head_dim);
}
