/* Backward attention for every dtype and head width. See attention_plain.cuh. */
#include "src/kernels/cuda/attention_plain.cuh"

/* --- backward: d_q, delta, the bias' gradient --- */

/* Set delta[i] to the dot product of `out` and d_out in row number i of the thread's rows. */
template <typename T>
FSDP_DEVICE void compute_delta(float (&delta)[EACH], const row_source<T> &out,
                               const row_source<T> &d_out, int head_dim)
{
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int row = threadIdx.x / SIDE + i * SIDE;
        float sum = 0;
        for (int d = threadIdx.x % SIDE; row < out.n && d < head_dim; d += SIDE)
            sum += to_float(out.at[row * out.ld + d]) * to_float(d_out.at[row * d_out.ld + d]);
        delta[i] = sum_of_row(sum);
    }
}

/* The results for one score S: its probability P = e^(S - lse), and its gradient dS = P (keep dP -
 * delta). dP is the gradient of the probability after dropout, and `keep` is the factor of
 * dropout. */
typedef struct score_gradient {
    float kept, d_score; /* kept: P * keep */
} score_gradient;

FSDP_DEVICE score_gradient gradient_of(float score, float d_p, float lse, float delta, float keep)
{
    /* lse is -infinity if the query sees no key. The gradients of its scores are then zero. */
    if (score == -INFINITY || lse == -INFINITY)
        return {0, 0};
    const float probability = expf(score - lse);
    return {probability * keep, probability * (d_p * keep - delta)};
}

/* Add up the diagonals of a tile of dS in shared memory. Thread d + TILE adds up the diagonal on
 * which key - row = d. Diagonals with d >= 0 continue in the next tile, so `carry` keeps their sums
 * until the next call. */
FSDP_DEVICE void sum_diagonals(float *part, float *carry, const float *d_scores)
{
    const int d = (int)threadIdx.x - TILE;
    float sum = 0;
    __syncthreads();
    for (int row = d < 0 ? -d : 0; row < TILE && row + d < TILE; row++)
        sum += d_scores[row * SCORES_LD + row + d];
    if (d < 0)
        part[threadIdx.x] = sum + carry[threadIdx.x];
    __syncthreads();
    if (d >= 0)
        carry[d] = sum;
}

template <typename T, int CHUNK>
static __global__ void __launch_bounds__(THREADS) attention_plain_d_q(const attention_params p)
{
    SHARED_DYNAMIC(float, shared);
    SHARED(uint8_t, keep, [TILE * KEEP_BYTES]);
    SHARED(float, carry, [TILE]);
    float *q = shared, *g = q + plain<CHUNK>::FLOATS, *k = g + plain<CHUNK>::FLOATS;
    float *v = k + plain<CHUNK>::FLOATS, *d_scores = v + plain<CHUNK>::FLOATS;
    const plain_task task = task_of(p.q_tiles, p.heads);
    const attention_tile &tile = task.tile;
    const int kv_head = task.head / (p.heads / p.kv_heads);
    const int y = threadIdx.x / SIDE, x = threadIdx.x % SIDE;
    const int64_t row = tile.query_row + tile.first, column = (int64_t)task.head * p.head_dim;
    const int n = tile.n_queries - tile.first;
    const attention_range keys = visible_keys(p, tile, TILE, TILE);
    const row_source<T> q_rows = rows_of<T>(p.q, p.q_ld, row, column, n);
    const row_source<T> g_rows = rows_of<T>(p.d_out, p.out_ld, row, column, n);
    const bool d_bias = p.bias_parts && blockIdx.y == 0;
    float *part =
        d_bias ? p.bias_parts + ((int64_t)task.index * p.heads + task.head) * p.part_ld : NULL;
    float delta[EACH], lse[EACH], factors[EACH];
    compute_delta(delta, rows_of<T>(p.out, p.out_ld, row, column, n), g_rows, p.head_dim);
    for (int i = 0; i < EACH; i++) {
        const int64_t at = (int64_t)task.head * p.n_query_rows + row + y + i * SIDE;
        lse[i] = y + i * SIDE < n ? p.lse[at] : -INFINITY;
        if (blockIdx.y == 0 && x == 0 && y + i * SIDE < n)
            p.delta[at] = delta[i];
        factors[i] = p.scale;
    }
    if (threadIdx.x < TILE)
        carry[threadIdx.x] = 0;
    output<CHUNK> d_q;
    clear(d_q);
    for (int key = keys.begin; key < keys.end; key += TILE) {
        const int64_t k_row = tile.key_row + key, k_column = (int64_t)kv_head * p.head_dim;
        const row_source<T> k_rows = rows_of<T>(p.k, p.k_ld, k_row, k_column, tile.n_keys - key);
        const row_source<T> v_rows = rows_of<T>(p.v, p.v_ld, k_row, k_column, tile.n_keys - key);
        float s[EACH][EACH], d_p[EACH][EACH];
        __syncthreads();
        if (p.drops)
            make_keep_bits<TILE, TILE, THREADS>(keep, p, tile, task.head, tile.first, key);
        compute_scores<T, CHUNK>(s, q, q_rows, key > keys.begin, k, k_rows, p);
        compute_scores<T, CHUNK>(d_p, g, g_rows, key > keys.begin, v, v_rows, p);
        for (int i = 0; i < EACH; i++)
            for (int j = 0; j < EACH; j++) {
                const int r = y + i * SIDE, c = x + j * SIDE;
                const float score =
                    masked_score(p, tile, task.head, tile.first + r, key + c, s[i][j]);
                s[i][j] =
                    gradient_of(score, d_p[i][j], lse[i], delta[i], keep_factor(keep, p, r, c))
                        .d_score;
            }
        share_scores(d_scores, s);
        reload<T, CHUNK>(k, k_rows, p);
        add_product(d_q, d_scores, k);
        if (d_bias)
            sum_diagonals(part + key - keys.begin, carry, d_scores);
    }
    if (d_bias && keys.end > keys.begin && threadIdx.x >= TILE)
        part[(keys.end - keys.begin + TILE - 1) / TILE * TILE + threadIdx.x - TILE] =
            carry[threadIdx.x - TILE];
    store_output((T *)p.d_q + row * p.d_q_ld + column, p.d_q_ld, n, d_q, factors, p);
}

