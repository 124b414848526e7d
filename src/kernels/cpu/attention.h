/* Attention by sequence and head.
 *
 * Note [Attention in blocks]. A task computes one head of one sequence. It packs the head's rows of
 * k and v into panels and processes the queries in blocks whose scores fit the second-level cache:
 *     forward   S = Q K^T;  P = e^(scale S + bias - max), rounded to the panels' dtype;  O = P V
 *     backward  S = Q K^T;  dP = dO V^T;  P = e^(scale S + bias - lse);  dS = P (dP - rowsum(dO O))
 *               dV += P^T dO;  dK += dS^T Q;  dQ = dS K
 * (Dao et al. 2022, without tiling over keys: the scores of 16 queries and 8192 keys are 512 KiB).
 * Keys that no query of a block sees, because of the causal mask or the window, are not multiplied.
 * One task sums the gradients of keys, in order, over the query heads that share the keys, and the
 * gradient of the position bias, in order, over the sequences. So results do not depend on the
 * number of threads. This file is for products by oneDNN (attention_products.c);
 * isa/attention_rows.c computes the rows between the products. attention_tiles.h is for our own
 * tiles, which compute the same in strips. */
#pragma once
#include "src/kernels/cpu/context.h"
#include "src/kernels/cpu/panel.h"
#include "src/kernels/cpu/product.h"
#include "src/kernels/cpu/tile.h"

/* A block of query rows of one head and one sequence. Its scores are [padded_rows, padded_keys], of
 * which the part [rows, keys] is valid. Indices of queries and keys count from the first of the
 * sequence. */
typedef struct fsdp_attention_block {
    int64_t rows, padded_rows, first_query;
    int64_t keys, padded_keys, first_key; /* padded_keys and first_key are multiples of 16 */
    int64_t shift;                        /* query i is at the position of key i + shift */
    int64_t sequence_keys, window;        /* window 0: none */
    bool causal;
    float scale;
    /* Points to the head's bias at difference 0 (key - query - shift); or NULL. */
    const float *bias;
    int64_t bias_span; /* every |difference| is smaller than bias_span */
    float dropout_p;
    uint64_t dropout_key, dropout_element; /* dropout element of (first_query, key 0); rows are 2^20
                                            * elements apart */
    fsdp_dtype panel_dtype;                /* f32 or bf16: dtype of p and d_s */
    float *scores;                         /* S; if panel_dtype is f32, p may be the same memory */
    void *p;
    float *bias_strip, *d_bias_strip; /* scratch [padded_rows + padded_keys] */
    float *lse;                       /* [rows]: written by forward, read by backward */
    /* forward */
    /* Output [rows]: 1 / the sum of the row's exponentials; 0 for a query that sees no key. */
    float *inverse;
    /* backward */
    const float *d_p;   /* [padded_rows, padded_keys] */
    const float *delta; /* [rows] */
    void *d_s;          /* if panel_dtype is f32, may be the same memory as d_p */
    float *d_bias;      /* indexed as bias; the gradient is added to it; or NULL */
} fsdp_attention_block;

/* The computation on rows; there is one table per ISA. */
typedef struct fsdp_cpu_attention_rows {
    /* Turns S into unnormalised probabilities P with dropout; writes lse and inverse. */
    void (*forward)(const fsdp_attention_block *block);
    /* Computes normalised P with dropout and dS (before the scale) from S and dP; adds to
     * d_bias. */
    void (*backward)(const fsdp_attention_block *block);
    /* dst[i] (row stride dst_ld) = src[i] (f32, row stride src_ld) * factors[i] * factor, for rows
     * i of `width` elements; factors may be NULL. */
    void (*store)(void *dst, fsdp_dtype dtype, int64_t dst_ld, const float *src, int64_t src_ld,
                  const float *factors, float factor, int64_t rows, int64_t width);
    /* sums[i] = dot product of row i of x and row i of y. Both have the dtype and row stride ld. */
    void (*dot)(float *sums, const void *x, const void *y, fsdp_dtype dtype, int64_t ld,
                int64_t rows, int64_t width);
} fsdp_cpu_attention_rows;

