/* Forward attention for every dtype and head width. See attention_plain.cuh. */
#include "src/kernels/cuda/attention_plain.cuh"

/* For each of the thread's rows, the running maximum of the scores and the running sum of their
 * exponentials (Milakov & Gimelshein 2018). */
typedef struct softmax_rows {
    float most[EACH], sum[EACH];
} softmax_rows;

/* Replace the scores of a tile by their exponentials, times the dropout factor, and add the
 * exponentials to the running sums in `rows`. Because the running maximum of row i may have grown,
 * the sums that row i of the output already contains must be multiplied by a factor. Set shrink[i]
 * to this factor. */
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
        /* The maximum is -infinity if no key was visible or if all scores were NaN. If all scores
         * were NaN, the sum becomes NaN. */
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
        const bool sees = rows.sum[i] != 0.0f; /* also true if the sum is NaN */
        factors[i] = sees ? 1.0f / rows.sum[i] : 0.0f;
        /* The maximum is still -infinity if all scores were NaN. */
        const float base = rows.most[i] == -INFINITY ? 0.0f : rows.most[i];
        if (blockIdx.y == 0 && threadIdx.x % SIDE == 0 && y + i * SIDE < n)
            p.lse[(int64_t)task.head * p.n_query_rows + row + y + i * SIDE] =
                sees ? base + logf(rows.sum[i]) : -INFINITY;
    }
    store_output((T *)p.out + row * p.out_ld + column, p.out_ld, n, out, factors, p);
}

/* --- launches --- */

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

void fsdp_cuda_attention_plain_forward(fsdp_cuda_context *c, fsdp_dtype dtype,
                                       const attention_params &p)
{
    with_type(dtype, [&](auto zero) { forward<decltype(zero)>(c, p); });
}

template <fsdp_dtype DTYPE> static const attention_kernels *kernels_of(void)
{
    enum {
        BYTES = (4 * plain<128>::FLOATS + TILE * SCORES_LD) * (int)sizeof(float)
    };
    static const attention_kernels kernels = {TILE,
                                              TILE,
                                              TILE,
                                              1,
                                              BYTES,
                                              BYTES,
                                              [](fsdp_cuda_context *c, const attention_params &p) {
                                                  fsdp_cuda_attention_plain_forward(c, DTYPE, p);
                                              },
                                              [](fsdp_cuda_context *c, const attention_params &p) {
                                                  fsdp_cuda_attention_plain_backward(c, DTYPE, p);
                                              }};
    return &kernels;
}

const attention_kernels *fsdp_cuda_attention_plain(fsdp_dtype dtype)
{
    return dtype == FSDP_DTYPE_F32    ? kernels_of<FSDP_DTYPE_F32>()
           : dtype == FSDP_DTYPE_BF16 ? kernels_of<FSDP_DTYPE_BF16>()
                                      : kernels_of<FSDP_DTYPE_F16>();
}
