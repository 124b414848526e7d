/* Attention with our own tiles (tile.h). Note [Attention in blocks] in attention.h gives the
 * formulas.
 *
 * Note [Strips]. Scores are computed for one strip of queries at a time. A strip is eight queries,
 * because a tile has eight rows. A strip has so few queries that its scores are still in the
 * first-level cache when they are turned into probabilities or gradients. In backward, one pass
 * over the strip turns S and dP into P and dS. It writes P and dS in the layouts that the next
 * products need: dS in rows for dQ, P^T in packed tiles for dV, and dS^T in packed tiles for dK.
 * The products for dV and dK sum over queries. Eight queries are too few for these products, so
 * they run once for a block of several strips.
 *
 * With AMX, a strip is 32 queries. One call of softmax() processes 16 of them, and one call of
 * gradient() processes eight.
 *
 * Note [Turned sums]. With AMX, the products that sum over queries are computed transposed: dV^T =
 * dO^T P and dK^T = Q^T dS. P and dS are then the right operand B and need not be transposed. In a
 * packed panel of B, each row consists of two rows of B (tile.h). So two rows of P or dS are stored
 * directly as one row of a panel. If P and dS were the left operand, they would have to be
 * transposed. Transposing P and dS would take as many instructions as computing them. Instead,
 * smaller matrices are transposed: dO and Q before the products, and the sums dV^T and dK^T after
 * the products. dO and Q have fewer columns than P and dS.
 *
 * Exponentials are to the base 2: the scale and the biases are multiplied by log2(e). Note [Bias
 * tables] describes how biases and their gradients are stored.
 *
 * Note [Few queries]. In generation, a sequence has few queries. For few queries, packing K and V
 * would take longer than the products, so forward reads K and V in place (few_rows.h). P is then
 * f32. */
#pragma once
#include "src/kernels/cpu/attention.h"

enum {
    FSDP_ATTENTION_STRIP = 16 /* maximum queries in one call of softmax() */
};

/* The rows of a strip that one call of softmax() or gradient() processes. Rows are queries, and
 * columns are keys, counted from the strip's first key. A column is visible to a row if the row's
 * query sees the key. In other columns, `scores` and fsdp_attention_gradient.d_p are undefined. */
typedef struct fsdp_attention_strip {
    fsdp_dtype dtype; /* dtype of P, dS and the panels */
    int rows; /* at most FSDP_ATTENTION_STRIP in softmax(), at most FSDP_TILE_ROWS in gradient() */
    int columns;                     /* a multiple of 32 in forward, of 16 in backward */
    int begin[FSDP_ATTENTION_STRIP]; /* the first visible column of each row */
    /* The column after the last visible column of each row. If a row has no visible column, this
     * equals the row's `begin`. */
    int end[FSDP_ATTENTION_STRIP];
    float scale;
    const float *bias; /* the bias of row r and column j is bias[j - r]; NULL: no bias */
    /* Bit j % 32 of keep[r * keep_ld + j / 32] is set if dropout keeps the probability at row r,
     * column j. NULL: no dropout. */
    const uint32_t *keep;
    int64_t keep_ld;
    float *scores; /* row stride ld */
    int64_t ld;
} fsdp_attention_strip;

/* The data that gradient() reads and writes in addition to the fsdp_attention_strip. */
typedef struct fsdp_attention_gradient {
    const float *d_p;         /* laid out like the strip's `scores` */
    const float *lse, *delta; /* [rows], as in fsdp_attention_block */
    /* 1 / (1 - dropout_p). Where dropout keeps an element, dP is multiplied by this factor. */
    float keep_factor;
    /* P is stored at p_tiles for the product that computes dV, and dS is stored at d_s_tiles for
     * the product that computes dK. Both point into arrays of packed tiles (tile.h): to the tile of
     * the strip's first column, and in it to the lane of the strip's first row. */
    char *p_tiles, *d_s_tiles;
    /* The distance in bytes from one tile (8 keys) to the next or, with AMX, from one panel (32
     * keys) to the next. */
    int64_t tile_bytes;
    void *d_s; /* where dS is stored for dQ, in rows that are d_s_ld elements apart */
    int64_t d_s_ld;
    float *d_bias; /* gradient of `bias`, with the same indices; dS is added to it; NULL: the
                    * gradient is not wanted */
} fsdp_attention_gradient;

