/* The part of a whole tensor that a rank holds, as a box. */
#pragma once
#include <fsdp/dtensor.h>
#include <fsdp/tensor.h>

typedef struct fsdp_box {
    int ndim;
    int64_t shape[FSDP_MAX_DIMS];  /* whole */
    int64_t offset[FSDP_MAX_DIMS]; /* of the part in it */
    int64_t size[FSDP_MAX_DIMS];   /* of the part */
} fsdp_box;

/* Of a DTensor by its placements; an ordinary tensor is its own whole. FSDP_ERR_UNSUPPORTED for a
 * partial one, whose values are no part of anything. */
FSDP_MUST_CHECK fsdp_status fsdp_box_of(const fsdp_tensor *tensor, fsdp_box *box);
/* Of another rank of `group`. False: the mesh does not lie in it row by row, as far as this rank
 * sees; true does not mean that it does. */
bool fsdp_box_of_rank(const fsdp_tensor *tensor, const fsdp_group *group, int rank, fsdp_box *box);
/* Does it cover whole rows: all but dimension 0 in full? */
bool fsdp_box_is_rows(const fsdp_box *box);
/* Copy the box out of `whole`, a contiguous tensor of box->shape, into `part`, a contiguous tensor
 * of box->size, converting dtypes. */
void fsdp_box_copy(const fsdp_box *box, const fsdp_tensor *whole, fsdp_tensor *part);
