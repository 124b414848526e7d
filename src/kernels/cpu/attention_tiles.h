/* Attention with our own tiles (tile.h). Note [Attention in blocks] in attention.h gives the
 * formulas.
 *
 * Note [Strips]. Scores are computed for one strip at a time. A strip is eight queries, which is
 * one row of tiles. Its scores are still in the first-level cache when they are turned into
 * probabilities or gradients. In backward, one pass turns S and dP into P and dS and writes each
 * result in the layout of the next product: dS in rows for dQ, and packed tiles of P^T and dS^T for
 * dV and dK. The products for dV and dK sum over queries, and eight queries are too few for them,
 * so tiles are collected for a block of strips.
 *
 * With AMX, whose tiles have 32 rows, a strip is 32 queries. One call of softmax() then handles
 * sixteen of them, one call of gradient() eight.
 *
 * Note [Turned sums]. An AMX product sums over pairs of neighbouring elements of A's rows, and B
 * has the same pairs in neighbouring positions. A strip's P and dS, whose rows are queries, already
 * have the layout of B: two of their rows make one row of a panel. To be used as A, they would have
 * to be transposed, which takes as many instructions as the gradient itself. Therefore the products
 * over queries are computed transposed: dV^T = dO^T P and dK^T = Q^T dS. Only dO and Q, which have
 * fewer columns than P and dS, are then transposed, and the sums at the end.
 *
 * Exponentials are to the base 2: the scale and the biases are multiplied by log2(e). The biases of
 * a sequence are in a table that is indexed by the difference of positions. Another such table has
 * their gradients: Note [Bias tables].
 *
 * Note [Few queries]. If a sequence has few queries, as in generation, forward reads K and V in
 * place (few_rows.h), since packing them would take longer than the products. P stays in f32. */
#pragma once
#include "src/kernels/cpu/attention.h"

enum {
    FSDP_ATTENTION_STRIP = 16 /* the most queries of one call of softmax() */
};

/* Columns are keys, counted from the strip's first key. Values of `scores` and `d_p` outside a
 * row's visible columns or beyond the last key are undefined. */
typedef struct fsdp_attention_strip {
    fsdp_dtype dtype; /* of P, dS and the panels */
    int rows;         /* at most FSDP_ATTENTION_STRIP in softmax(), FSDP_TILE_ROWS in gradient() */
    int columns;      /* a multiple of 32 in forward, of 16 in backward */
    int begin[FSDP_ATTENTION_STRIP]; /* each row's first visible column */
    /* End of each row's visible columns; equal to `begin` if there are none. */
    int end[FSDP_ATTENTION_STRIP];
    float scale;
    const float *bias; /* row r, column j has bias[j - r]; or NULL */
    /* Bit j % 32 of keep[r * keep_ld + j / 32] is set if dropout keeps row r, column j; or NULL. */
    const uint32_t *keep;
    int64_t keep_ld;
    float *scores; /* row stride ld */
    int64_t ld;
} fsdp_attention_strip;

/* Inputs and outputs of a strip's gradient. */
typedef struct fsdp_attention_gradient {
    const float *d_p;         /* laid out like `scores` */
    const float *lse, *delta; /* [rows] */
    float keep_factor;        /* 1 / (1 - p); the kept elements of dP are multiplied by it */
    /* Where P and dS are stored: in the tile of the strip's first column, at the lane of the
     * strip's first row. */
    char *p_tiles, *d_s_tiles;
    /* Bytes from one tile (8 keys) to the next; with AMX, from one panel (32 keys) to the next. */
    int64_t tile_bytes;
    void *d_s; /* dS in rows that are d_s_ld elements apart */
    int64_t d_s_ld;
    float *d_bias; /* indexed like `bias`; the gradient is added to it; NULL: not computed */
} fsdp_attention_gradient;

/* The computations on strips. There is one table per ISA that has tiles. */
typedef struct fsdp_cpu_attention_strips {
    /* Turns scores into probabilities, not yet divided by their sum, and writes them to rows of
     * `p`, which are p_ld elements apart. The probabilities are zero outside the visible columns.
     * If their dtype is f32, `p` may be the same memory as the scores. Also writes lse, and
     * inverse[r] = 1 / (the row's sum before dropout), or 0 for a query that sees no key. */
    void (*softmax)(const fsdp_attention_strip *strip, void *p, int64_t p_ld, float *lse,
                    float *inverse);
    void (*gradient)(const fsdp_attention_strip *strip, const fsdp_attention_gradient *to);
    /* Sets the keep bits of `columns` keys (a multiple of 32): bit i is set if fsdp_kernels.dropout
     * keeps element `element` + i. `element` is a multiple of 8. */
    void (*keep)(uint32_t *bits, uint64_t key, uint64_t element, float p, int64_t columns);
    /* sums[i] = dot product of row i of x and row i of y. Both have `dtype` and row stride ld. */
    void (*dot)(float *sums, const void *x, const void *y, fsdp_dtype dtype, int64_t ld,
                int64_t rows, int64_t width);
    /* dst[i] = src[i] * factors[i] * factor; factors may be NULL. */
    void (*store)(void *dst, fsdp_dtype dtype, int64_t dst_ld, const float *src, int64_t src_ld,
                  const float *factors, float factor, int64_t rows, int64_t width);
    /* dst [rows, width] of dtype = src^T * factor, where src is [width, rows]. NULL without AMX:
     * Note [Turned sums]. */
    void (*store_turned)(void *dst, fsdp_dtype dtype, int64_t dst_ld, const float *src,
                         int64_t src_ld, float factor, int64_t rows, int64_t width);
} fsdp_cpu_attention_strips;

