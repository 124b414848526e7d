/* Sums over the rows of whole tensors that are sharded by rows. The sums have the same bits at any
 * world size. One gather is enough for the sums of all tensors.
 *
 * Note [Row sums]. Each row of a tensor contributes one or more numbers. Each of these numbers is
 * added up over all rows, in double and in the order of an aligned binary tree. A node of the tree
 * covers 2^k rows, and the index of its first row is a multiple of 2^k. Its value is the sum of its
 * two halves. If the right half is beyond the last row, the node equals its left half.
 *
 * The rows of a rank are cut into segments. Each segment is a node of the tree and as large as
 * possible, so there are at most two segments of each size. A rank adds up each of its segments and
 * sends the sums. Every rank then joins the segments of all ranks into the tree. So the result does
 * not depend on which rank has which rows. A rank sends at most 2 log2(rows) sums. It sends only
 * one sum if the number of rows and the number of ranks are both powers of two. A rank that has all
 * rows of a tensor treats them as a single segment and sends nothing.
 *
 * If a tensor is sharded along any dimension other than 0, no rank has whole rows. Each rank then
 * sends one number.
 *
 * Kernels add up the rows of segments (combine() in kernels.h), so that a device with memory of its
 * own need not copy the numbers of all rows to the host. If no tensor has rows on other ranks, the
 * totals can stay on the device, too. */
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
    fsdp_group *group; /* ranks among which the rows are divided; NULL: every rank has all rows */
    int64_t rows, inner, width;
    /* The next fields are set by fsdp_row_sums_open(). */
    int64_t begin, end; /* this rank has rows [begin, end) of all `rows * inner` rows */
    /* `own` and `total` point to host memory. Kernels use other addresses for the same numbers:
     * fsdp_row_sums_on_device(). */
    double *own;   /* [segments, width], initially zeros; kernels write them before the gather */
    double *total; /* [width], valid after the gather; equals `own` if fsdp_row_sums.is_local */
} fsdp_row_sum;

typedef struct fsdp_row_sums {
    fsdp_row_sum *items; /* borrowed */
    size_t n;
    fsdp_reduce_op op; /* FSDP_REDUCE_SUM or FSDP_REDUCE_MAX; NaN counts as the maximum */
    bool is_local;     /* this rank has all rows of all items, so no gather is needed */
    fsdp_tensor *memory;
    fsdp_host_copy copy; /* gives the host access to `memory` */
    /* The size in bytes of the `own` of all items, which this rank sends. If is_local, the size of
     * the `total` of all items. */
    size_t sent_bytes;
    double *gathered;
    double *totals; /* `total` of all items, one after another, in the order of the items */
    struct fsdp_numbers *runs; /* owned; memory for the kernel arguments of all segments of all
                                  items */
} fsdp_row_sums;

/* Allocate `own` and `total` of all items. On meta they are NULL, and the memory is only
 * counted. */
FSDP_MUST_CHECK fsdp_status fsdp_row_sums_open(fsdp_row_sums *sums, fsdp_row_sum *items, size_t n,
                                               fsdp_reduce_op op, fsdp_device *device);
void fsdp_row_sums_close(fsdp_row_sums *sums); /* also after fsdp_row_sums_open() has failed */
/* Return the end of the segment that begins at row `begin` of the item. This loop visits all of
 * this rank's segments [b, e), in the order in which item->own has their numbers: for (b =
 * item->begin; b < item->end; b = e) e = fsdp_row_segment_end(item, b); */
int64_t fsdp_row_segment_end(const fsdp_row_sum *item, int64_t begin);
/* `number` points into `own` or `total` in host memory. Return the address that kernels use for the
 * same number. */
static inline double *fsdp_row_sums_on_device(const fsdp_row_sums *sums, const double *number)
{
    return fsdp_host_copy_on_device(&sums->copy, number);
}

/* One number for each of this rank's rows of an item. Together they are one column of the item's
 * numbers. */
typedef struct fsdp_row_values {
    size_t item;
    int64_t column;
    const double *rows; /* one number for each row, in device memory */
    int64_t n;          /* number of rows */
    /* true: the tensor is sharded along a dimension other than 0, so the numbers in `rows` do not
     * belong to rows of the whole tensor. They are combined one after another into one number. */
    bool in_order;
} fsdp_row_values;
/* Start a kernel that combines the numbers of the rows of each segment, as sums->op says: it adds
 * them up, or takes the largest. The result is number `column` of the segment in `own`. `values`
 * [n] belong to different items. */
void fsdp_row_sums_combine(const fsdp_row_sums *sums, const fsdp_row_values *values, size_t n);
/* Compute the totals of all items. Wait for the kernels that write `own`, and exchange the numbers.
 * Collective. Each process group does one gather for all items that have this group. The gathers
 * follow each other in the order in which the groups first occur in the items. */
FSDP_MUST_CHECK fsdp_status fsdp_row_sums_gather(fsdp_row_sums *sums);
/* Return an address from which kernels can read sums->totals. Call this after
 * fsdp_row_sums_gather(), or at any time after fsdp_row_sums_combine() if sums->is_local. */
const double *fsdp_row_sums_send_totals(const fsdp_row_sums *sums);
/* Like fsdp_row_sums_send_totals(), but return the address of the `total` of one item. */
const double *fsdp_row_sums_send_total(const fsdp_row_sums *sums, size_t item);
