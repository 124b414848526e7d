/* Attention by tensor cores, for bfloat16 and float16: Note [Attention in tiles] in attention.cuh,
 * Note [Rows in registers] in attention_products.cuh. Each attention_tensor_*.cu compiles the
 * kernels for some dtypes and head widths.
 *
 * D is 64 or 128; columns from head_dim on are zeros in shared memory. Keys (in d_k and d_v:
 * queries) are copied in two stages: while one is used, the next is on its way. Exponents are to
 * base 2.
 *
 * Dropout's bits of the next tile are computed while the tensor cores work on this one, in each of
 * the three kernels. To store them instead would take a bit for each score. */
#pragma once
#include "src/kernels/cuda/attention_products.cuh"

#define LOG2E 1.4426950408889634f
#define LN2 0.6931471805599453f

enum {
    STEP = 64, /* keys that forward and d_q visit at a time */
    /* Floats of a row of the sums over diagonals; 8 modulo 32, so that a warp's stores of pairs are
     * free of bank conflicts. */
    DIAGONAL_LD = 104
};

/* The dynamic shared memory, from a multiple of 1024 bytes on. */
#define TENSOR_SHARED(name)                                                                        \
    SHARED_DYNAMIC(char, name##_raw);                                                              \
    char *name = (char *)(((uintptr_t)name##_raw + 1023) & ~(uintptr_t)1023)

/* What a block knows about its task. `row` is the thread's first row in the tile; it also has row
 * + 8. In fragments, its columns are 8 n + 2 t and 8 n + 2 t + 1. */
typedef struct tensor_task {
    attention_tile tile;
    int index, head; /* of the list; of the queries, or of keys and values */
    int warp, lane, row, t;
} tensor_task;

FSDP_DEVICE tensor_task tensor_task_of(const attention_tile *tiles, int heads)
{
    const int index = blockIdx.x / heads, warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    return {tiles[index], index, (int)(blockIdx.x % heads), warp, lane, warp * 16 + (lane >> 2),
            lane & 3};
}

/* Return the number of tiles of `step` rows in a range. */
FSDP_DEVICE int count_steps(attention_range range, int step)
{
    return range.end > range.begin ? (range.end - range.begin + step - 1) / step : 0;
}

/* Start to copy the biases for a tile of scores: entry e is for key - query = lowest + e. Entries
 * without a bias become zeros. */
template <int N>
FSDP_DEVICE void load_bias(uint32_t dst, const attention_params &p, int head, int shift, int lowest)
{
    for (int e = threadIdx.x; e < N; e += TENSOR_THREADS) {
        const int d = lowest + e - shift + p.bias_span - 1, length = 2 * p.bias_span - 1;
        const bool ok = p.bias && d >= 0 && d < length;
        cp4(dst + e * 4, ok ? p.bias + (int64_t)head * length + d : p.lse, ok);
    }
}

/* True if the causal mask, the window or the ends of the sequence hide a score of the tile. */
FSDP_DEVICE bool has_hidden(const attention_params &p, const attention_tile &tile, int query,
                            int queries, int key, int keys)
{
    return key + keys > tile.n_keys || (p.causal && key + keys - 1 > query + tile.shift) ||
           (p.window > 0 && query + queries - 1 + tile.shift - key >= p.window);
}

/* --- forward --- */

template <int D, bool BIAS, bool DROP> struct forward_layout {
    static constexpr int q = 0, k = TENSOR_TILE * D * 2;
    /* With D 128 there is one stage of V, so that three blocks fit a multiprocessor. */
    static constexpr bool ONE_V = D == 128;
    static constexpr int v = k + 2 * STEP * D * 2, bias = v + (ONE_V ? 1 : 2) * STEP * D * 2;
    static constexpr int keep = bias + (BIAS ? 2 * (TENSOR_TILE + STEP) * 4 : 0);
    static constexpr int bytes = keep + (DROP ? 2 * TENSOR_TILE * (STEP / 8) : 0) + 1024;
};

/* The thread's two rows of a softmax that is computed tile by tile (Milakov & Gimelshein 2018). */
typedef struct softmax_pair {
    float most[2], sum[2];
} softmax_pair;

/* Replace scores by exponentials, and return in shrink[r] the factor for what was summed before. */
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

/* Call f(n, e, kept) for each element of the thread's rows of a tile of scores. */
template <typename F> FSDP_DEVICE void for_each_kept(const char *keep, const tensor_task &task, F f)
{
#pragma unroll
    for (int r = 0; r < 2; r++)
#pragma unroll
        for (int w = 0; w < STEP / 32; w++) {
            const uint32_t bits =
                *(const uint32_t *)(keep + (task.row + 8 * r) * (STEP / 8) + w * 4) >> 2 * task.t;
#pragma unroll
            for (int n = 0; n < 4; n++)
#pragma unroll
                for (int e = 0; e < 2; e++)
                    f(4 * w + n, 2 * r + e, (bool)(bits >> (8 * n + e) & 1));
        }
}

template <bool WGMMA, int D, bool BIAS, bool DROP> constexpr int forward_blocks(void)
{
    return D == 128 ? (WGMMA ? 3 : 2) : !WGMMA || (BIAS && DROP) ? 3 : 4;
}

template <typename T, int D, bool BIAS, bool DROP, bool WGMMA_WANTED>
static __global__ void __launch_bounds__(TENSOR_THREADS,
                                         forward_blocks<WGMMA_WANTED && HAS_WGMMA, D, BIAS, DROP>())
    attention_tensor_forward(const attention_params p)
{
    typedef forward_layout<D, BIAS, DROP> L;
    constexpr bool WGMMA = WGMMA_WANTED && HAS_WGMMA;
    constexpr int KF = D / 16, NF = STEP / 8, OF = D / 8, K_BYTES = STEP * D * 2;
    constexpr int BIASES = TENSOR_TILE + STEP, KEEP = TENSOR_TILE * (STEP / 8);
    TENSOR_SHARED(shared);
    const uint32_t s = smem_addr(shared);
    const tensor_task task = tensor_task_of(p.q_tiles, p.heads);
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
        if (has_hidden(p, tile, q0, TENSOR_TILE, k0, STEP)) {
#pragma unroll
            for (int n = 0; n < NF; n++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    const int key = k0 + 8 * n + 2 * t + (e & 1), query = q0 + row + 8 * (e >> 1);
                    if (key >= tile.n_keys || !is_seen(p, tile, query, key))
                        x[n][e] = -INFINITY;
                }
        }
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
        const bool sees = sum != 0.0f; /* true for NaN */
        factor[r] = sees ? (DROP ? p.keep_factor : 1.0f) / sum : 0.0f;
        const float base = rows.most[r] == -INFINITY ? 0.0f : rows.most[r] * c2;
        if (t == 0 && q0 + row + 8 * r < tile.n_queries)
            p.lse[(int64_t)h * p.n_query_rows + q_row + row + 8 * r] =
                sees ? (base + log2f(sum)) * LN2 : -INFINITY;
    }
    if (!n_steps)
        cp_wait<0>();
    /* The tensor cores may read this warp's rows of Q for other warps until those have waited. */
    __syncthreads();
    store_rows<TENSOR_TILE>(s + L::q, o, factor[0], factor[1],
                            (T *)p.out + q_row * p.out_ld + q_column, p.out_ld, tile.n_queries - q0,
                            p.head_dim);
}

/* --- d_q, delta, the gradient of the bias --- */

template <int D, bool BIAS, bool DROP> struct d_q_layout {
    static constexpr int q = 0, g = TENSOR_TILE * D * 2, k = 2 * TENSOR_TILE * D * 2;
    static constexpr int v = k + 2 * STEP * D * 2, bias = v + 2 * STEP * D * 2;
    static constexpr int keep = bias + (BIAS ? 2 * (TENSOR_TILE + STEP) * 4 : 0);
    static constexpr int diagonals = keep + (DROP ? 2 * TENSOR_TILE * (STEP / 8) : 0);
    static constexpr int bytes = diagonals + (BIAS ? 4 * 8 * DIAGONAL_LD * 4 : 0) + 1024;
};

/* Compute delta and log2(e) lse of a row: four threads a row, 16 bytes each. */
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

/* Add a warp's 16 x 64 gradients of scores over diagonals. The element at row r and column c is on
 * diagonal c - r. A thread first adds the elements that it has on the same diagonal: columns
 * 8 n + 2 t + e of rows g and g + 8, so block m = n - (row / 8) from -1 to 7. Row g of `shared` has
 * this sum at 16 + 8 m + 2 t + e, between zeros. Diagonal d is then at 16 + d + g of row g. So the
 * loads of a thread are at constant offsets. Diagonals from 48 on go on in the next tile: `carry`.
 */
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
    float z[3] = {0, 0, 0}; /* diagonals lane - 16, lane + 16, lane + 48 */
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

template <bool WGMMA, int D, bool BIAS> constexpr int d_q_blocks(void)
{
    return D == 64 && WGMMA && !BIAS ? 3 : 2;
}

template <typename T, int D, bool BIAS, bool DROP, bool WGMMA_WANTED>
static __global__ void __launch_bounds__(TENSOR_THREADS,
                                         d_q_blocks<WGMMA_WANTED && HAS_WGMMA, D, BIAS>())
    attention_tensor_d_q(const attention_params p)
{
    typedef d_q_layout<D, BIAS, DROP> L;
    constexpr bool WGMMA = WGMMA_WANTED && HAS_WGMMA;
    constexpr int KF = D / 16, NF = STEP / 8, OF = D / 8, K_BYTES = STEP * D * 2;
    constexpr int BIASES = TENSOR_TILE + STEP, KEEP = TENSOR_TILE * (STEP / 8);
    TENSOR_SHARED(shared);
    const uint32_t s = smem_addr(shared);
    const tensor_task task = tensor_task_of(p.q_tiles, p.heads);
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
        /* A query that sees no key: all its exponentials become zero. */
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
            diagonals[e] = 0; /* before the loop's first barrier */
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
        if (has_hidden(p, tile, q0, TENSOR_TILE, k0, STEP)) {
#pragma unroll
            for (int m = 0; m < NF; m++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    const int key = k0 + 8 * m + 2 * t + (e & 1), query = q0 + row + 8 * (e >> 1);
                    if (key >= tile.n_keys || !is_seen(p, tile, query, key))
                        x[m][e] = 0;
                }
        }
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
        if (d_bias) /* while the product runs */
            add_diagonals(part + j * STEP, carry, diagonals, x, task.lane);
        products_wait<WGMMA, 0>();
        pin(d_scores);
        pin(d_q);
    }
    if (d_bias && n_steps && task.lane < 16)
        part[n_steps * STEP + task.lane] = carry;
    if (!n_steps)
        cp_wait<0>();
    /* The tensor cores may read this warp's rows of Q for other warps until those have waited. */
    __syncthreads();
    store_rows<TENSOR_TILE>(s + L::q, d_q, p.scale, p.scale,
                            (T *)p.d_q + q_row * p.d_q_ld + q_column, p.d_q_ld, n, p.head_dim);
}

/* --- d_k and d_v --- */

/* Queries that d_k and d_v visit at a time. */
template <bool WGMMA, int D> constexpr int query_step(void)
{
    return D == 128 && !WGMMA ? 32 : 64;
}

template <int D, int QUERIES, bool BIAS, bool DROP> struct d_kv_layout {
    static constexpr int k = 0, v = TENSOR_TILE * D * 2, q = 2 * TENSOR_TILE * D * 2;
    static constexpr int g = q + 2 * QUERIES * D * 2, stats = g + 2 * QUERIES * D * 2;
    static constexpr int bias = stats + 2 * 2 * QUERIES * 4;
    static constexpr int keep = bias + (BIAS ? 2 * (TENSOR_TILE + QUERIES) * 4 : 0);
    static constexpr int bytes = keep + (DROP ? 2 * QUERIES * (TENSOR_TILE / 8) : 0) + 1024;
};

/* Return the keep bits of the thread's elements 0 to 3 of column block n: rows are keys. */
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

template <bool WGMMA, int D> constexpr int d_kv_blocks(void)
{
    return D == 64 && WGMMA ? 3 : 2;
}

template <typename T, int D, bool BIAS, bool DROP, bool WGMMA_WANTED>
static __global__ void __launch_bounds__(TENSOR_THREADS,
                                         d_kv_blocks<WGMMA_WANTED && HAS_WGMMA, D>())
    attention_tensor_d_kv(const attention_params p)
{
    constexpr bool WGMMA = WGMMA_WANTED && HAS_WGMMA;
    constexpr int QUERIES = query_step<WGMMA, D>();
    typedef d_kv_layout<D, QUERIES, BIAS, DROP> L;
    constexpr int KF = D / 16, NF = QUERIES / 8, OF = D / 8, Q_BYTES = QUERIES * D * 2;
    constexpr int BIASES = TENSOR_TILE + QUERIES, KEEP = QUERIES * (TENSOR_TILE / 8);
    TENSOR_SHARED(shared);
    const uint32_t s = smem_addr(shared);
    const tensor_task task = tensor_task_of(p.k_tiles, p.kv_heads);
    const attention_tile &tile = task.tile;
    const int group = p.heads / p.kv_heads, k0 = tile.first, t = task.t, row = task.row;
    const int64_t k_row = tile.key_row + k0, k_column = (int64_t)task.head * p.head_dim;
    const attention_range queries = visible_queries(p, tile, TENSOR_TILE, QUERIES);
    const int per_head = count_steps(queries, QUERIES), n_steps = per_head * group;
    const int n = tile.n_keys - k0;
    auto head_at = [&](int j) { return task.head * group + j / per_head; };
    auto query_at = [&](int j) { return queries.begin + j % per_head * QUERIES; };

    auto copy_queries = [&](int j) {
        const int stage = j & 1, h = head_at(j), q0 = query_at(j), valid = tile.n_queries - q0;
        const int64_t q_row = tile.query_row + q0, q_column = (int64_t)h * p.head_dim;
        load_tile<QUERIES, D>(s + L::q + stage * Q_BYTES,
                              (const T *)p.q + q_row * p.q_ld + q_column, p.q_ld, valid,
                              p.head_dim);
        load_tile<QUERIES, D>(s + L::g + stage * Q_BYTES,
                              (const T *)p.d_out + q_row * p.out_ld + q_column, p.out_ld, valid,
                              p.head_dim);
        for (int e = threadIdx.x; e < 2 * QUERIES; e += TENSOR_THREADS) { /* lse2, then delta */
            const int i = e % QUERIES;
            const float *from =
                (e < QUERIES ? p.lse2 : p.delta) + (int64_t)h * p.n_query_rows + q_row;
            cp4(s + L::stats + (stage * 2 * QUERIES + e) * 4, i < valid ? from + i : p.delta,
                i < valid);
        }
        if (BIAS)
            load_bias<BIASES - 1>(s + L::bias + stage * BIASES * 4, p, h, tile.shift,
                                  k0 - q0 - (QUERIES - 1));
    };
    auto make_bits = [&](int j) {
        if (DROP)
            make_keep_bits<QUERIES, TENSOR_TILE, TENSOR_THREADS>(
                (uint8_t *)shared + L::keep + (j & 1) * KEEP, p, tile, head_at(j), query_at(j), k0);
    };

    load_tile<TENSOR_TILE, D>(s + L::k, (const T *)p.k + k_row * p.k_ld + k_column, p.k_ld, n,
                              p.head_dim);
    load_tile<TENSOR_TILE, D>(s + L::v, (const T *)p.v + k_row * p.v_ld + k_column, p.v_ld, n,
                              p.head_dim);
    cp_commit();
    if (n_steps) {
        copy_queries(0);
        make_bits(0);
    }
    cp_commit();
    float d_k[OF][4], d_v[OF][4];
    clear(d_k);
    clear(d_v);
    const float c = p.scale * LOG2E;

    for (int j = 0; j < n_steps; j++) {
        const int stage = j & 1, q0 = query_at(j);
        const uint32_t qs = s + L::q + stage * Q_BYTES, gs = s + L::g + stage * Q_BYTES;
        copies_arrive<WGMMA>();
        if (j + 1 < n_steps)
            copy_queries(j + 1);
        cp_commit();
        float x[NF][4], y[NF][4];
        products_begin<WGMMA>();
        multiply_nt<T, WGMMA, QUERIES, KF>(x, s + L::k, qs);
        products_commit<WGMMA>();
        multiply_nt<T, WGMMA, QUERIES, KF>(y, s + L::v, gs);
        products_commit<WGMMA>();
        if (j + 1 < n_steps)
            make_bits(j + 1);
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
        if (has_hidden(p, tile, q0, QUERIES, k0, TENSOR_TILE)) {
#pragma unroll
            for (int m = 0; m < NF; m++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    const int query = q0 + 8 * m + 2 * t + (e & 1), key = k0 + row + 8 * (e >> 1);
                    if (!is_seen(p, tile, query, key))
                        x[m][e] = 0;
                }
        }
        uint32_t weights[NF / 2][4], kept[DROP ? NF : 1];
        if (DROP) {
#pragma unroll
            for (int m = 0; m < NF; m++) {
                kept[m] = column_bits(shared + L::keep + stage * KEEP, task, m);
                float z[4];
#pragma unroll
                for (int e = 0; e < 4; e++)
                    z[e] = kept[m] >> e & 1 ? x[m][e] * p.keep_factor : 0.0f;
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
                    z = kept[m] >> e & 1 ? z * p.keep_factor : 0.0f;
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
    if (!n_steps)
        cp_wait<0>();
    __syncthreads();
    store_rows<TENSOR_TILE>(s + L::k, d_k, p.scale, p.scale,
                            (T *)p.d_k + k_row * p.d_k_ld + k_column, p.d_k_ld, n, p.head_dim);
    store_rows<TENSOR_TILE>(s + L::v, d_v, 1.0f, 1.0f, (T *)p.d_v + k_row * p.d_v_ld + k_column,
                            p.d_v_ld, n, p.head_dim);
}

/* --- launches --- */

/* The kernels for one dtype, width and set of features. Kernels with BIAS or DROP also compute
 * attention without a bias or dropout. */
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
        return wgmma ? d_kv_layout<D, query_step<true, D>(), BIAS, DROP>::bytes
                     : d_kv_layout<D, query_step<false, D>(), BIAS, DROP>::bytes;
    }
};

/* With ALL, each combination of bias and dropout has kernels of its own; otherwise there are
 * kernels with neither and kernels for both. */
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
