/* The part of a tensor that a rank has, as a box. */
#pragma once
#include <fsdp/dtensor.h>
#include <fsdp/tensor.h>

typedef struct fsdp_box {
    int ndim;
    int64_t shape[FSDP_MAX_DIMS];  /* shape of the whole tensor */
    int64_t offset[FSDP_MAX_DIMS]; /* where the part begins in the whole tensor */
    int64_t size[FSDP_MAX_DIMS];   /* size of the part */
} fsdp_box;

/* Get the box of a DTensor from its placements. The box of an ordinary tensor is the whole tensor.
 * FSDP_ERR_UNSUPPORTED for a partial DTensor, whose values are not a part of the tensor. */
FSDP_MUST_CHECK fsdp_status fsdp_box_of(const fsdp_tensor *tensor, fsdp_box *box);
/* Get the box of another rank of `group`. The ranks of the mesh must be in row-major order in the
 * group. If they are not, this function may notice it and return false, or it may return true with
 * a wrong box. */
bool fsdp_box_of_rank(const fsdp_tensor *tensor, const fsdp_group *group, int rank, fsdp_box *box);
/* Does the box consist of complete rows? If so, it is cut in dimension 0 or not at all. */
bool fsdp_box_is_rows(const fsdp_box *box);
/* Copy the box from `whole`, a contiguous tensor of box->shape, to `part`, a contiguous tensor of
 * box->size. Dtypes are converted. */
void fsdp_box_copy(const fsdp_box *box, const fsdp_tensor *whole, fsdp_tensor *part);
