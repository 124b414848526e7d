/* Sums over the rows of whole tensors that are sharded by rows. The sums have the same bits at any
 * world size. One gather is enough for the sums of all tensors.
 *
 * Note [Row sums]. Each row of a tensor contributes one or more numbers. They are added up over all
 * rows, in double and in the order of an aligned binary tree. A node of the tree covers 2^k rows,
 * beginning at a multiple of 2^k, and is the sum of its two halves. If the right half is beyond the
 * last row, the node equals its left half.
 *
 * The rows of a rank are cut into segments. Each segment is a node of the tree and as large as
 * possible, so there are at most two segments of each size. A rank adds up each of its segments and
 * sends the sums. Every rank then joins the segments of all ranks into the tree. So the result does
 * not depend on which rank has which rows. A rank sends at most 2 log2(rows) sums. It sends only
 * one sum if the number of rows and the number of ranks are both powers of two.
 *
 * If a tensor is sharded along any dimension other than 0, no rank has whole rows. Each rank then
 * sends one number. */
#pragma once
#include <fsdp/comm.h>
#include <fsdp/tensor.h>

#include "src/tensor/host_copy.h"

typedef struct fsdp_row_sum {
    /* The caller sets the next fields. Dimension 0 of the whole tensor has `rows` entries, and each
     * entry consists of `inner` rows. If an entry is a single row, `inner` is 1. If an entry
     * consists of matrices, `inner` counts the rows of all matrices in one entry. Each row
     * contributes `width` numbers. total[j] is the sum (or maximum: see fsdp_row_sums.op) of number
     * j over all rows. */
    fsdp_group *group; /* ranks that the rows are sharded over; NULL: every rank has all rows */
    int64_t rows, inner, width;
    /* The next fields are set by fsdp_row_sums_open(). */
    int64_t begin, end; /* this rank has rows [begin, end) of all `rows * inner` rows */
    /* `own` and `total` point to host memory. Kernels use other addresses for the same numbers:
     * fsdp_row_sums_on_device(). */
    double *own;   /* [segments, width], initially zeros; must be filled before the gather */
    double *total; /* [width], valid after the gather */
} fsdp_row_sum;

typedef struct fsdp_row_sums {
    fsdp_row_sum *items; /* borrowed */
    size_t n;
    fsdp_reduce_op op; /* FSDP_REDUCE_SUM or FSDP_REDUCE_MAX; NaN counts as the maximum */
    fsdp_tensor *memory;
    fsdp_host_copy copy; /* the host uses `memory` through it */
    double *gathered;
} fsdp_row_sums;

/* Allocate `own` and `total` of all items. On meta they are NULL, and the memory is only
 * counted. */
FSDP_MUST_CHECK fsdp_status fsdp_row_sums_open(fsdp_row_sums *sums, fsdp_row_sum *items, size_t n,
                                               fsdp_reduce_op op, fsdp_device *device);
void fsdp_row_sums_close(fsdp_row_sums *sums); /* accepts sums whose open has failed */
/* Return the end of the segment that begins at row `begin`. `end` is the end of this rank's rows.
 * The segments of an item are
 *     for (b = item->begin; b < item->end; b = e)
 *         e = fsdp_row_segment_end(b, item->end);
 * and item->own has them in this order. */
int64_t fsdp_row_segment_end(int64_t begin, int64_t end);
/* `rows` has one number for each row of this rank. For each segment of the item, combine the
 * numbers of the segment's rows, as sums->op says: add them up, or take the largest. Store the
 * result as number `column` of the segment. */
void fsdp_row_sums_put(const fsdp_row_sums *sums, size_t item, int64_t column, const double *rows);
/* Kernels may write numbers of `own`, at the address that fsdp_row_sums_on_device() returns for
 * them, until fsdp_row_sums_fetch() waits for these kernels and makes the numbers visible in `own`.
 * It replaces all numbers of the item's segments, so call it before fsdp_row_sums_put(). */
static inline double *fsdp_row_sums_on_device(const fsdp_row_sums *sums, const double *own)
{
    return fsdp_host_copy_on_device(&sums->copy, own);
}
FSDP_MUST_CHECK fsdp_status fsdp_row_sums_fetch(const fsdp_row_sums *sums, size_t item);
/* After the gather, return an address from which kernels can read `total` of the item. */
const double *fsdp_row_sums_send_total(const fsdp_row_sums *sums, size_t item);
/* Compute the totals of all items. Collective. Each process group does one gather for all items
 * that have this group. The gathers follow each other in the order in which the groups first occur
 * in the items. */
FSDP_MUST_CHECK fsdp_status fsdp_row_sums_gather(fsdp_row_sums *sums);