/* --- backward: d_k and d_v --- */

/* Compute P and dS for a tile in which rows are keys and columns are queries. */
FSDP_DEVICE void backward_tile(float (&s)[EACH][EACH], float (&d_p)[EACH][EACH],
                               const attention_params &p, const attention_tile &tile, int head,
                               int query, const uint8_t *keep)
{
    const int y = threadIdx.x / SIDE, x = threadIdx.x % SIDE;
#pragma unroll
    for (int j = 0; j < EACH; j++) {
        const int c = x + j * SIDE;
        const bool is_query = query + c < tile.n_queries;
        const int64_t at = (int64_t)head * p.n_query_rows + tile.query_row + query + c;
        const float lse = is_query ? p.lse[at] : -INFINITY, delta = is_query ? p.delta[at] : 0.0f;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const int r = y + i * SIDE;
            const float score = masked_score(p, tile, head, query + c, tile.first + r, s[i][j]);
            const score_gradient gradient =
                gradient_of(score, d_p[i][j], lse, delta, keep_factor(keep, p, c, r));
            s[i][j] = gradient.kept;
            d_p[i][j] = gradient.d_score;
        }
    }
}

template <typename T, int CHUNK>
static __global__ void __launch_bounds__(THREADS) attention_plain_d_kv(const attention_params p)
{
    SHARED_DYNAMIC(float, shared);
    SHARED(uint8_t, keep, [TILE * KEEP_BYTES]);
    float *k = shared, *v = k + plain<CHUNK>::FLOATS, *q = v + plain<CHUNK>::FLOATS;
    float *g = q + plain<CHUNK>::FLOATS, *weights = g + plain<CHUNK>::FLOATS;
    const plain_task task = task_of(p.k_tiles, p.kv_heads);
    const attention_tile &tile = task.tile;
    const int group = p.heads / p.kv_heads;
    const int64_t row = tile.key_row + tile.first, column = (int64_t)task.head * p.head_dim;
    const int n = tile.n_keys - tile.first;
    const attention_range queries = visible_queries(p, tile, TILE, TILE);
    const row_source<T> k_rows = rows_of<T>(p.k, p.k_ld, row, column, n);
    const row_source<T> v_rows = rows_of<T>(p.v, p.v_ld, row, column, n);
    output<CHUNK> d_k, d_v;
    clear(d_k);
    clear(d_v);
    bool loaded = false;
    for (int head = task.head * group; head < (task.head + 1) * group; head++)
        for (int query = queries.begin; query < queries.end; query += TILE) {
            const int64_t q_row = tile.query_row + query, q_column = (int64_t)head * p.head_dim;
            const int n_q = tile.n_queries - query;
            const row_source<T> q_rows = rows_of<T>(p.q, p.q_ld, q_row, q_column, n_q);
            const row_source<T> g_rows = rows_of<T>(p.d_out, p.out_ld, q_row, q_column, n_q);
            float s[EACH][EACH], d_p[EACH][EACH];
            __syncthreads();
            if (p.drops)
                make_keep_bits<TILE, TILE, THREADS>(keep, p, tile, head, query, tile.first);
            compute_scores<T, CHUNK>(s, k, k_rows, loaded, q, q_rows, p);
            compute_scores<T, CHUNK>(d_p, v, v_rows, loaded, g, g_rows, p);
            loaded = true;
            backward_tile(s, d_p, p, tile, head, query, keep);
            share_scores(weights, s);
            reload<T, CHUNK>(g, g_rows, p);
            add_product(d_v, weights, g);
            share_scores(weights, d_p);
            reload<T, CHUNK>(q, q_rows, p);
            add_product(d_k, weights, q);
        }
    const float scales[EACH] = {p.scale, p.scale, p.scale, p.scale}, ones[EACH] = {1, 1, 1, 1};
    store_output((T *)p.d_k + row * p.d_k_ld + column, p.d_k_ld, n, d_k, scales, p);
    store_output((T *)p.d_v + row * p.d_v_ld + column, p.d_v_ld, n, d_v, ones, p);
}

/* --- launches --- */

template <typename T, int CHUNK>
static void backward_as(fsdp_cuda_context *c, const attention_params &p)
{
    start<CHUNK>(c, attention_plain_d_q<T, CHUNK>, (int64_t)p.n_q_tiles * p.heads, 4, p);
    start<CHUNK>(c, attention_plain_d_kv<T, CHUNK>, (int64_t)p.n_k_tiles * p.kv_heads, 4, p);
}

template <typename T> static void backward(fsdp_cuda_context *c, const attention_params &p)
{
    if (p.head_dim <= 32)
        backward_as<T, 32>(c, p);
    else if (p.head_dim <= 64)
        backward_as<T, 64>(c, p);
    else
        backward_as<T, 128>(c, p);
}

void fsdp_cuda_attention_plain_backward(fsdp_cuda_context *c, fsdp_dtype dtype,
                                        const attention_params &p)
{
    with_type(dtype, [&](auto zero) { backward<decltype(zero)>(c, p); });
}
