/* Computes and copies boxes. A box is the part of a tensor that a rank has. */
#pragma once
#include <fsdp/dtensor.h>
#include <fsdp/tensor.h>

typedef struct fsdp_box {
    int ndim;
    int64_t shape[FSDP_MAX_DIMS];  /* shape of the whole tensor */
    int64_t offset[FSDP_MAX_DIMS]; /* where the part begins in the whole tensor */
    int64_t size[FSDP_MAX_DIMS];   /* size of the part */
} fsdp_box;

/* Get this rank's box of a DTensor. The box of an ordinary tensor is the whole tensor.
 * Return FSDP_ERR_UNSUPPORTED for a DTensor with a partial placement, because its values are not
 * yet summed over the ranks. */
FSDP_MUST_CHECK fsdp_status fsdp_box_of(const fsdp_tensor *tensor, fsdp_box *box);
/* Get the box that `rank`, another rank of `group`, has of the DTensor. The ranks of the mesh must
 * be in row-major order in the group. If they are not, the call returns false, or it sets *box to a
 * wrong box. */
bool fsdp_box_of_rank(const fsdp_tensor *tensor, const fsdp_group *group, int rank, fsdp_box *box);
/* Return true if the box consists of complete rows. It then has the whole size of the tensor in
 * every dimension except dimension 0. */
bool fsdp_box_is_rows(const fsdp_box *box);
/* Copy the elements of the box from `whole`, a contiguous tensor of box->shape, to `part`, a
 * contiguous tensor of box->size. Values are converted to the dtype of `part`. */
void fsdp_box_copy(const fsdp_box *box, const fsdp_tensor *whole, fsdp_tensor *part);
