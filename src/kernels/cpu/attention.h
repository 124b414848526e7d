/* Attention by sequence and head.
 *
 * Note [Attention in blocks]. A task computes one head of one sequence. It packs the head's rows of
 * k and v into panels and processes the queries in blocks whose scores fit the second-level cache:
 *     forward   S = Q K^T;  P = e^(scale S + bias - max), rounded to the panels' dtype;  O = P V
 *     backward  S = Q K^T;  dP = dO V^T;  P = e^(scale S + bias - lse);  dS = P (dP - rowsum(dO O))
 *               dV += P^T dO;  dK += dS^T Q;  dQ = dS K
 * This is the method of Dao et al. 2022 without tiling over keys, since the scores of 16 queries
 * and 8192 keys take only 512 KiB. Keys that the causal mask or the window hides from all queries
 * of a block are left out of its products. In backward, each sum over several heads or sequences is
 * computed by one task, in order: the gradients of keys and values over the query heads that share
 * them, and the gradient of the position bias over the sequences. So results do not depend on the
 * number of threads. This file is about products by oneDNN (attention_products.c) and the
 * computations on rows between them (isa/attention_rows.c). Our own tiles compute the same formulas
 * in strips: attention_tiles.h. */
#pragma once
#include "src/kernels/cpu/context.h"
#include "src/kernels/cpu/panel.h"
#include "src/kernels/cpu/product.h"
#include "src/kernels/cpu/tile.h"

/* A block of query rows of one head and one sequence. Its scores are [padded_rows, padded_keys], of
 * which only [rows, keys] are valid. Queries and keys are numbered from the beginning of the
 * sequence. */
typedef struct fsdp_attention_block {
    int64_t rows, padded_rows, first_query;
    int64_t keys, padded_keys, first_key; /* padded_keys and first_key are multiples of 16 */
    int64_t shift;                        /* query i is at the position of key i + shift */
    int64_t sequence_keys, window;        /* window 0: none */
    bool causal;
    float scale;
    /* Points to the head's bias for key - query - shift = 0; or NULL. */
    const float *bias;
    int64_t bias_span; /* every |key - query - shift| is smaller than this */
    float dropout_p;
    /* dropout_element is the number, for dropout, of the element at query first_query and key 0. At
     * the next query it is 2^20 higher. */
    uint64_t dropout_key, dropout_element;
    fsdp_dtype panel_dtype; /* f32 or bf16: dtype of p and d_s */
    float *scores;          /* S; if panel_dtype is f32, p may be the same memory */
    void *p;
    float *bias_strip, *d_bias_strip; /* scratch [padded_rows + padded_keys] */
    float *lse;                       /* [rows]: written by forward, read by backward */
    /* forward */
    /* Output [rows]: 1 / (sum of the row's exponentials), or 0 for a query that sees no key. */
    float *inverse;
    /* backward */
    const float *d_p;   /* [padded_rows, padded_keys] */
    const float *delta; /* [rows] */
    void *d_s;          /* if panel_dtype is f32, may be the same memory as d_p */
    float *d_bias;      /* indexed like `bias`; the gradient is added to it; NULL: not computed */
} fsdp_attention_block;

/* The computations on rows between the products. There is one table per ISA. */
typedef struct fsdp_cpu_attention_rows {
    /* Turns S into unnormalised probabilities P with dropout; writes lse and inverse. */
    void (*forward)(const fsdp_attention_block *block);
    /* From S and dP, computes P (normalised, with dropout) and dS (not yet multiplied by the
     * scale). Adds to d_bias. */
    void (*backward)(const fsdp_attention_block *block);
    /* dst[i] (row stride dst_ld) = src[i] (f32, row stride src_ld) * factors[i] * factor, for rows
     * i of `width` elements. factors may be NULL. */
    void (*store)(void *dst, fsdp_dtype dtype, int64_t dst_ld, const float *src, int64_t src_ld,
                  const float *factors, float factor, int64_t rows, int64_t width);
    /* sums[i] = dot product of row i of x and row i of y. Both have `dtype` and row stride ld. */
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
    const fsdp_cpu_tiles *tiles; /* our own tiles compute strips; NULL: oneDNN computes blocks */
    /* used only by blocks: */
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
/* Return the number of rows that the key panels of a sequence of `keys` keys need, so that no block
 * reads past their end. */
int64_t fsdp_attention_panel_keys(const fsdp_cpu_attention *a, int64_t keys);
/* Return the number of queries in a block: 64, halved until the block has at most `elements`
 * scores, but at least 16. */
int64_t fsdp_attention_block_rows(int64_t panel_keys, int64_t elements);
/* Return the block of sequence b and head h that starts at query `first` and has at most `rows`
 * rows. Pointers to panels are not set. */
fsdp_attention_block fsdp_attention_block_at(const fsdp_cpu_attention *a, int64_t b, int64_t h,
                                             int64_t first, int64_t rows);

/* --- products by oneDNN: attention_products.c --- */

/* Rows [row, row + n) of one head of q, of k, of v or of the gradient of out. */
typedef struct fsdp_attention_slice {
    const void *x; /* of args->dtype */
    int64_t ld, row, head, n;
} fsdp_attention_slice;

/* Return `keys` rounded up coarsely, so that few different shapes occur and few primitives are
 * created. */
int64_t fsdp_attention_padded_keys(int64_t keys);

/* fsdp_attention_panel_bytes() returns the bytes of a panel [rows, padded_dim].
 * fsdp_attention_pack() packs a slice into a panel [padded_rows, padded_dim]. */
size_t fsdp_attention_panel_bytes(const fsdp_cpu_attention *a, int64_t rows);
void fsdp_attention_pack(const fsdp_cpu_attention *a, void *panel, int64_t padded_rows,
                         const fsdp_attention_slice *rows);

/* Pack x, a slice of the block's queries, into `left`. Then compute scores [padded_rows,
 * padded_keys] = X K^T. Values outside [rows, keys] are undefined. */
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
/* d_keys [padded_keys, padded_dim] += P^T X. The rows of d_keys are the block's keys. P and X have
 * a row for each of the block's padded_rows queries. */
FSDP_MUST_CHECK fsdp_status fsdp_attention_block_spread(const fsdp_cpu_attention *a, int worker,
                                                        const fsdp_attention_block *block,
                                                        const void *p, const void *x,
                                                        float *d_keys);

/* --- forward and backward --- */

FSDP_MUST_CHECK fsdp_status fsdp_cpu_attention_forward(fsdp_kernel_context *c,
                                                       const fsdp_attention_args *args);
FSDP_MUST_CHECK fsdp_status fsdp_cpu_attention_backward(fsdp_kernel_context *c,
                                                        const fsdp_attention_args *args);
