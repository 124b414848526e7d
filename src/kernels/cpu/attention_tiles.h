/* Attention with our own tiles (tile.h); see Note [Attention in blocks] for what is computed.
 *
 * Note [Strips]. Scores are made for eight queries, a row of tiles, at a time, so that they are in
 * the first cache when rows become probabilities or gradients. In backward S and dP become P and dS
 * in one pass that writes each result where the next product wants it: dS in rows for dQ, P and dS
 * as packed tiles of P^T and dS^T for dV and dK. These sum over queries, for which eight are too
 * few: the tiles collect a block of strips.
 *
 * With AMX, whose tiles have 32 rows, a strip is 32 queries, of which probabilities are made for
 * sixteen and gradients for eight at a time.
 *
 * Note [Turned sums]. AMX wants what it sums over in neighbouring lanes of A, and pairs of it in
 * those of B. A strip's P and dS, whose rows are queries, are such a B as they come: two rows make
 * a row of a panel. As A they would have to be turned, at the price of as many instructions as the
 * gradient itself takes. So products over queries are dV^T = dO^T P and dK^T = Q^T dS there: dO and
 * Q, which have fewer columns, are turned, and so are the sums at their end.
 *
 * Exponentials are to the base 2: the scale and the biases are multiplied by log2(e). The bias and
 * its gradient lie in a table for each sequence, indexed by the difference of positions alone, with
 * zeros around it: Note [Bias tables].
 *
 * Note [Few queries]. Where a sequence has few queries, those of generation, forward multiplies
 * with K and V as they lie (few_rows.h), since packing would take longer than the products. P stays
 * in f32. */
#pragma once
#include "src/kernels/cpu/attention.h"

enum {
    FSDP_ATTENTION_STRIP = 16 /* queries at most that softmax() sees at once */
};

/* Columns are keys, counted from the strip's first; those outside of a row's span, and beyond the
 * keys, may be anything in `scores` and `d_p`. */
typedef struct fsdp_attention_strip {
    fsdp_dtype dtype;                /* of P and dS: the panels' */
    int rows;                        /* 1 to FSDP_ATTENTION_STRIP; of a gradient, FSDP_TILE_ROWS */
    int columns;                     /* a multiple of 32 in forward, of 16 in backward */
    int begin[FSDP_ATTENTION_STRIP]; /* of the visible columns */
    int end[FSDP_ATTENTION_STRIP];   /* begin == end: none */
    float scale;
    const float *bias;    /* of row r, column j: bias[j - r]; or NULL */
    const uint32_t *keep; /* bit j % 32 of keep[r * keep_ld + j / 32]: not dropped out; or NULL */
    int64_t keep_ld;
    float *scores; /* row stride ld */
    int64_t ld;
} fsdp_attention_strip;

/* What backward makes of a strip. */
typedef struct fsdp_attention_gradient {
    const float *d_p;          /* as scores */
    const float *lse, *delta;  /* [rows] */
    float keep_factor;         /* 1 / (1 - p): of what is kept, in dP */
    char *p_tiles, *d_s_tiles; /* of the first column's tile, at the strip's first row */
    int64_t tile_bytes;        /* from one tile of 8 keys to the next; with AMX, panel of 32 */
    void *d_s;                 /* rows */
    int64_t d_s_ld;
    float *d_bias; /* added to, as bias; or NULL */
} fsdp_attention_gradient;