/* The functions that work on strips. There is one table for each kind of tiles (tile.h). */
typedef struct fsdp_cpu_attention_strips {
    /* Computes probabilities from the scores and writes them to `p`, whose rows are p_ld elements
     * apart. The probabilities of a row are not yet divided by their sum. Outside the visible
     * columns they are zero. If the probabilities are f32, `p` may point to the same memory as the
     * scores. Also writes lse[r] and inverse[r] for each row r. inverse[r] is 1 / (the sum of row r
     * before dropout). If the row's query sees no key, inverse[r] is 0. */
    void (*softmax)(const fsdp_attention_strip *strip, void *p, int64_t p_ld, float *lse,
                    float *inverse);
    /* Computes P and dS from S (the strip's scores) and dP. */
    void (*gradient)(const fsdp_attention_strip *strip, const fsdp_attention_gradient *to);
    /* For `columns` columns of one row, writes bits that say which elements dropout keeps.
     * `columns` is a multiple of 32. Bit i is set if fsdp_kernels.dropout with `key` keeps element
     * `element` + i. `element` is a multiple of 8. */
    void (*keep)(uint32_t *bits, uint64_t key, uint64_t element, float p, int64_t columns);
    /* Sets sums[i] to the dot product of row i of x and row i of y. Both have `dtype` and row
     * stride ld. */
    void (*dot)(float *sums, const void *x, const void *y, fsdp_dtype dtype, int64_t ld,
                int64_t rows, int64_t width);
    /* Sets row i of dst to row i of src, multiplied by factors[i] * factor. If factors is NULL, all
     * factors[i] are 1. */
    void (*store)(void *dst, fsdp_dtype dtype, int64_t dst_ld, const float *src, int64_t src_ld,
                  const float *factors, float factor, int64_t rows, int64_t width);
    /* Computes dst [rows, width] = src^T * factor, where src is f32 [width, rows]. Only the table
     * for AMX has this function (Note [Turned sums]); in the other tables it is NULL. */
    void (*store_turned)(void *dst, fsdp_dtype dtype, int64_t dst_ld, const float *src,
                         int64_t src_ld, float factor, int64_t rows, int64_t width);
} fsdp_cpu_attention_strips;

extern const fsdp_cpu_attention_strips fsdp_cpu_attention_strips_x86_64_v3;
extern const fsdp_cpu_attention_strips fsdp_cpu_attention_strips_x86_64_v4;
/* The functions for tiles that convert bf16 to f32 before they multiply. P and dS are f32. */
extern const fsdp_cpu_attention_strips fsdp_cpu_widening_strips_x86_64_v4;
/* The functions for AMX. P and dS are stored as panels (Note [Turned sums]). */
extern const fsdp_cpu_attention_strips fsdp_cpu_amx_strips_x86_64_v4;

/* --- functions that forward and backward share: attention_tiles.c --- */

/* One query head of one sequence. */
typedef struct fsdp_attention_head {
    const fsdp_attention_args *args;
    const fsdp_cpu_tiles *tiles;
    const fsdp_cpu_attention_strips *strips;
    /* The dtype of panels, P and dS. It is f32 if the tiles widen bf16 to f32, and in forward if
     * there are few queries (Note [Few queries]). Otherwise it is the dtype of the tensors. */
    fsdp_dtype dtype;
    int64_t h;
    int strip; /* queries per strip */
    /* The sequence's first row of q, its first row of k, its number of queries and its number of
     * keys. */
    int64_t q_row, k_row, queries, keys;
    int64_t shift;      /* query i has the same position as key i + shift */
    int64_t padded_dim; /* head_dim, rounded up to a multiple of 16 */
} fsdp_attention_head;

fsdp_attention_head fsdp_attention_head_at(const fsdp_cpu_attention *a, int64_t b, int64_t h);

/* Keys [first, end) of a sequence. The range includes every key that is seen by at least one query
 * of a group of queries. `first` is rounded down to the first key of a panel. */
typedef struct fsdp_attention_range {
    int64_t first, end;
} fsdp_attention_range;

fsdp_attention_range fsdp_attention_range_of(const fsdp_attention_head *head, int64_t query,
                                             int64_t rows);

/* These functions pack rows of a tensor as the right operand B of a product.
 * fsdp_attention_pack_columns() makes each row of the tensor a column of B.
 * fsdp_attention_pack_depth() makes each row of the tensor a row of B, so that the product sums
 * over these rows. fsdp_attention_columns_bytes() and fsdp_attention_depth_bytes() return the size
 * in bytes of `rows` packed rows. */
size_t fsdp_attention_columns_bytes(const fsdp_attention_head *head, int64_t rows);
size_t fsdp_attention_depth_bytes(const fsdp_attention_head *head, int64_t rows);
void fsdp_attention_pack_columns(const fsdp_attention_head *head, void *panels, const void *x,
                                 int64_t ld, int64_t rows);
