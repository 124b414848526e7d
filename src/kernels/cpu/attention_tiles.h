/* Attention with our own tiles (tile.h). Note [Attention in blocks] in attention.h gives the
 * formulas.
 *
 * Note [Strips]. Scores are computed for eight queries, a row of tiles, at a time, so that they are
 * still in the first-level cache when rows become probabilities or gradients. In backward one pass
 * turns S and dP into P and dS and writes each result in the layout of the next product: dS in rows
 * for dQ, P and dS as packed tiles of P^T and dS^T for dV and dK. Those two products sum over
 * queries, and eight are too few, so tiles are collected for a block of strips.
 *
 * With AMX, whose tiles have 32 rows, a strip is 32 queries. Probabilities are then computed for
 * sixteen queries at a time and gradients for eight.
 *
 * Note [Turned sums]. In an AMX product, neighbouring lanes of A are summed, and B holds pairs of
 * the elements that are summed. A strip's P and dS, whose rows are queries, already have the layout
 * of B: two rows make a row of a panel. To be A they would have to be transposed, which takes as
 * many instructions as the gradient itself. So the products over queries are computed transposed:
 * dV^T = dO^T P and dK^T = Q^T dS. That transposes dO and Q, which have fewer columns, and the sums
 * at the end.
 *
 * Exponentials are to the base 2: the scale and the biases are multiplied by log2(e). The bias and
 * its gradient are in a table for each sequence, indexed by the difference of positions, with zeros
 * around it: Note [Bias tables].
 *
 * Note [Few queries]. If a sequence has few queries, as in generation, forward multiplies with K
 * and V where they are (few_rows.h), since packing would take longer than the products. P stays in
 * f32. */
#pragma once
#include "src/kernels/cpu/attention.h"

enum {
    FSDP_ATTENTION_STRIP = 16 /* most queries that softmax() gets at once */
};

/* Columns are keys, counted from the strip's first key. Values of `scores` and `d_p` outside a
 * row's span or beyond the last key are undefined. */
typedef struct fsdp_attention_strip {
    fsdp_dtype dtype;                /* of P and dS, as of the panels */
    int rows;                        /* 1 to FSDP_ATTENTION_STRIP; FSDP_TILE_ROWS for gradients */
    int columns;                     /* a multiple of 32 in forward, of 16 in backward */
    int begin[FSDP_ATTENTION_STRIP]; /* first visible column of each row */
    int end[FSDP_ATTENTION_STRIP];   /* end of the visible columns; equal to begin: none */
    float scale;
    const float *bias;    /* of row r, column j: bias[j - r]; or NULL */
    const uint32_t *keep; /* bit j % 32 of keep[r * keep_ld + j / 32] is set if kept by dropout; or
                           * NULL */
    int64_t keep_ld;
    float *scores; /* row stride ld */
    int64_t ld;
} fsdp_attention_strip;

/* Inputs and outputs of a strip's gradient. */
typedef struct fsdp_attention_gradient {
    const float *d_p;          /* laid out as scores */
    const float *lse, *delta;  /* [rows] */
    float keep_factor;         /* 1 / (1 - p), by which the kept elements of dP are multiplied */
    char *p_tiles, *d_s_tiles; /* tile of the first column, at the strip's first row */
    int64_t tile_bytes;        /* from one tile of 8 keys to the next; with AMX from one panel of 32
                                * keys */
    void *d_s;                 /* in rows, d_s_ld apart */
    int64_t d_s_ld;
    float *d_bias; /* indexed as bias; added to; or NULL */
} fsdp_attention_gradient;

/* One per ISA that has tiles. */
typedef struct fsdp_cpu_attention_strips {
    /* Turns scores into probabilities that are not yet divided by their sum, zero outside the
     * spans, in rows of `p` (row stride p_ld; may be scores if f32). Writes lse, and inverse[r] = 1
     * / sum before dropout, 0 for a query that sees no key. */
    void (*softmax)(const fsdp_attention_strip *strip, void *p, int64_t p_ld, float *lse,
                    float *inverse);
    void (*gradient)(const fsdp_attention_strip *strip, const fsdp_attention_gradient *to);
    /* Keep bits of `columns` (a multiple of 32) keys: bit i is set if fsdp_kernels.dropout keeps
     * element `element` + i. `element` is a multiple of 8. */
    void (*keep)(uint32_t *bits, uint64_t key, uint64_t element, float p, int64_t columns);
    /* sums[i] = sum over the row of x[i] y[i], both of dtype and row stride ld. */
    void (*dot)(float *sums, const void *x, const void *y, fsdp_dtype dtype, int64_t ld,
                int64_t rows, int64_t width);
    /* dst[i] = src[i] * factors[i] * factor; factors may be NULL. */
    void (*store)(void *dst, fsdp_dtype dtype, int64_t dst_ld, const float *src, int64_t src_ld,
                  const float *factors, float factor, int64_t rows, int64_t width);
    /* dst [rows, width], of dtype, = src^T * factor; src [width, rows]. NULL without AMX: Note
     * [Turned sums]. */
    void (*store_turned)(void *dst, fsdp_dtype dtype, int64_t dst_ld, const float *src,
                         int64_t src_ld, float factor, int64_t rows, int64_t width);
} fsdp_cpu_attention_strips;

