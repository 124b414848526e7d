/* Attention for every dtype and head width, in float32 on the ordinary units of a multiprocessor:
 * Note [Attention in tiles] in attention.cuh.
 *
 * Tiles are 32 rows by 32 rows. A block has 64 threads; thread (y, x) of 8 by 8 computes the scores
 * of rows y + 8 i and columns x + 8 j, i, j < 4. Eight neighbouring threads of one warp have whole
 * rows, so a row's maximum and sum take three shuffles, and rows of P are exchanged within a warp.
 *
 * Operands are widened to float32 in shared memory, CHUNK columns of the head at a time. A score is
 * summed over all chunks, and the output of a block is one chunk. So heads that are wider than
 * CHUNK have a block for each chunk of the output, and these blocks compute the same scores. */
#include "src/kernels/cuda/attention.cuh"

enum {
    TILE = 32,
    THREADS = 64,
    SIDE = 8,           /* threads in a row, and rows of threads */
    EACH = TILE / SIDE, /* rows of a thread, and its columns of a tile of scores */
    SCORES_LD = TILE + 4,
    KEEP_BYTES = TILE / 8 /* of a row of dropout's bits */
};

/* Row strides in shared memory are 4 modulo 32 words: eight rows at the same column, 16 bytes each,
 * are then in different banks. */
template <int CHUNK> struct plain {
    static constexpr int LD = CHUNK + 4, FLOATS = TILE * LD;
};

/* Some rows of one head of a tensor. */
template <typename T> struct row_source {
    const T *at;
    int64_t ld;
    int n; /* rows from n on are read as zeros */
};

template <typename T>
FSDP_DEVICE row_source<T> rows_of(const void *base, int64_t ld, int64_t row, int64_t column, int n)
{
    return {(const T *)base + row * ld + column, ld, n};
}

/* Copy columns [column, column + CHUNK) of TILE rows to shared memory; columns from head_dim on are
 * zeros. */
template <typename T, int CHUNK>
FSDP_DEVICE void load_rows(float *dst, const row_source<T> &src, int column,
                           const attention_params &p)
{
    constexpr int N = vector_of<T>::N, PER_ROW = CHUNK / N, LD = plain<CHUNK>::LD;
    if (p.vectors) {
        for (int i = threadIdx.x; i < TILE * PER_ROW; i += THREADS) {
            const int row = i / PER_ROW, at = i % PER_ROW * N;
            vector_of<T> x = {};
            if (row < src.n && column + at < p.head_dim)
                x = *(const vector_of<T> *)(src.at + row * src.ld + column + at);
#pragma unroll
            for (int e = 0; e < N; e++)
                dst[row * LD + at + e] = to_float(x.at[e]);
        }
        return;
    }
    for (int i = threadIdx.x; i < TILE * CHUNK; i += THREADS) {
        const int row = i / CHUNK, at = i % CHUNK;
        dst[row * LD + at] = row < src.n && column + at < p.head_dim
                                 ? to_float(src.at[row * src.ld + column + at])
                                 : 0.0f;
    }
}

/* scores += A B^T, over CHUNK columns. */
template <int CHUNK>
FSDP_DEVICE void add_scores(float (&scores)[EACH][EACH], const float *a, const float *b)
{
    constexpr int LD = plain<CHUNK>::LD;
    const float *row = a + threadIdx.x / SIDE * LD, *column = b + threadIdx.x % SIDE * LD;
#pragma unroll 2
    for (int d = 0; d < CHUNK; d += 4) {
        float4 x[EACH], y[EACH];
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            x[i] = *(const float4 *)(row + i * SIDE * LD + d);
            y[i] = *(const float4 *)(column + i * SIDE * LD + d);
        }
#pragma unroll
        for (int i = 0; i < EACH; i++)
#pragma unroll
            for (int j = 0; j < EACH; j++) {
                scores[i][j] += x[i].x * y[j].x;
                scores[i][j] += x[i].y * y[j].y;
                scores[i][j] += x[i].z * y[j].z;
                scores[i][j] += x[i].w * y[j].w;
            }
    }
}

/* scores = A B^T over all columns of the head. `a` and `b` are shared memory that no thread reads
 * any more. Afterwards they contain the last chunk of the operands. If `a` has its rows already
 * (has_a), and they are one chunk, they are not loaded again. */