void fsdp_attention_pack_depth(const fsdp_attention_head *head, void *panels, const void *x,
                               int64_t ld, int64_t rows);

/* Return the address of row `row` of head h in x. */
const char *fsdp_attention_at(const fsdp_attention_head *head, const void *x, int64_t ld,
                              int64_t row, int64_t h);

/* Prefetch the rows of x that belong to queries [query, query + rows), if these queries exist. The
 * hardware prefetcher does not predict the addresses of these rows, because the rows are short and
 * far apart. */
void fsdp_attention_prefetch(const fsdp_attention_head *head, const void *x, int64_t ld,
                             int64_t query, int64_t rows);

/* Note [Bias tables]. A head has two tables: one of biases, and one of the gradients of biases.
 * Each table has an entry for each difference `key - query`. The entry has the index `key - query +
 * queries - 1 + FSDP_ATTENTION_MARGIN`. An entry of the table of biases is the bias times log2(e).
 * The functions for strips process whole vectors, so they also access entries beyond the rows and
 * columns of a strip. Therefore, both tables have a margin at both ends. Entries for which
 * position_bias has no element are 0 in the table of biases and ignored in the table of
 * gradients. */
enum {
    FSDP_ATTENTION_MARGIN = 16
};
int64_t fsdp_attention_table_length(const fsdp_attention_head *head);
void fsdp_attention_make_table(const fsdp_attention_head *head, float *table);
/* `table` is a head's table of gradients (Note [Bias tables]). Add it to the head's row of d_bias
 * [heads, 2*bias_span-1]. */
void fsdp_attention_add_table(const fsdp_attention_head *head, float *d_bias, const float *table);
int64_t fsdp_attention_table_at(const fsdp_attention_head *head, int64_t query, int64_t key);

/* Return the number of uint32_t words that contain the dropout bits of a row of `keys` keys. Each
 * key has one bit, which says whether dropout keeps the probability. */
int64_t fsdp_attention_keep_ld(int64_t keys);
/* Return the row stride, in elements, of a matrix of scores with `keys` columns. In bytes, the
 * stride is never a multiple of 4096, because rows that far apart would evict each other from the
 * cache. */
int64_t fsdp_attention_scores_ld(int64_t keys);

/* Return the strip of queries [query, query + rows) and keys [range.first, range.end). The caller
 * sets the strip's scores and columns. If there is a bias, the caller also sets `bias`. If there is
 * dropout, the caller also sets `keep` and keep_ld. */
fsdp_attention_strip fsdp_attention_strip_at(const fsdp_attention_head *head, int64_t query,
                                             int rows, fsdp_attention_range range);
/* Set the bits in `bits` for a strip. Each bit says whether dropout keeps one element of the strip.
 * The rows of `bits` are ld words apart. */
void fsdp_attention_keep(const fsdp_attention_head *head, int64_t query, int rows,
                         fsdp_attention_range range, uint32_t *bits, int64_t ld);

/* Return 1 / (1 - dropout_p), the factor by which dropout multiplies the kept elements. */
float fsdp_attention_keep_factor(const fsdp_attention_head *head);

/* Return the size in bytes of the buffer `left` that fsdp_attention_scores() needs. */
size_t fsdp_attention_left_bytes(const fsdp_attention_head *head);
/* Compute scores [rows, keys of `range`] = X K^T. `x` points to X: `rows` rows of one head, which
 * are x_ld elements apart. `columns` is K, packed by fsdp_attention_pack_columns(). `left` is a
 * temporary buffer. */
void fsdp_attention_scores(const fsdp_attention_head *head, const void *x, int64_t x_ld,
                           int64_t rows, const void *columns, fsdp_attention_range range,
                           void *left, float *scores, int64_t ld);
/* Compute out [rows, padded_dim] = P V. The columns of `p` belong to the keys of `range`. `depth`
 * is V, packed by fsdp_attention_pack_depth(). */
void fsdp_attention_combine(const fsdp_attention_head *head, const void *p, int64_t p_ld,
                            int64_t rows, const void *depth, fsdp_attention_range range,
                            float *out);

/* --- forward and backward --- */

/* Compute forward for query head h of sequence b. */
FSDP_MUST_CHECK fsdp_status fsdp_attention_tiles_forward(const fsdp_cpu_attention *a, int worker,
                                                         int64_t b, int64_t h);
/* Compute backward in sequence b for key/value head kv and all query heads that read it. */
FSDP_MUST_CHECK fsdp_status fsdp_attention_tiles_backward(const fsdp_cpu_attention *a, int worker,
                                                          int64_t b, int64_t kv);
