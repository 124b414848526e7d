/* Sums over the rows of whole tensors, of which each rank has some: the same bits at any world
 * size, in one gather for all tensors.
 *
 * Note [Row sums]. Numbers of rows are added in double as the aligned binary tree over the rows of
 * the whole tensor: a node covers 2^k rows from a multiple of 2^k on, and is the sum of its two
 * halves; where the right half lies beyond the last row it is the left one. The rows of a rank are
 * cut into the largest such segments, at most two of each size. Each rank adds up its segments and
 * sends them; then everybody joins all ranks' segments to the same tree, whoever had them. So a
 * rank sends 2 log2(rows) numbers at the worst, and one where rows and ranks are powers of two.
 * (Of a tensor cut along another dimension no rank has whole rows: it has one number a rank.) */
#pragma once
#include <fsdp/comm.h>
#include <fsdp/tensor.h>

typedef struct fsdp_row_sum {
    /* The caller's. Each of `rows` rows of dimension 0 has `inner` rows to be added (1, or those of
     * the matrices it holds), each of `width` numbers. */
    fsdp_group *group; /* the rows are sharded over; NULL: every rank has all */
    int64_t rows, inner, width;
    /* Of fsdp_row_sums_open. */
    int64_t begin, end; /* this rank's rows, those that are added */
    /* Host memory of the device, so that kernels may read and write it, too. @{ */
    double *own;   /* [segments, width], zeros: the caller's to fill in before the gather */
    double *total; /* [width], after it */
    /* @} */
} fsdp_row_sum;

typedef struct fsdp_row_sums {
    fsdp_row_sum *items; /* borrowed */
    size_t n;
    fsdp_reduce_op op; /* FSDP_REDUCE_SUM or FSDP_REDUCE_MAX, of which NaN is the largest */
    fsdp_tensor *memory;
    double *gathered;
} fsdp_row_sums;

/* Lay out own and total of all items; NULL on meta, where memory is counted. */
FSDP_MUST_CHECK fsdp_status fsdp_row_sums_open(fsdp_row_sums *sums, fsdp_row_sum *items, size_t n,
                                               fsdp_reduce_op op, fsdp_device *device);
void fsdp_row_sums_close(fsdp_row_sums *sums); /* accepts what a failed open left */
/* End of the segment that begins at `begin` among rows up to `end`. The segments of an item are
 *     for (b = item->begin; b < item->end; b = e)
 *         e = fsdp_row_segment_end(b, item->end);
 * and its own holds them in this order. */
int64_t fsdp_row_segment_end(int64_t begin, int64_t end);
/* Add `rows`, one number for each row of this rank, to number `column` of the item. */
void fsdp_row_sums_put(const fsdp_row_sums *sums, size_t item, int64_t column, const double *rows);
/* Fill in the totals. Collective: one gather for each group, in the order of items. */
FSDP_MUST_CHECK fsdp_status fsdp_row_sums_gather(fsdp_row_sums *sums);