template <typename T, int CHUNK>
FSDP_DEVICE void compute_scores(float (&scores)[EACH][EACH], float *a, const row_source<T> &a_rows,
                                bool has_a, float *b, const row_source<T> &b_rows,
                                const attention_params &p)
{
    for (int i = 0; i < EACH; i++)
        for (int j = 0; j < EACH; j++)
            scores[i][j] = 0;
    for (int column = 0; column == 0 || column < p.head_dim; column += CHUNK) {
        if (column > 0)
            __syncthreads();
        if (!has_a || p.head_dim > CHUNK)
            load_rows<T, CHUNK>(a, a_rows, column, p);
        load_rows<T, CHUNK>(b, b_rows, column, p);
        __syncthreads();
        add_scores<CHUNK>(scores, a, b);
    }
}

/* Load the block's chunk of the output's columns if compute_scores() left another one. */
template <typename T, int CHUNK>
FSDP_DEVICE void reload(float *dst, const row_source<T> &src, const attention_params &p)
{
    if (p.head_dim <= CHUNK)
        return;
    __syncthreads();
    load_rows<T, CHUNK>(dst, src, blockIdx.y * CHUNK, p);
    __syncthreads();
}

/* Store a thread's scores to the rows of its warp in shared memory. */
FSDP_DEVICE void share_scores(float *shared, const float (&scores)[EACH][EACH])
{
    float *at = shared + threadIdx.x / SIDE * SCORES_LD + threadIdx.x % SIDE;
    __syncwarp(); /* the warp has read the older scores */
#pragma unroll
    for (int i = 0; i < EACH; i++)
#pragma unroll
        for (int j = 0; j < EACH; j++)
            at[i * SIDE * SCORES_LD + j * SIDE] = scores[i][j];
    __syncwarp();
}

/* The thread's part of an output tile [TILE, CHUNK]: rows y + 8 i, columns 4 x + 32 n + e. */
template <int CHUNK> struct output {
    static constexpr int N = CHUNK / 32;
    float at[EACH][N][4];
};

template <int CHUNK> FSDP_DEVICE void clear(output<CHUNK> &out)
{
    for (int i = 0; i < EACH; i++)
        for (int n = 0; n < out.N; n++)
            for (int e = 0; e < 4; e++)
                out.at[i][n][e] = 0;
}

/* out += P B, where P is [TILE, TILE] and B is [TILE, CHUNK], both in shared memory. */
template <int CHUNK>
FSDP_DEVICE void add_product(output<CHUNK> &out, const float *p, const float *b)
{
    constexpr int LD = plain<CHUNK>::LD;
    const float *row = p + threadIdx.x / SIDE * SCORES_LD, *column = b + threadIdx.x % SIDE * 4;
    for (int j = 0; j < TILE; j += 4) {
        float4 weights[EACH];
#pragma unroll
        for (int i = 0; i < EACH; i++)
            weights[i] = *(const float4 *)(row + i * SIDE * SCORES_LD + j);
#pragma unroll
        for (int jj = 0; jj < 4; jj++)
#pragma unroll
            for (int n = 0; n < out.N; n++) {
                const float4 y = *(const float4 *)(column + (j + jj) * LD + n * 32);
#pragma unroll
                for (int i = 0; i < EACH; i++) {
                    const float w = jj == 0   ? weights[i].x
                                    : jj == 1 ? weights[i].y
                                    : jj == 2 ? weights[i].z
                                              : weights[i].w;
                    out.at[i][n][0] += w * y.x;
                    out.at[i][n][1] += w * y.y;
                    out.at[i][n][2] += w * y.z;
                    out.at[i][n][3] += w * y.w;
                }
            }
    }
}

