/* Reads DTensors from archives that torch.save wrote. If a rank of an FSDP2 run calls
 * torch.save(model.state_dict()), the file has a DTensor for each parameter. In the pickle, each
 * DTensor is a call torch._utils._rebuild_wrapper_subclass(class, dtype, size, stride, ...). The
 * state of the call has the keys `_local_tensor` and `_spec`. `_local_tensor` is the rank's local
 * tensor, and `_spec` has the mesh and the placements. */
#pragma once
#include "src/torchfile/pickle_reader.h"

enum {
    FSDP_DTENSOR_MAX_DIMS = 64,
    FSDP_DTENSOR_MAX_MESH = 8,
    FSDP_DTENSOR_REPLICATE = -1
};

typedef struct fsdp_torch_dtensor {
    const fsdp_pickle_value *local; /* local tensor of the rank that saved the file */
    int64_t shape[FSDP_DTENSOR_MAX_DIMS];
    int ndim;                                  /* number of dimensions of the whole tensor */
    int shard_dims[FSDP_DTENSOR_MAX_MESH];     /* [mesh_ndim] for each dimension of the mesh: the
                                                  dimension of the tensor that is sharded over it,
                                                  or FSDP_DTENSOR_REPLICATE */
    int64_t coordinate[FSDP_DTENSOR_MAX_MESH]; /* [mesh_ndim] the saving rank's place in the mesh;
                                                  -1: the file does not have it */
    int mesh_ndim;
} fsdp_torch_dtensor;

/* Return true if `value` is what one rank holds of a sharded tensor: a DTensor, or a ShardedTensor
 * of FSDP1. */
bool fsdp_torch_is_part(const fsdp_pickle_value *value);
bool fsdp_torch_is_dtensor(const fsdp_pickle_value *value);
/* Read the DTensor `value`. Returns FSDP_ERR_UNSUPPORTED for placements other than Shard and
 * Replicate. Returns FSDP_ERR_FORMAT if the DTensor is malformed. Messages contain `path` and
 * `name`. */
FSDP_MUST_CHECK fsdp_status fsdp_torch_dtensor_read(const char *path, const char *name,
                                                    const fsdp_pickle_value *value,
                                                    fsdp_torch_dtensor *dtensor);
/* Return FSDP_ERR_UNSUPPORTED if `value` is what one rank holds of a sharded tensor
 * (fsdp_torch_is_part()). The message says how to save whole tensors in PyTorch. For a DTensor, it
 * also contains `why`, the reason why this library cannot join the parts. `why` may be NULL. */
FSDP_MUST_CHECK fsdp_status fsdp_torch_refuse_part(const char *path, const char *name,
                                                   const fsdp_pickle_value *value, const char *why);
