/* The part of a whole tensor that a rank holds, as a box. */
#pragma once
#include <fsdp/dtensor.h>
#include <fsdp/tensor.h>

typedef struct fsdp_box {
    int ndim;
    int64_t shape[FSDP_MAX_DIMS];  /* of the whole tensor */
    int64_t offset[FSDP_MAX_DIMS]; /* of the part in the whole tensor */
    int64_t size[FSDP_MAX_DIMS];   /* of the part */
} fsdp_box;

/* Get the box of a DTensor from its placements; an ordinary tensor is a whole one.
 * FSDP_ERR_UNSUPPORTED for a partial DTensor, whose values are not a part of the tensor. */
FSDP_MUST_CHECK fsdp_status fsdp_box_of(const fsdp_tensor *tensor, fsdp_box *box);
/* Get the box of another rank of `group`. Returns false if this rank sees that the mesh is not in
 * the group in row-major order; true does not guarantee that it is. */
bool fsdp_box_of_rank(const fsdp_tensor *tensor, const fsdp_group *group, int rank, fsdp_box *box);
/* Does the box consist of whole rows? All dimensions other than 0 are full then. */
bool fsdp_box_is_rows(const fsdp_box *box);
/* Copy the box out of `whole`, a contiguous tensor of box->shape, into `part`, a contiguous tensor
 * of box->size, converting dtypes. */
void fsdp_box_copy(const fsdp_box *box, const fsdp_tensor *whole, fsdp_tensor *part);