/* Store rows of the output times factors; `dst` is the tile's first row, `n` its number of rows. */
template <typename T, int CHUNK>
FSDP_DEVICE void store_output(T *dst, int64_t ld, int n, const output<CHUNK> &out,
                              const float (&factors)[EACH], const attention_params &p)
{
    const int y = threadIdx.x / SIDE, x = threadIdx.x % SIDE, column = blockIdx.y * CHUNK + 4 * x;
#pragma unroll
    for (int i = 0; i < EACH; i++)
#pragma unroll
        for (int m = 0; m < out.N; m++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                if (y + i * SIDE < n && column + 32 * m + e < p.head_dim)
                    dst[(y + i * SIDE) * ld + column + 32 * m + e] =
                        from_float<T>(out.at[i][m][e] * factors[i]);
}

/* --- dropout --- */

/* Return the factor by which dropout multiplies the score of row i and column j. */
FSDP_DEVICE float keep_factor(const uint8_t *keep, const attention_params &p, int query, int key)
{
    if (!p.drops)
        return 1.0f;
    return keep[query * KEEP_BYTES + key / 8] >> key % 8 & 1 ? p.keep_factor : 0.0f;
}

/* --- scores --- */

FSDP_DEVICE float sum_of_row(float x)
{
    for (int lanes = 1; lanes < SIDE; lanes *= 2)
        x += __shfl_xor_sync(~0u, x, lanes);
    return x;
}

FSDP_DEVICE float max_of_row(float x)
{
    for (int lanes = 1; lanes < SIDE; lanes *= 2)
        x = fmaxf(x, __shfl_xor_sync(~0u, x, lanes));
    return x;
}

/* Return scale x + bias for query i and key j, or -infinity if the query does not see the key. */
FSDP_DEVICE float masked_score(const attention_params &p, const attention_tile &tile, int head,
                               int i, int j, float x)
{
    if (i >= tile.n_queries || j >= tile.n_keys || !is_seen(p, tile, i, j))
        return -INFINITY;
    const int64_t length = 2 * (int64_t)p.bias_span - 1;
    return x * p.scale +
           (p.bias ? p.bias[head * length + j - (i + tile.shift) + p.bias_span - 1] : 0.0f);
}

/* A tile of the list, and the head that the block computes for it. */
typedef struct plain_task {
    attention_tile tile;
    int index, head;
} plain_task;

FSDP_DEVICE plain_task task_of(const attention_tile *tiles, int heads)
{
    const int index = blockIdx.x / heads;
    return {tiles[index], index, (int)(blockIdx.x % heads)};
}

/* --- forward --- */

/* The running maxima and sums of the thread's rows (Milakov & Gimelshein 2018). */
typedef struct softmax_rows {
    float most[EACH], sum[EACH];
} softmax_rows;

/* Replace scores by exponentials with dropout, and set shrink[i] to the factor for what was summed
 * before this tile. */
FSDP_DEVICE void softmax_tile(float (&scores)[EACH][EACH], float (&shrink)[EACH],
                              softmax_rows &rows, const plain_task &task, const attention_params &p,
                              int key, const uint8_t *keep)
{
    const int y = threadIdx.x / SIDE, x = threadIdx.x % SIDE;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        float most = rows.most[i], sum = 0;
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            scores[i][j] = masked_score(p, task.tile, task.head, task.tile.first + y + i * SIDE,
                                        key + x + j * SIDE, scores[i][j]);
            most = fmaxf(most, scores[i][j]);
        }
        most = max_of_row(most);
        /* Nothing was visible, or all of it was NaN: NaN then becomes the sum. */
        const float base = most == -INFINITY ? 0.0f : most;
        shrink[i] = expf(rows.most[i] - base);
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            const float e = expf(scores[i][j] - base);
            sum += e;
            scores[i][j] = e * keep_factor(keep, p, y + i * SIDE, x + j * SIDE);
        }
        rows.sum[i] = rows.sum[i] * shrink[i] + sum_of_row(sum);
        rows.most[i] = most;
    }
}