extern const fsdp_cpu_attention_rows fsdp_cpu_attention_rows_x86_64;
extern const fsdp_cpu_attention_rows fsdp_cpu_attention_rows_x86_64_v3;
extern const fsdp_cpu_attention_rows fsdp_cpu_attention_rows_x86_64_v4;

/* What the tasks of one call share. */
typedef struct fsdp_cpu_attention {
    const fsdp_attention_args *args;
    fsdp_kernel_context *context;
    const fsdp_cpu_tiles *tiles; /* strips by our own tiles; NULL: blocks by oneDNN */
    /* used by blocks alone: */
    fsdp_cpu_products *products;
    const fsdp_cpu_panels *panels;
    const fsdp_cpu_attention_rows *rows;
    fsdp_dtype panel_dtype;
    /* used by strips and by blocks: */
    int64_t padded_dim; /* head_dim, rounded up to 16 */
    fsdp_cpu_failure failure;
} fsdp_cpu_attention;

FSDP_MUST_CHECK fsdp_status fsdp_cpu_attention_init(fsdp_cpu_attention *a, fsdp_kernel_context *c,
                                                    const fsdp_attention_args *args);

int64_t fsdp_attention_round(int64_t n, int64_t to);
/* Return the number of rows that the key panels of a sequence need, so that every block can read
 * its keys there. */
int64_t fsdp_attention_panel_keys(const fsdp_cpu_attention *a, int64_t keys);
/* Return how many queries a block has so that its scores have at most `elements` elements; at least
 * 16. */
int64_t fsdp_attention_block_rows(int64_t panel_keys, int64_t elements);
/* Return the block of sequence b and head h that starts at query `first` and has at most `rows`
 * rows. Pointers to panels are not set. */
fsdp_attention_block fsdp_attention_block_at(const fsdp_cpu_attention *a, int64_t b, int64_t h,
                                             int64_t first, int64_t rows);

/* --- products by oneDNN: attention_products.c --- */

/* Rows [row, row + n) of one head of q, k, v, or of the gradient of out. */
typedef struct fsdp_attention_slice {
    const void *x; /* of args->dtype */
    int64_t ld, row, head, n;
} fsdp_attention_slice;

/* Return `keys` rounded up to one of a few values, so that few primitives are created. */
int64_t fsdp_attention_padded_keys(int64_t keys);

/* Return the bytes of a panel [rows, padded_dim]; pack a slice into a panel [padded_rows,
 * padded_dim]. */
size_t fsdp_attention_panel_bytes(const fsdp_cpu_attention *a, int64_t rows);
void fsdp_attention_pack(const fsdp_cpu_attention *a, void *panel, int64_t padded_rows,
                         const fsdp_attention_slice *rows);

/* Pack the slice x, the block's queries, into `left`, and set scores [padded_rows, padded_keys] = X
 * K^T. Values outside [rows, keys] are undefined. */
FSDP_MUST_CHECK fsdp_status fsdp_attention_block_scores(const fsdp_cpu_attention *a, int worker,
                                                        const fsdp_attention_block *block,
                                                        const fsdp_attention_slice *x,
                                                        const void *keys, void *left,
                                                        float *scores);
/* out [padded_rows, padded_dim] = P V. */
FSDP_MUST_CHECK fsdp_status fsdp_attention_block_combine(const fsdp_cpu_attention *a, int worker,
                                                         const fsdp_attention_block *block,
                                                         const void *p, const void *values,
                                                         float *out);
/* d_keys [padded_keys, padded_dim] += P^T X. The rows of d_keys are the block's keys, those of x
 * its padded_rows queries. */
FSDP_MUST_CHECK fsdp_status fsdp_attention_block_spread(const fsdp_cpu_attention *a, int worker,
                                                        const fsdp_attention_block *block,
                                                        const void *p, const void *x,
                                                        float *d_keys);

/* --- */

FSDP_MUST_CHECK fsdp_status fsdp_cpu_attention_forward(fsdp_kernel_context *c,
                                                       const fsdp_attention_args *args);
FSDP_MUST_CHECK fsdp_status fsdp_cpu_attention_backward(fsdp_kernel_context *c,
                                                        const fsdp_attention_args *args);
