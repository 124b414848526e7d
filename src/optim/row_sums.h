/* Sums over the rows of whole tensors that are sharded by rows. They have the same bits at any
 * world size and need one gather for all tensors.
 *
 * Note [Row sums]. Each row contributes numbers, which are added up over the rows of the whole
 * tensor, in double and in the order of an aligned binary tree. A node covers 2^k rows, beginning
 * at a multiple of 2^k, and is the sum of its two halves; if the right half is beyond the last row,
 * the node equals its left half. The rows of a rank are cut into segments that are nodes of the
 * tree, each as large as possible: there are at most two of each size. Each rank adds up its
 * segments and sends the sums. Then every rank joins the segments of all ranks into the tree, whose
 * result is the same however the rows were sharded. So a rank sends at most 2 log2(rows) numbers,
 * and only one if the numbers of rows and ranks are powers of two. If a tensor is cut along another
 * dimension, no rank has whole rows, and each rank sends one number. */
#pragma once
#include <fsdp/comm.h>
#include <fsdp/tensor.h>

typedef struct fsdp_row_sum {
    /* Set by the caller. Dimension 0 has `rows` entries. Each entry has `inner` rows: one, or the
     * rows of all matrices in the entry. The sums run over these rows, each of which contributes
     * `width` numbers. */
    fsdp_group *group; /* the ranks that the rows are sharded over; NULL: every rank has all rows */
    int64_t rows, inner, width;
    /* Set by fsdp_row_sums_open(). */
    int64_t begin, end; /* this rank's range of the rows that are added up */
    /* `own` and `total` point to host memory that the device's kernels can also read and write.
     * @{ */
    double *own;   /* [segments, width], initially zeros; filled in before the gather */
    double *total; /* [width], valid after the gather */
    /* @} */
} fsdp_row_sum;

typedef struct fsdp_row_sums {
    fsdp_row_sum *items; /* borrowed */
    size_t n;
    fsdp_reduce_op op; /* FSDP_REDUCE_SUM, or FSDP_REDUCE_MAX with NaN as the largest */
    fsdp_tensor *memory;
    double *gathered;
} fsdp_row_sums;

/* Allocate `own` and `total` of all items; on meta they are NULL and the memory is only counted. */
FSDP_MUST_CHECK fsdp_status fsdp_row_sums_open(fsdp_row_sums *sums, fsdp_row_sum *items, size_t n,
                                               fsdp_reduce_op op, fsdp_device *device);
void fsdp_row_sums_close(fsdp_row_sums *sums); /* also after a failed open */
/* Return the end of the segment that begins at row `begin`. `end` is the end of this rank's rows.
 * The segments of an item are
 *     for (b = item->begin; b < item->end; b = e)
 *         e = fsdp_row_segment_end(b, item->end);
 * and item->own has them in this order. */
int64_t fsdp_row_segment_end(int64_t begin, int64_t end);
/* Store a number for each segment of the item, as number `column` of the segment: the sum or the
 * maximum of `rows` over the segment. `rows` has one number for each row of this rank. */
void fsdp_row_sums_put(const fsdp_row_sums *sums, size_t item, int64_t column, const double *rows);
/* Compute the totals. Collective: one gather for each group, in the order of items. */
FSDP_MUST_CHECK fsdp_status fsdp_row_sums_gather(fsdp_row_sums *sums);