template <typename T, int CHUNK>
static __global__ void __launch_bounds__(THREADS) attention_plain_forward(const attention_params p)
{
    SHARED_DYNAMIC(float, shared);
    SHARED(uint8_t, keep, [TILE * KEEP_BYTES]);
    float *q = shared, *k = q + plain<CHUNK>::FLOATS, *v = k + plain<CHUNK>::FLOATS;
    float *weights = v + plain<CHUNK>::FLOATS;
    const plain_task task = task_of(p.q_tiles, p.heads);
    const attention_tile &tile = task.tile;
    const int kv_head = task.head / (p.heads / p.kv_heads), y = threadIdx.x / SIDE;
    const int64_t row = tile.query_row + tile.first, column = (int64_t)task.head * p.head_dim;
    const int n = tile.n_queries - tile.first;
    const attention_range keys = visible_keys(p, tile, TILE, TILE);
    const row_source<T> q_rows = rows_of<T>(p.q, p.q_ld, row, column, n);
    softmax_rows rows;
    output<CHUNK> out;
    clear(out);
    for (int i = 0; i < EACH; i++)
        rows.most[i] = -INFINITY, rows.sum[i] = 0;
    for (int key = keys.begin; key < keys.end; key += TILE) {
        const int64_t k_row = tile.key_row + key, k_column = (int64_t)kv_head * p.head_dim;
        const row_source<T> k_rows = rows_of<T>(p.k, p.k_ld, k_row, k_column, tile.n_keys - key);
        const row_source<T> v_rows = rows_of<T>(p.v, p.v_ld, k_row, k_column, tile.n_keys - key);
        float scores[EACH][EACH], shrink[EACH];
        __syncthreads();
        if (p.drops)
            make_keep_bits<TILE, TILE, THREADS>(keep, p, tile, task.head, tile.first, key);
        load_rows<T, CHUNK>(v, v_rows, blockIdx.y * CHUNK, p);
        compute_scores<T, CHUNK>(scores, q, q_rows, key > keys.begin, k, k_rows, p);
        softmax_tile(scores, shrink, rows, task, p, key, keep);
        share_scores(weights, scores);
        for (int i = 0; i < EACH; i++)
            for (int m = 0; m < out.N; m++)
                for (int e = 0; e < 4; e++)
                    out.at[i][m][e] *= shrink[i];
        add_product(out, weights, v);
    }
    float factors[EACH];
    for (int i = 0; i < EACH; i++) {
        const bool sees = rows.sum[i] != 0.0f; /* true for NaN */
        factors[i] = sees ? 1.0f / rows.sum[i] : 0.0f;
        /* If all was NaN, there is no maximum. */
        const float base = rows.most[i] == -INFINITY ? 0.0f : rows.most[i];
        if (blockIdx.y == 0 && threadIdx.x % SIDE == 0 && y + i * SIDE < n)
            p.lse[(int64_t)task.head * p.n_query_rows + row + y + i * SIDE] =
                sees ? base + logf(rows.sum[i]) : -INFINITY;
    }
    store_output((T *)p.out + row * p.out_ld + column, p.out_ld, n, out, factors, p);
}

/* --- backward: d_q, delta, the bias' gradient --- */

/* Set delta of the thread's rows to the dot products of rows of `out` and d_out. */
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

/* The probability of a score, and its gradient from that of the probability: P = e^(S - lse),
 * dS = P (keep dP - delta). */
typedef struct score_gradient {
    float kept, d_score; /* kept: the probability times the factor of dropout */
} score_gradient;

FSDP_DEVICE score_gradient gradient_of(float score, float d_p, float lse, float delta, float keep)
{
    /* A query that sees no key has lse -infinity; nothing flows through it. */
    if (score == -INFINITY || lse == -INFINITY)
        return {0, 0};
    const float probability = expf(score - lse);
    return {probability * keep, probability * (d_p * keep - delta)};
}

/* Add the diagonals of a tile of dS in shared memory. Thread d has the diagonal key - row = d -
 * TILE. Half of the diagonals go on in the next tile, so their sums are carried over to it. */
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

/* Compute P and dS of a tile whose rows are keys and whose columns are queries. */
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

/* Start a kernel with `tiles` operands of TILE rows in dynamic shared memory. */
template <int CHUNK>
static void start(fsdp_cuda_context *c, void (*kernel)(attention_params), int64_t blocks, int tiles,
                  const attention_params &p)
{
    const int chunks = p.head_dim > CHUNK ? (p.head_dim + CHUNK - 1) / CHUNK : 1;
    const size_t bytes = (size_t)(tiles * plain<CHUNK>::FLOATS + TILE * SCORES_LD) * sizeof(float);
    attention_start(c, kernel, dim3((unsigned)blocks, (unsigned)chunks), THREADS, bytes, p);
}

template <typename T, int CHUNK>
static void forward_as(fsdp_cuda_context *c, const attention_params &p)
{
    start<CHUNK>(c, attention_plain_forward<T, CHUNK>, (int64_t)p.n_q_tiles * p.heads, 3, p);
}

template <typename T> static void forward(fsdp_cuda_context *c, const attention_params &p)
{
    if (p.head_dim <= 32)
        forward_as<T, 32>(c, p);
    else if (p.head_dim <= 64)
        forward_as<T, 64>(c, p);
    else
        forward_as<T, 128>(c, p);
}

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

template <typename T> static const attention_kernels *kernels_of(void)
{
    enum {
        BYTES = (4 * plain<128>::FLOATS + TILE * SCORES_LD) * (int)sizeof(float)
    };
    static const attention_kernels kernels = {TILE,  TILE,  TILE,       1,
                                              BYTES, BYTES, forward<T>, backward<T>};
    return &kernels;
}

const attention_kernels *fsdp_cuda_attention_plain(fsdp_dtype dtype)
{
    const attention_kernels *kernels = NULL;
    with_type(dtype, [&](auto zero) { kernels = kernels_of<decltype(zero)>(); });
    return kernels;
}
