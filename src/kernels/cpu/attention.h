/* Attention on the CPU, for one head of one sequence at a time.
 *
 * Note [Attention in blocks]. A task computes one head of one sequence. It packs the head's rows of
 * k and v into panels, which are contiguous and padded with zeros. It processes the queries in
 * small blocks, so that the scores of a block stay in the second-level cache:
 *     forward   S = Q K^T;  P = e^(scale S + bias - max), rounded to the panels' dtype;  O = P V
 *     backward  S = Q K^T;  dP = dO V^T;  P = e^(scale S + bias - lse);  dS = P (dP - rowsum(dO O))
 *               dV += P^T dO;  dK += dS^T Q;  dQ = dS K
 * Here max and lse are the maximum and the log-sum-exp of a row of (scale S + bias).
 *
 * This is the method of Dao et al. 2022, except that keys are not divided into tiles: even with
 * 8192 keys, the scores of 16 queries take only 512 KiB. The products of a block skip keys that the
 * causal mask or the window hides from all queries of the block.
 *
 * In backward, two sums are over several heads or sequences. The gradients of keys and values are
 * summed over the query heads that share them. The gradient of the position bias is summed over the
 * sequences. Each of these sums is computed by one task in a fixed order, so results do not depend
 * on the number of threads.
 *
 * There are two implementations of these formulas. This file declares the one in which oneDNN
 * computes the products (attention_products.c), and the steps between the products work on rows
 * (isa/attention_rows.c). The other one uses our own tiles and works on strips of queries
 * (attention_tiles.h). */
#pragma once
#include "src/kernels/cpu/context.h"
#include "src/kernels/cpu/panel.h"
#include "src/kernels/cpu/product.h"
#include "src/kernels/cpu/tile.h"

/* A block: some query rows of one head of one sequence. Its scores are a matrix [padded_rows,
 * padded_keys], and only the part [rows, keys] is valid. Queries and keys are numbered from the
 * beginning of the sequence. */
typedef struct fsdp_attention_block {
    int64_t rows, padded_rows, first_query;
    int64_t keys, padded_keys, first_key; /* padded_keys and first_key are multiples of 16 */
    int64_t shift;                        /* query i has the same position as key i + shift */
    /* sequence_keys: number of keys of the whole sequence. window: number of keys that a query sees
     * with sliding-window attention; 0: no window. */
    int64_t sequence_keys, window;
    bool causal;
    float scale;
    /* Points to the head's element of position_bias for which `key - query - shift` is 0. NULL: no
     * bias. */
    const float *bias;
    int64_t bias_span; /* every `|key - query - shift|` of this block is smaller than this */
    float dropout_p;
    /* For dropout, each probability has an index (see fsdp_attention_args). dropout_element is the
     * index of the probability at query first_query and key 0. For the next query and the same key,
     * the index is larger by 2^20. */
    uint64_t dropout_key, dropout_element;
    fsdp_dtype panel_dtype; /* f32 or bf16: dtype of p and d_s */
    float *scores;          /* S; if panel_dtype is f32, `p` may point to the same memory */
    void *p;
    float *bias_strip, *d_bias_strip; /* scratch, each [padded_rows + padded_keys] */
    float *lse;                       /* [rows]: written by forward, read by backward */
    /* An output of forward, [rows]: 1 / (the row's sum of P before dropout), or 0 for a query that
     * sees no key. Not used in backward. */
    float *inverse;
    /* The fields below are used only in backward. */
    const float *d_p;   /* [padded_rows, padded_keys] */
    const float *delta; /* [rows]: rowsum(dO O) */
    void *d_s;          /* dS; if panel_dtype is f32, it may point to the same memory as d_p */
    float *d_bias;      /* gradient of `bias`, with the same indices; dS is added to it; NULL: the
                         * gradient is not wanted */
} fsdp_attention_block;

/* Functions for the steps between the products of a block, which work on rows. There is one table
 * per ISA. */
typedef struct fsdp_cpu_attention_rows {
    /* Compute P from S. P contains probabilities after dropout, not yet divided by the sum of their
     * row. Also write lse and inverse. */
    void (*forward)(const fsdp_attention_block *block);
    /* Compute P and dS from S and dP. Here each row of P is divided by its sum, and dropout is
     * applied to P. The caller must later multiply dS by the scale. If d_bias is not NULL, add dS
     * to d_bias, too. */
    void (*backward)(const fsdp_attention_block *block);
    /* Set row i of dst to row i of src, multiplied by factors[i] * factor. Rows have `width`
     * elements, and src is f32. If factors is NULL, all factors[i] are 1. */
    void (*store)(void *dst, fsdp_dtype dtype, int64_t dst_ld, const float *src, int64_t src_ld,
                  const float *factors, float factor, int64_t rows, int64_t width);
    /* Set sums[i] to the dot product of row i of x and row i of y. Both have `dtype` and row stride
     * ld. */
    void (*dot)(float *sums, const void *x, const void *y, fsdp_dtype dtype, int64_t ld,
                int64_t rows, int64_t width);
} fsdp_cpu_attention_rows;

