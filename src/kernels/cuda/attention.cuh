/* Declarations that the attention kernels share. attention.cu has the functions of fsdp_kernels:
 * they divide the work into tiles and choose the kernels. attention_plain.cuh has kernels for every
 * dtype and head width.
 *
 * Note [Attention in tiles]. There are three kernels: forward; d_q, which also computes delta (the
 * row sums of out * d_out) and the gradient of the position bias; and d_kv, which computes d_k and
 * d_v. A block of threads computes the results for a tile of rows. The rows are queries of one head
 * in forward and d_q, and keys of one key/value head in d_kv. The block processes the rows of the
 * other operand (keys or queries) tile by tile, and skips the tiles that the causal mask or the
 * window hides completely. Both backward kernels compute the scores again. So each sum is computed
 * by one block in a fixed order, and nothing is added atomically.
 *
 * The host makes a list of the tiles of all sequences, ordered so that the tiles with the most work
 * come first. An entry of the list contains everything that a block needs to know about its
 * sequence, so the kernels read no offsets.
 *
 * The gradient of the bias is a sum over all queries of a head. Each block of d_q computes
 * gradients of scores. It adds them up along the diagonals (on a diagonal, key - query is
 * constant), and writes these sums to its own row of bias_parts. Another kernel then adds these
 * rows in the order of the list. */
#pragma once
#include "src/kernels/cuda/elements.cuh"
#include "src/kernels/cuda/philox.cuh"

/* Rows [first, first + n) of a sequence's queries or keys, where n is the tile size of the
 * kernel. */
typedef struct alignas(16) attention_tile {
    /* The first row of the sequence in q, and the number of rows of the sequence in q. */
    int32_t query_row, n_queries;
    int32_t key_row, n_keys;
    int32_t first;
    int32_t shift; /* see fsdp_attention_args */
    /* In a tile of queries: the number of keys that at least one query of the tile sees. In a tile
     * of keys: the number of queries that see at least one key of the tile. */
    int32_t work;
    int32_t unused;
} attention_tile;

/* The arguments of all attention kernels. Strides are in elements. */
typedef struct attention_params {
    const void *q, *k, *v;
    int64_t q_ld, k_ld, v_ld;
    int64_t out_ld; /* row stride of `out` and d_out, in elements */
    const attention_tile *q_tiles, *k_tiles;
    int n_q_tiles, n_k_tiles;
    int heads, kv_heads, head_dim;
    int n_query_rows; /* number of queries in all sequences; the row stride of lse and delta */
    float scale;
    bool causal;
    int window; /* 0: no window */
    const float *bias;
    int bias_span;
    bool drops;
    uint32_t drop_threshold;
    float keep_factor;
    uint64_t dropout_key;
    void *out;
    float *lse;
    /* The fields below are used only in backward. */
    const void *d_out;
    void *d_q, *d_k, *d_v;
    int64_t d_q_ld, d_k_ld, d_v_ld;
    float *delta; /* [heads, n_query_rows] */
    /* [heads, n_query_rows]: lse as a logarithm to base 2; infinity where lse is -infinity */
    float *lse2;
    float *d_bias;     /* NULL: the gradient of the bias is not computed */
    float *bias_parts; /* [n_q_tiles, heads, n_parts, part_ld]; NULL if d_bias is NULL */
    int part_ld;
    bool vectors; /* true: all rows of all operands are aligned for accesses of 16 bytes */
} attention_params;

/* Rows [begin, end) of a sequence. The range is empty if end <= begin. */
typedef struct attention_range {
    int begin, end;
} attention_range;

/* Return a range of keys that contains every key that at least one of the queries [tile.first,
 * tile.first + rows) sees. `begin` is rounded down to a multiple of `step`. */
static __host__ __device__ inline attention_range
visible_keys(const attention_params &p, const attention_tile &tile, int rows, int step)
{
    const int last = tile.first + rows < tile.n_queries ? tile.first + rows : tile.n_queries;
    const int begin = p.window > 0 ? tile.first + tile.shift - p.window + 1 : 0;
    const int end = p.causal ? last + tile.shift : tile.n_keys;
    return {begin > 0 ? begin / step * step : 0, end < tile.n_keys ? end : tile.n_keys};
}

/* Return a range of queries that contains every query that sees at least one of the keys
 * [tile.first, tile.first + rows). `begin` is rounded down to a multiple of `step`. */
static __host__ __device__ inline attention_range
visible_queries(const attention_params &p, const attention_tile &tile, int rows, int step)
{
    const int last = tile.first + rows < tile.n_keys ? tile.first + rows : tile.n_keys;
    const int begin = p.causal ? tile.first - tile.shift : 0;
    const int end = p.window > 0 ? last - 1 - tile.shift + p.window : tile.n_queries;
    return {begin > 0 ? begin / step * step : 0, end < tile.n_queries ? end : tile.n_queries};
}

/* seen_keys() returns the keys that one query sees, and seen_queries() returns the queries that see
 * one key. `begin` of the result may be negative. @{ */
