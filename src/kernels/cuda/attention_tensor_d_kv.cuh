/* Backward attention with tensor cores: the kernel for d_k and d_v. See attention_tensor.cuh. */
#pragma once
#include "src/kernels/cuda/attention_tensor_task.cuh"

/* The number of queries that the kernel for d_k and d_v processes at a time. */
template <bool WGMMA, int D> inline constexpr int query_step = D == 128 && !WGMMA ? 32 : 64;

template <int D, int QUERIES, bool BIAS, bool DROP> struct d_kv_layout {
    static constexpr int k = 0, v = TENSOR_TILE * D * 2, q = 2 * TENSOR_TILE * D * 2;
    static constexpr int g = q + 2 * QUERIES * D * 2, stats = g + 2 * QUERIES * D * 2;
    static constexpr int bias = stats + 2 * 2 * QUERIES * 4;
    static constexpr int keep = bias + (BIAS ? 2 * (TENSOR_TILE + QUERIES) * 4 : 0);
    static constexpr int bytes = keep + (DROP ? 2 * QUERIES * (TENSOR_TILE / 8) : 0) + 1024;
};

/* The columns of the tile are divided into blocks that are eight columns wide. In each block, the
 * thread computes four elements, which are numbered 0 to 3. Return the dropout bits of these
 * elements of block n. Rows are keys, and columns are queries. */
FSDP_DEVICE uint32_t column_bits(const char *keep, const tensor_task &task, int n)
{
    const int g = task.lane >> 2;
    uint32_t bits = 0;
#pragma unroll
    for (int e = 0; e < 2; e++) {
        const uint32_t x = *(const uint16_t *)(keep + (8 * n + 2 * task.t + e) * (TENSOR_TILE / 8) +
                                               task.warp * 2);
        bits |= (x >> g & 1) << e | (x >> (g + 8) & 1) << (e + 2);
    }
    return bits;
}

template <bool WGMMA, int D> inline constexpr int d_kv_blocks = D == 64 && WGMMA ? 3 : 2;