extern const fsdp_cpu_attention_strips fsdp_cpu_attention_strips_x86_64_v3;
extern const fsdp_cpu_attention_strips fsdp_cpu_attention_strips_x86_64_v4;
/* For tiles that widen bf16: strips are f32. */
extern const fsdp_cpu_attention_strips fsdp_cpu_widening_strips_x86_64_v4;
/* For AMX's panels of P and dS. */
extern const fsdp_cpu_attention_strips fsdp_cpu_amx_strips_x86_64_v4;

/* --- shared by forward and backward: attention_tiles.c --- */

/* One query head of one sequence. */
typedef struct fsdp_attention_head {
    const fsdp_attention_args *args;
    const fsdp_cpu_tiles *tiles;
    const fsdp_cpu_attention_strips *strips;
    fsdp_dtype dtype; /* of panels, P and dS: the tensors', or f32 if the tiles widen it */
    int64_t h;
    int strip;                           /* queries per strip */
    int64_t q_row, k_row, queries, keys; /* of the sequence */
    int64_t shift;                       /* query i is at the position of key i + shift */
    int64_t padded_dim;                  /* a multiple of 16 */
} fsdp_attention_head;

fsdp_attention_head fsdp_attention_head_at(const fsdp_cpu_attention *a, int64_t b, int64_t h);

/* Queries [query, query + rows) see no keys outside [first, end); first is the first key of a
 * panel. */
typedef struct fsdp_attention_range {
    int64_t first, end;
} fsdp_attention_range;

fsdp_attention_range fsdp_attention_range_of(const fsdp_attention_head *head, int64_t query,
                                             int64_t rows);

/* Sizes and packing of keys or values: as columns of scores, or as the depth that is summed
 * over. */
size_t fsdp_attention_columns_bytes(const fsdp_attention_head *head, int64_t rows);
size_t fsdp_attention_depth_bytes(const fsdp_attention_head *head, int64_t rows);
void fsdp_attention_pack_columns(const fsdp_attention_head *head, void *panels, const void *x,
                                 int64_t ld, int64_t rows);
void fsdp_attention_pack_depth(const fsdp_attention_head *head, void *panels, const void *x,
                               int64_t ld, int64_t rows);

/* Row `row` of head h of x. */
const char *fsdp_attention_at(const fsdp_attention_head *head, const void *x, int64_t ld,
                              int64_t row, int64_t h);

/* Prefetch up to `rows` rows of x, which are short pieces far apart in memory. */
void fsdp_attention_ask(const fsdp_attention_head *head, const void *x, int64_t ld, int64_t query,
                        int64_t rows);

/* Note [Bias tables]. Entry key - query + queries - 1 + FSDP_ATTENTION_MARGIN of a sequence's table
 * is the bias of that difference, times log2(e). The entries that a strip reads or adds to beyond
 * its rows and columns are zeros or are ignored. */
enum {
    FSDP_ATTENTION_MARGIN = 16
};
int64_t fsdp_attention_table_length(const fsdp_attention_head *head);
void fsdp_attention_make_table(const fsdp_attention_head *head, float *table);
/* d_bias += table. d_bias is the head's, at difference 0. */
void fsdp_attention_add_table(const fsdp_attention_head *head, float *d_bias, const float *table);
int64_t fsdp_attention_table_at(const fsdp_attention_head *head, int64_t query, int64_t key);

/* Words of keep bits for a row that sees at most `keys` keys. */
int64_t fsdp_attention_keep_ld(int64_t keys);
/* Row stride of scores of so many keys, chosen so that rows are not a multiple of 4096 bytes
 * apart. */
int64_t fsdp_attention_scores_ld(int64_t keys);

/* The strip of queries [query, query + rows) and keys [range.first, range.end). The caller sets
 * scores and columns, and bias and keep if there are any. */
fsdp_attention_strip fsdp_attention_strip_at(const fsdp_attention_head *head, int64_t query,
                                             int rows, fsdp_attention_range range);
/* Keep bits of a strip's rows, ld words apart. */
void fsdp_attention_keep(const fsdp_attention_head *head, int64_t query, int rows,
                         fsdp_attention_range range, uint32_t *bits, int64_t ld);

/* 1 / (1 - p), by which kept elements are multiplied. */
float fsdp_attention_keep_factor(const fsdp_attention_head *head);

/* scores [rows, range] = X K^T. x: `rows` rows of one head, x_ld elements apart. left: scratch of
 * fsdp_attention_left_bytes(). */
size_t fsdp_attention_left_bytes(const fsdp_attention_head *head);
void fsdp_attention_scores(const fsdp_attention_head *head, const void *x, int64_t x_ld,
                           int64_t rows, const void *columns, fsdp_attention_range range,
                           void *left, float *scores, int64_t ld);
/* out [rows, padded_dim] = P V. The columns of p are the keys of `range`. */
void fsdp_attention_combine(const fsdp_attention_head *head, const void *p, int64_t p_ld,
                            int64_t rows, const void *depth, fsdp_attention_range range,
                            float *out);

/* --- */

/* Forward of one head of one sequence; backward of one key/value head of one sequence. */
FSDP_MUST_CHECK fsdp_status fsdp_attention_tiles_forward(const fsdp_cpu_attention *a, int worker,
                                                         int64_t b, int64_t h);
FSDP_MUST_CHECK fsdp_status fsdp_attention_tiles_backward(const fsdp_cpu_attention *a, int worker,
                                                          int64_t b, int64_t kv);