/* One per ISA that has tiles. */
typedef struct fsdp_cpu_attention_strips {
    /* Scores to probabilities before they are divided by their sum, zero outside the spans, in rows
     * of `p` (row stride p_ld, may be scores in f32); lse; inverse[r] = 1 / sum before dropout, 0
     * for a query that sees no key. */
    void (*softmax)(const fsdp_attention_strip *strip, void *p, int64_t p_ld, float *lse,
                    float *inverse);
    void (*gradient)(const fsdp_attention_strip *strip, const fsdp_attention_gradient *to);
    /* Bits of `columns` (a multiple of 32) keys: set where fsdp_kernels.dropout keeps element
     * `element` (a multiple of 8) and those behind it. */
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
/* For tiles that widen: strips are f32. */
extern const fsdp_cpu_attention_strips fsdp_cpu_widening_strips_x86_64_v4;
/* For AMX's panels of P and dS. */
extern const fsdp_cpu_attention_strips fsdp_cpu_amx_strips_x86_64_v4;

/* --- what forward and backward share: attention_tiles.c --- */

/* One query head of one sequence. */
typedef struct fsdp_attention_head {
    const fsdp_attention_args *args;
    const fsdp_cpu_tiles *tiles;
    const fsdp_cpu_attention_strips *strips;
    fsdp_dtype dtype; /* of panels, P and dS: the tensors', or f32 where tiles widen it */
    int64_t h;
    int strip;                           /* queries of one */
    int64_t q_row, k_row, queries, keys; /* of the sequence */
    int64_t shift;                       /* query i stands at key i + shift */
    int64_t padded_dim;                  /* a multiple of 16 */
} fsdp_attention_head;

fsdp_attention_head fsdp_attention_head_at(const fsdp_cpu_attention *a, int64_t b, int64_t h);

/* Keys [first, end) are all that queries [query, query + rows) see; first is that of a panel. */
typedef struct fsdp_attention_range {
    int64_t first, end;
} fsdp_attention_range;

fsdp_attention_range fsdp_attention_range_of(const fsdp_attention_head *head, int64_t query,
                                             int64_t rows);

/* Keys or values as columns of scores, or to be summed over: sizes and packing. */
size_t fsdp_attention_columns_bytes(const fsdp_attention_head *head, int64_t rows);
size_t fsdp_attention_depth_bytes(const fsdp_attention_head *head, int64_t rows);
void fsdp_attention_pack_columns(const fsdp_attention_head *head, void *panels, const void *x,
                                 int64_t ld, int64_t rows);
void fsdp_attention_pack_depth(const fsdp_attention_head *head, void *panels, const void *x,
                               int64_t ld, int64_t rows);

/* Row `row` of head h of x. */
const char *fsdp_attention_at(const fsdp_attention_head *head, const void *x, int64_t ld,
                              int64_t row, int64_t h);

/* Asks for up to `rows` rows of x ahead of time: they lie in short pieces far apart. */
void fsdp_attention_ask(const fsdp_attention_head *head, const void *x, int64_t ld, int64_t query,
                        int64_t rows);

/* Note [Bias tables]: entry key - query + queries - 1 + FSDP_ATTENTION_MARGIN of a sequence's table
 * is the bias of that difference, times log2(e). What a strip reads or adds beyond its rows and
 * columns are zeros, or is ignored. */
enum {
    FSDP_ATTENTION_MARGIN = 16
};
int64_t fsdp_attention_table_length(const fsdp_attention_head *head);
void fsdp_attention_make_table(const fsdp_attention_head *head, float *table);
/* d_bias, the head's at difference 0, += table. */
void fsdp_attention_add_table(const fsdp_attention_head *head, float *d_bias, const float *table);
int64_t fsdp_attention_table_at(const fsdp_attention_head *head, int64_t query, int64_t key);

/* Words of keep bits of a row that sees `keys` keys at most. */
int64_t fsdp_attention_keep_ld(int64_t keys);
/* Row stride of scores of so many keys: rows do not lie a multiple of 4096 bytes apart. */
int64_t fsdp_attention_scores_ld(int64_t keys);

/* Queries [query, query + rows) of keys [range.first, range.end): all but scores, columns, and bias
 * and keep if there is any. */
fsdp_attention_strip fsdp_attention_strip_at(const fsdp_attention_head *head, int64_t query,
                                             int rows, fsdp_attention_range range);
/* Keep bits of a strip's rows, ld words apart. */
void fsdp_attention_keep(const fsdp_attention_head *head, int64_t query, int rows,
                         fsdp_attention_range range, uint32_t *bits, int64_t ld);

/* 1 / (1 - p): of what is kept. */
float fsdp_attention_keep_factor(const fsdp_attention_head *head);

/* scores [rows, range] = X K^T; x: `rows` rows of one head, ld elements apart; `left` scratch of
 * fsdp_attention_left_bytes. */
size_t fsdp_attention_left_bytes(const fsdp_attention_head *head);
void fsdp_attention_scores(const fsdp_attention_head *head, const void *x, int64_t x_ld,
                           int64_t rows, const void *columns, fsdp_attention_range range,
                           void *left, float *scores, int64_t ld);
/* out [rows, padded_dim] = P V: p has the keys of a range. */
void fsdp_attention_combine(const fsdp_attention_head *head, const void *p, int64_t p_ld,
                            int64_t rows, const void *depth, fsdp_attention_range range,
                            float *out);

/* --- */

/* One head of one sequence; one key/value head of one sequence. */
FSDP_MUST_CHECK fsdp_status fsdp_attention_tiles_forward(const fsdp_cpu_attention *a, int worker,
                                                         int64_t b, int64_t h);
FSDP_MUST_CHECK fsdp_status fsdp_attention_tiles_backward(const fsdp_cpu_attention *a, int worker,
                                                          int64_t b, int64_t kv);