template <typename T, int D, bool BIAS, bool DROP, bool WGMMA_WANTED>
static __global__ void __launch_bounds__(TENSOR_THREADS, d_kv_blocks<WGMMA_WANTED && HAS_WGMMA, D>)
    attention_tensor_d_kv(const attention_params p)
{
    constexpr bool WGMMA = WGMMA_WANTED && HAS_WGMMA;
    constexpr int QUERIES = query_step<WGMMA, D>;
    typedef d_kv_layout<D, QUERIES, BIAS, DROP> L;
    constexpr int KF = D / 16, NF = QUERIES / 8, OF = D / 8, Q_BYTES = QUERIES * D * 2;
    constexpr int BIASES = TENSOR_TILE + QUERIES, KEEP = QUERIES * (TENSOR_TILE / 8);
    TENSOR_SHARED(shared);
    const uint32_t s = smem_addr(shared);
    const tensor_task task = tensor_task_of(p.k_tiles, p.kv_heads, blockIdx.x);
    const attention_tile &tile = task.tile;
    const int k0 = tile.first, t = task.t, row = task.row;
    const int64_t k_row = tile.key_row + k0, k_column = (int64_t)task.head * p.head_dim;
    const attention_range queries = visible_queries(p, tile, TENSOR_TILE, QUERIES);
    const int n = tile.n_keys - k0;
    auto copy_queries = [&](int stage, int h, int q0) {
        const int valid = tile.n_queries - q0;
        const int64_t q_row = tile.query_row + q0, q_column = (int64_t)h * p.head_dim;
        load_tile<QUERIES, D>(s + L::q + stage * Q_BYTES,
                              (const T *)p.q + q_row * p.q_ld + q_column, p.q_ld, valid,
                              p.head_dim);
        load_tile<QUERIES, D>(s + L::g + stage * Q_BYTES,
                              (const T *)p.d_out + q_row * p.out_ld + q_column, p.out_ld, valid,
                              p.head_dim);
        static_assert(2 * QUERIES <= TENSOR_THREADS, "each thread copies at most one");
        /* the first QUERIES threads copy lse2, the next QUERIES threads copy delta */
        if (threadIdx.x < 2 * QUERIES) {
            const int i = threadIdx.x % QUERIES;
            const int at = L::stats + (stage * 2 * QUERIES + threadIdx.x) * 4;
            const float *from = threadIdx.x < QUERIES ? p.lse2 : p.delta;
            if (i < valid)
                cp4(s + at, from + (int64_t)h * p.n_query_rows + q_row + i, true);
            else /* past the last query, lse2 is infinite, so exponentials become zero */
                *(float *)(shared + at) = threadIdx.x < QUERIES ? INFINITY : 0.0f;
        }
        if (BIAS)
            load_bias<BIASES - 1>(s + L::bias + stage * BIASES * 4, p, h, tile.shift,
                                  k0 - q0 - (QUERIES - 1));
    };
    auto make_bits = [&](int stage, int h, int q0) {
        if (DROP)
            make_keep_bits<QUERIES, TENSOR_TILE, TENSOR_THREADS>(
                (uint8_t *)shared + L::keep + stage * KEEP, p, tile, h, q0, k0);
    };

    /* The head and the first query of the next step. The last head is end_head - 1. */
    int h = task.head * (p.heads / p.kv_heads), q0 = queries.begin;
    const int end_head = queries.end > queries.begin ? h + p.heads / p.kv_heads : h;
    load_tile<TENSOR_TILE, D>(s + L::k, (const T *)p.k + k_row * p.k_ld + k_column, p.k_ld, n,
                              p.head_dim);
    load_tile<TENSOR_TILE, D>(s + L::v, (const T *)p.v + k_row * p.v_ld + k_column, p.v_ld, n,
                              p.head_dim);
    cp_commit();
    if (h < end_head) {
        copy_queries(0, h, q0);
        make_bits(0, h, q0);
    }
    cp_commit();
    float d_k[OF][4], d_v[OF][4];
    clear(d_k);
    clear(d_v);
    const float c = p.scale * LOG2E;

    for (int stage = 0; h < end_head; stage ^= 1) {
        const int query0 = q0;
        q0 += QUERIES;
        if (q0 >= queries.end) {
            q0 = queries.begin;
            h++;
        }
        const uint32_t qs = s + L::q + stage * Q_BYTES, gs = s + L::g + stage * Q_BYTES;
        copies_arrive<WGMMA>();
        if (h < end_head)
            copy_queries(stage ^ 1, h, q0);
        cp_commit();
        float x[NF][4], y[NF][4];
        products_begin<WGMMA>();
        multiply_nt<T, WGMMA, QUERIES, KF>(x, s + L::k, qs);
        products_commit<WGMMA>();
        multiply_nt<T, WGMMA, QUERIES, KF>(y, s + L::v, gs);
        products_commit<WGMMA>();
        if (h < end_head)
            make_bits(stage ^ 1, h, q0);
        products_wait<WGMMA, 1>();
        pin(x);
        const float *stats = (const float *)(shared + L::stats) + stage * 2 * QUERIES;
        const float *b =
            (const float *)(shared + L::bias) + stage * BIASES + QUERIES - 1 + row - 2 * t;
#pragma unroll
        for (int m = 0; m < NF; m++) {
            const float2 lse2 = *(const float2 *)(stats + 8 * m + 2 * t);
#pragma unroll
            for (int e = 0; e < 4; e++) {
                float z = e & 1 ? -lse2.y : -lse2.x;
                if (BIAS)
                    z += b[8 * (e >> 1) - 8 * m - (e & 1)] * LOG2E;
                x[m][e] = ex2(x[m][e] * c + z);
            }
        }
        /* The results of row n_keys and of later rows are not stored, so these rows need no
         * mask. */
        if (crosses_mask(p, tile.shift, query0, QUERIES, k0, TENSOR_TILE))
            hide_columns(x, seen_queries(p, tile, k0 + row), seen_queries(p, tile, k0 + row + 8),
                         query0, 0.0f);
        /* bit 4 m + e of `kept` says whether dropout keeps x[m][e] */
        uint32_t weights[NF / 2][4], kept = 0;
        if (DROP) {
#pragma unroll
            for (int m = 0; m < NF; m++) {
                kept |= column_bits(shared + L::keep + stage * KEEP, task, m) << 4 * m;
                float z[4];
#pragma unroll
                for (int e = 0; e < 4; e++)
                    z[e] = kept >> (4 * m + e) & 1 ? x[m][e] * p.keep_factor : 0.0f;
                weights[m / 2][(m & 1) * 2] = pack_of<T>(z[0], z[1]);
                weights[m / 2][(m & 1) * 2 + 1] = pack_of<T>(z[2], z[3]);
            }
        } else {
            to_operand<T>(weights, x);
        }
        pin(weights);
        pin(d_v);
        products_begin<WGMMA>();
        multiply_nn<T, WGMMA, QUERIES>(d_v, weights, gs);
        products_commit<WGMMA>();
        products_wait<WGMMA, 1>();
        pin(y);
#pragma unroll
        for (int m = 0; m < NF; m++) {
            const float2 delta = *(const float2 *)(stats + QUERIES + 8 * m + 2 * t);
#pragma unroll
            for (int e = 0; e < 4; e++) {
                float z = y[m][e];
                if (DROP)
                    z = kept >> (4 * m + e) & 1 ? z * p.keep_factor : 0.0f;
                x[m][e] *= z - (e & 1 ? delta.y : delta.x);
            }
        }
        uint32_t d_scores[NF / 2][4];
        to_operand<T>(d_scores, x);
        pin(d_scores);
        pin(d_k);
        products_begin<WGMMA>();
        multiply_nn<T, WGMMA, QUERIES>(d_k, d_scores, qs);
        products_commit<WGMMA>();
        products_wait<WGMMA, 0>();
        pin(weights);
        pin(d_scores);
        pin(d_k);
        pin(d_v);
    }
    cp_wait<0>(); /* if the loop had no iterations, copies may still be running */
    __syncthreads();
    /* Compute the block's task a second time, so that the task occupies no registers during the
     * loop. */
    uint32_t block = blockIdx.x;
    pin(block);
    const tensor_task own = tensor_task_of(p.k_tiles, p.kv_heads, block);
    const int64_t row0 = own.tile.key_row + own.tile.first, column = (int64_t)own.head * p.head_dim;
    const int n_rows = own.tile.n_keys - own.tile.first;
    store_rows<TENSOR_TILE>(s + L::k, d_k, p.scale, p.scale, (T *)p.d_k + row0 * p.d_k_ld + column,
                            p.d_k_ld, n_rows, p.head_dim);
    store_rows<TENSOR_TILE>(s + L::v, d_v, 1.0f, 1.0f, (T *)p.d_v + row0 * p.d_v_ld + column,
                            p.d_v_ld, n_rows, p.head_dim);
}