extern const fsdp_cpu_attention_rows fsdp_cpu_attention_rows_x86_64;
extern const fsdp_cpu_attention_rows fsdp_cpu_attention_rows_x86_64_v3;
extern const fsdp_cpu_attention_rows fsdp_cpu_attention_rows_x86_64_v4;

/* The data that all tasks of one call share. */
typedef struct fsdp_cpu_attention {
    const fsdp_attention_args *args;
    fsdp_kernel_context *context;
    const fsdp_cpu_tiles *tiles; /* the tiles that compute strips; NULL: oneDNN computes blocks */
    /* The four fields below are used only if oneDNN computes blocks. */
    fsdp_cpu_products *products;
    const fsdp_cpu_panels *panels;
    const fsdp_cpu_attention_rows *rows;
    fsdp_dtype panel_dtype;
    /* The fields below are used both with strips and with blocks. */
    int64_t padded_dim; /* head_dim, rounded up to a multiple of 16 */
    fsdp_cpu_failure failure;
} fsdp_cpu_attention;

FSDP_MUST_CHECK fsdp_status fsdp_cpu_attention_init(fsdp_cpu_attention *a, fsdp_kernel_context *c,
                                                    const fsdp_attention_args *args);

int64_t fsdp_attention_round(int64_t n, int64_t to);
/* Return the number of rows of the panels for a sequence of `keys` keys. With this number of rows,
 * no block reads past the end of a panel. */
int64_t fsdp_attention_panel_keys(const fsdp_cpu_attention *a, int64_t keys);
/* Return the number of queries in a block: the largest of 64, 32 and 16 for which the block has at
 * most `elements` scores. If even 16 queries have more scores, return 16. */
int64_t fsdp_attention_block_rows(int64_t panel_keys, int64_t elements);
/* Return the block of sequence b and head h that starts at query `first` and has at most `rows`
 * rows. The caller must then set the block's pointers to buffers. */
fsdp_attention_block fsdp_attention_block_at(const fsdp_cpu_attention *a, int64_t b, int64_t h,
                                             int64_t first, int64_t rows);

/* --- products by oneDNN: attention_products.c --- */

/* Rows [row, row + n) of one head of a tensor. The tensor is q, k, v or the gradient of `out`. */
typedef struct fsdp_attention_slice {
    const void *x; /* elements of args->dtype */
    int64_t ld, row, head, n;
} fsdp_attention_slice;

/* Return `keys` rounded up to one of a few sizes. oneDNN compiles a primitive for each size, so
 * there should be few sizes. */
int64_t fsdp_attention_padded_keys(int64_t keys);

/* Return the size of a panel [rows, padded_dim] in bytes. */
size_t fsdp_attention_panel_bytes(const fsdp_cpu_attention *a, int64_t rows);
/* Pack a slice into a panel [padded_rows, padded_dim], and fill the rest of the panel with
 * zeros. */
void fsdp_attention_pack(const fsdp_cpu_attention *a, void *panel, int64_t padded_rows,
                         const fsdp_attention_slice *rows);

/* Compute scores [padded_rows, padded_keys] = X K^T, where X is `x` and K is `keys`. To compute S,
 * the caller passes the block's rows of q as `x` and the panel of k as `keys`. To compute dP, it
 * passes the block's rows of d_out as `x` and the panel of v as `keys`. The function packs X into
 * `left` before it multiplies. Only the first block->rows rows and block->keys columns of the
 * scores are defined. */
FSDP_MUST_CHECK fsdp_status fsdp_attention_block_scores(const fsdp_cpu_attention *a, int worker,
                                                        const fsdp_attention_block *block,
                                                        const fsdp_attention_slice *x,
                                                        const void *keys, void *left,
                                                        float *scores);
/* Compute out [padded_rows, padded_dim] = P V. */
FSDP_MUST_CHECK fsdp_status fsdp_attention_block_combine(const fsdp_cpu_attention *a, int worker,
                                                         const fsdp_attention_block *block,
                                                         const void *p, const void *values,
                                                         float *out);
/* Add P^T X to d_keys, in the rows that belong to the block's keys. d_keys has a row for each key
 * of the sequence. P and X have a row for each of the block's padded_rows queries. */
FSDP_MUST_CHECK fsdp_status fsdp_attention_block_spread(const fsdp_cpu_attention *a, int worker,
                                                        const fsdp_attention_block *block,
                                                        const void *p, const void *x,
                                                        float *d_keys);

/* --- forward and backward --- */

FSDP_MUST_CHECK fsdp_status fsdp_cpu_attention_forward(fsdp_kernel_context *c,
                                                       const fsdp_attention_args *args);
FSDP_MUST_CHECK fsdp_status fsdp_cpu_attention_backward(fsdp_kernel_context *c,
                                                        const fsdp_attention_args *args);