FSDP_DEVICE attention_range seen_keys(const attention_params &p, const attention_tile &tile,
                                      int query)
{
    const int end = p.causal ? query + tile.shift + 1 : tile.n_keys;
    return {p.window > 0 ? query + tile.shift - p.window + 1 : 0,
            end < tile.n_keys ? end : tile.n_keys};
}
FSDP_DEVICE attention_range seen_queries(const attention_params &p, const attention_tile &tile,
                                         int key)
{
    return {p.causal ? key - tile.shift : 0,
            p.window > 0 ? key - tile.shift + p.window : tile.n_queries};
}
/* @} */

/* Return true if the mask and the window let query i see key j. */
FSDP_DEVICE bool is_seen(const attention_params &p, const attention_tile &tile, int i, int j)
{
    const int distance = i + tile.shift - j;
    return (!p.causal || distance >= 0) && (p.window == 0 || distance < p.window);
}

/* For dropout, each score has an index, called its element: see fsdp_attention_args. Return the
 * element of the score of query i of the tile's sequence and key j. */
FSDP_DEVICE uint64_t dropout_element(const attention_tile &tile, int head, int i, int j)
{
    return ((uint64_t)head << 40) + ((uint64_t)(tile.query_row + i) << 20) + (uint64_t)j;
}

/* Compute which scores dropout keeps in a tile of QUERIES by KEYS scores. Bit j % 8 of keep[i *
 * KEYS / 8 + j / 8] is set if dropout keeps the score of query `query` + i and key `key` + j. `key`
 * is a multiple of 8. All THREADS threads of the block must call this function. */
template <int QUERIES, int KEYS, int THREADS>
FSDP_DEVICE void make_keep_bits(uint8_t *keep, const attention_params &p,
                                const attention_tile &tile, int head, int query, int key)
{
    constexpr int BYTES = KEYS / 8;
#pragma unroll 1
    for (int i = threadIdx.x; i < QUERIES * BYTES; i += THREADS) {
        const uint64_t e = dropout_element(tile, head, query + i / BYTES, key + i % BYTES * 8);
        const philox_words words = philox(p.dropout_key, e / PHILOX_HALVES);
        uint32_t bits = 0;
#pragma unroll
        for (int j = 0; j < PHILOX_HALVES; j++)
            bits |= (uint32_t)(philox_half(words, j) >= p.drop_threshold) << j;
        keep[i] = (uint8_t)bits;
    }
}

/* Note [Parts of the bias gradient]. The q_tile queries of a tile of d_q are divided into n_parts
 * parts of equal size. The sums of each part are written to a separate row of bias_parts. Entry e
 * of the row is the sum over the diagonal j - r = begin + e - rows, where j is a key of the
 * sequence, r is a row of the part, `rows` is the number of rows of the part, and `begin` is the
 * first key of the tile's visible_keys(). The kernel writes entries [0, rows + step * n), where n
 * is the number of steps that it makes. */

/* A set of kernels that compute attention. */
typedef struct attention_kernels {
    /* q_tile: number of rows of a tile of queries; k_tile: number of rows of a tile of keys */
    int q_tile, k_tile;
    /* The number of keys that d_q and forward process at a time. This number is a multiple or a
     * divisor of q_tile. */
    int step;
    int n_parts; /* see Note [Parts of the bias gradient] */
    /* The largest amount of shared memory that a block of these kernels needs, in bytes. The
     * kernels can be used only on cards that have at least this amount. */
    int forward_bytes, backward_bytes;
    void (*forward)(fsdp_cuda_context *c, const attention_params &p);
    /* Computes all gradients except d_bias. */
    void (*backward)(fsdp_cuda_context *c, const attention_params &p);
} attention_kernels;

/* Return the kernels that support every head width (attention_plain.cu). */
const attention_kernels *fsdp_cuda_attention_plain(fsdp_dtype dtype);
/* Kernels for head widths that are multiples of 8. Tables with `wide` in their name support widths
 * up to 128, and the other tables support widths up to 64. All of these kernels require that
 * p.vectors is true and that p.scale is positive (attention_tensor.cuh). */
extern const attention_kernels fsdp_cuda_attention_bf16, fsdp_cuda_attention_bf16_wide,
    fsdp_cuda_attention_f16, fsdp_cuda_attention_f16_wide;

/* Start a kernel with `bytes` bytes of dynamic shared memory. */
static inline void attention_start(fsdp_cuda_context *c, void (*kernel)(attention_params),
                                   dim3 grid, unsigned threads, size_t bytes,
                                   const attention_params &p)
{
    enum {
        USUAL_BYTES = 48 << 10 /* for more than this, cudaFuncSetAttribute() must be called */
    };
    if (!grid.x)
        return;
    if (bytes <= USUAL_BYTES ||
        fsdp_cuda_check(c,
                        cudaFuncSetAttribute((const void *)kernel,
                                             cudaFuncAttributeMaxDynamicSharedMemorySize,
                                             (int)bytes),
                        "attention"))
        CUDA_LAUNCH(kernel, grid, threads, bytes, fsdp_cuda_stream(c), p);
}