extern const fsdp_cpu_attention_strips fsdp_cpu_attention_strips_x86_64_v3;
extern const fsdp_cpu_attention_strips fsdp_cpu_attention_strips_x86_64_v4;
/* For tiles that widen bf16, so that P and dS are f32. */
extern const fsdp_cpu_attention_strips fsdp_cpu_widening_strips_x86_64_v4;
/* For AMX: P and dS are stored as panels. */
extern const fsdp_cpu_attention_strips fsdp_cpu_amx_strips_x86_64_v4;

/* --- shared by forward and backward: attention_tiles.c --- */

/* One query head of one sequence. */
typedef struct fsdp_attention_head {
    const fsdp_attention_args *args;
    const fsdp_cpu_tiles *tiles;
    const fsdp_cpu_attention_strips *strips;
    fsdp_dtype dtype; /* of panels, P and dS: the tensors' dtype, or f32 if the tiles widen it */
    int64_t h;
    int strip; /* queries per strip */
    /* The sequence's first row of q and of k, and its numbers of queries and keys. */
    int64_t q_row, k_row, queries, keys;
    int64_t shift;      /* query i is at the position of key i + shift */
    int64_t padded_dim; /* a multiple of 16 */
} fsdp_attention_head;

fsdp_attention_head fsdp_attention_head_at(const fsdp_cpu_attention *a, int64_t b, int64_t h);

/* A range that includes every key that certain queries see. `first` is the first key of a panel. */
typedef struct fsdp_attention_range {
    int64_t first, end;
} fsdp_attention_range;

fsdp_attention_range fsdp_attention_range_of(const fsdp_attention_head *head, int64_t query,
                                             int64_t rows);

/* Pack keys or values, either as the columns of a product or as the depth that a product sums over.
 * The two functions named ..._bytes() return the size of the packed rows. */
size_t fsdp_attention_columns_bytes(const fsdp_attention_head *head, int64_t rows);
size_t fsdp_attention_depth_bytes(const fsdp_attention_head *head, int64_t rows);
void fsdp_attention_pack_columns(const fsdp_attention_head *head, void *panels, const void *x,
                                 int64_t ld, int64_t rows);
void fsdp_attention_pack_depth(const fsdp_attention_head *head, void *panels, const void *x,
                               int64_t ld, int64_t rows);

/* Return the address of row `row` of head h in x. */
const char *fsdp_attention_at(const fsdp_attention_head *head, const void *x, int64_t ld,
                              int64_t row, int64_t h);

/* Prefetch up to `rows` rows of x. The hardware prefetcher does not predict them, since rows are
 * short and far apart. */
void fsdp_attention_prefetch(const fsdp_attention_head *head, const void *x, int64_t ld,
                             int64_t query, int64_t rows);

/* Note [Bias tables]. A sequence's table has the bias of the difference key - query, times log2(e),
 * at entry key - query + queries - 1 + FSDP_ATTENTION_MARGIN. A strip also reads and changes
 * entries beyond its rows and columns, so a table has a margin at both ends. If position_bias has
 * no element for the difference of an entry, the entry is 0 in the table of biases and is ignored
 * in the table of gradients. */
enum {
    FSDP_ATTENTION_MARGIN = 16
};
int64_t fsdp_attention_table_length(const fsdp_attention_head *head);
void fsdp_attention_make_table(const fsdp_attention_head *head, float *table);
/* Add a table of gradients to the head's row of d_bias [heads, 2*bias_span-1]. */
void fsdp_attention_add_table(const fsdp_attention_head *head, float *d_bias, const float *table);
int64_t fsdp_attention_table_at(const fsdp_attention_head *head, int64_t query, int64_t key);

/* Return the number of words of keep bits for a row that sees at most `keys` keys. */
int64_t fsdp_attention_keep_ld(int64_t keys);
/* Return the row stride of the scores of `keys` keys. It is never a multiple of 4096 bytes. */
int64_t fsdp_attention_scores_ld(int64_t keys);

/* Return the strip of queries [query, query + rows) and keys [range.first, range.end). The caller
 * sets scores and columns, and bias and keep if there are any. */
fsdp_attention_strip fsdp_attention_strip_at(const fsdp_attention_head *head, int64_t query,
                                             int rows, fsdp_attention_range range);
/* Set the keep bits of a strip's rows, which are ld words apart. */
void fsdp_attention_keep(const fsdp_attention_head *head, int64_t query, int rows,
                         fsdp_attention_range range, uint32_t *bits, int64_t ld);

/* Return 1 / (1 - p), by which dropout multiplies the kept elements. */
float fsdp_attention_keep_factor(const fsdp_attention_head *head);

/* fsdp_attention_scores() computes scores [rows, keys of `range`] = X K^T. x is `rows` rows of one
 * head, which are x_ld elements apart. `left` is scratch of fsdp_attention_left_bytes() bytes. */
size_t fsdp_attention_left_bytes(const fsdp_attention_head *head);
void fsdp_attention_scores(const fsdp_attention_head *head, const void *x, int64_t x_ld,
                           int64_t rows, const void *columns, fsdp_attention_range range,
                           void *left, float *scores, int64_t ld);
/* out [rows, padded_dim] = P V. The columns of p are the keys of `range`. */
void fsdp_attention_combine(const fsdp_attention_head *head, const void *p, int64_t p_ld,
                            int64_t rows, const void *depth, fsdp_attention_range range,
                            float *out);

/* --- forward and backward --- */

/* For one sequence, compute forward for one query head or backward for one key/value head. */
FSDP_MUST_CHECK fsdp_status fsdp_attention_tiles_forward(const fsdp_cpu_attention *a, int worker,
                                                         int64_t b, int64_t h);
FSDP_MUST_CHECK fsdp_status fsdp_attention_tiles_backward(const fsdp_cpu_attention *a, int worker,
                                                          int64_t b, int64_t kv);
