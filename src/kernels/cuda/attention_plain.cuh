/* Attention for every dtype and head width. It computes in float32 and without tensor cores. See
 * Note [Attention in tiles] in attention.cuh.
 *
 * Tiles are 32 rows by 32 columns. A block has 64 threads; they are numbered (y, x), for y, x < 8.
 * Thread (y, x) computes the scores of rows y + 8 i and columns x + 8 j, for i, j < 4. Each row is
 * computed by eight neighboring threads of one warp. So the maximum and the sum of a row take three
 * shuffles, and rows of P are exchanged within a warp.
 *
 * Operands are widened to float32 in shared memory, CHUNK columns of the head at a time. A score is
 * summed over all chunks, and a block computes one chunk of the output. So if a head is wider than
 * CHUNK, there is a block for each chunk of its output, and these blocks all compute the same
 * scores. */
#pragma once
#include "src/kernels/cuda/attention.cuh"

enum {
    TILE = 32,
    THREADS = 64,
    SIDE = 8, /* a block has SIDE rows of SIDE threads */
    /* number of rows, and of columns, that each thread has in a tile of scores */
    EACH = TILE / SIDE,
    SCORES_LD = TILE + 4,
    KEEP_BYTES = TILE / 8 /* bytes of dropout bits for a row of a tile */
};

/* In shared memory, the row stride in words is 4 modulo 32. So accesses of 16 bytes to the same
 * column of eight rows use different banks. */
template <int CHUNK> struct plain {
    static constexpr int LD = CHUNK + 4, FLOATS = TILE * LD;
};

/* Some rows of one head of a tensor. */
template <typename T> struct row_source {
    const T *at;
    int64_t ld;
    int n; /* number of rows; rows from n on are read as zeros */
};

template <typename T>
FSDP_DEVICE row_source<T> rows_of(const void *base, int64_t ld, int64_t row, int64_t column, int n)
{
    return {(const T *)base + row * ld + column, ld, n};
}

/* Copy columns [column, column + CHUNK) of TILE rows to shared memory. Columns from head_dim on
 * become zeros. */
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
#pragma unroll 1
    for (int i = threadIdx.x; i < TILE * CHUNK; i += THREADS) {
        const int row = i / CHUNK, at = i % CHUNK;
        dst[row * LD + at] = row < src.n && column + at < p.head_dim
                                 ? to_float(src.at[row * src.ld + column + at])
                                 : 0.0f;
    }
}

/* Compute scores += A B^T, where A and B have CHUNK columns. */
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

/* Compute scores = A B^T over all columns of the head. `a` and `b` are buffers in shared memory for
 * one chunk of columns of each operand. No thread may read their old contents any more. At the end,
 * they contain the last chunk. The caller sets has_a if `a` already contains the last chunk of A.
 * If has_a is true and the head has only one chunk, A is not loaded again. */
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

/* Each block computes one chunk of columns of its output, for which it needs the same chunk of
 * `src`. Load this chunk into `dst`, unless the head has only one chunk, which compute_scores() has
 * already loaded. */
template <typename T, int CHUNK>
FSDP_DEVICE void reload(float *dst, const row_source<T> &src, const attention_params &p)
{
    if (p.head_dim <= CHUNK)
        return;
    __syncthreads();
    load_rows<T, CHUNK>(dst, src, blockIdx.y * CHUNK, p);
    __syncthreads();
}

/* Store a thread's scores to shared memory, where the other threads of its warp read them. */
FSDP_DEVICE void share_scores(float *shared, const float (&scores)[EACH][EACH])
{
    float *at = shared + threadIdx.x / SIDE * SCORES_LD + threadIdx.x % SIDE;
    __syncwarp(); /* wait until the warp has read the previous scores */
#pragma unroll
    for (int i = 0; i < EACH; i++)
#pragma unroll
        for (int j = 0; j < EACH; j++)
            at[i * SIDE * SCORES_LD + j * SIDE] = scores[i][j];
    __syncwarp();
}

/* The elements of an output tile [TILE, CHUNK] that belong to one thread: those in rows y + 8 i and
 * columns 4 x + 32 n + e. */
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

/* Compute out += P B, where P is [TILE, TILE] and B is [TILE, CHUNK]. Both are in shared memory. */
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

/* Multiply each of the thread's rows of the output by the row's factor, and store it. `dst` is the
 * address of the tile's first row, and `n` is the number of rows of the tile. */
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

/* Return the factor by which dropout multiplies the score of query `query` and key `key` of the
 * tile. */
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

/* Return scale * x + bias for query i and key j, where x is the product of their rows of q and k.
 * If the query does not see the key, return -infinity. */
FSDP_DEVICE float masked_score(const attention_params &p, const attention_tile &tile, int head,
                               int i, int j, float x)
{
    if (i >= tile.n_queries || j >= tile.n_keys || !is_seen(p, tile, i, j))
        return -INFINITY;
    const int64_t length = 2 * (int64_t)p.bias_span - 1;
    return x * p.scale +
           (p.bias ? p.bias[head * length + j - (i + tile.shift) + p.bias_span - 1] : 0.0f);
}

/* The task of a block: a tile of the list, the index of the tile in the list, and a head. */
typedef struct plain_task {
    attention_tile tile;
    int index, head;
} plain_task;

FSDP_DEVICE plain_task task_of(const attention_tile *tiles, int heads)
{
    const int index = blockIdx.x / heads;
    return {tiles[index], index, (int)(blockIdx.x % heads)};
}

/* --- launches --- */

/* Start a kernel with enough dynamic shared memory for `tiles` operands of TILE rows and one tile
 * of scores. */
template <int CHUNK>
static void start(fsdp_cuda_context *c, void (*kernel)(attention_params), int64_t blocks, int tiles,
                  const attention_params &p)
{
    const int chunks = p.head_dim > CHUNK ? (p.head_dim + CHUNK - 1) / CHUNK : 1;
    const size_t bytes = (size_t)(tiles * plain<CHUNK>::FLOATS + TILE * SCORES_LD) * sizeof(float);
    attention_start(c, kernel, dim3((unsigned)blocks, (unsigned)chunks), THREADS, bytes, p);
}

/* Start the kernels for forward or backward (attention_plain.cu, attention_plain_backward.cu).
 * @{ */
void fsdp_cuda_attention_plain_forward(fsdp_cuda_context *c, fsdp_dtype dtype,
                                       const attention_params &p);
void fsdp_cuda_attention_plain_backward(fsdp_cuda_context *c, fsdp_dtype dtype,
                                        const attention_params &p);
/* @} */
