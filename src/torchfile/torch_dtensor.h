/* Reads DTensors from archives of torch.save. If a rank of an FSDP2 run calls
 * torch.save(model.state_dict()), the file has a DTensor for each parameter. A DTensor is a call
 * torch._utils._rebuild_wrapper_subclass(class, dtype, size, stride, ...). The state of the call
 * contains `_local_tensor`, which is the rank's part, and `_spec`, which has the mesh and the
 * placements. */
#pragma once
#include "src/torchfile/pickle_reader.h"

enum {
    FSDP_DTENSOR_MAX_DIMS = 64,
    FSDP_DTENSOR_MAX_MESH = 8,
    FSDP_DTENSOR_REPLICATE = -1
};

typedef struct fsdp_torch_dtensor {
    const fsdp_pickle_value *local; /* the rank's part, a tensor */
    int64_t shape[FSDP_DTENSOR_MAX_DIMS];
    int ndim;                                  /* number of dimensions of the whole tensor */
    int shard_dims[FSDP_DTENSOR_MAX_MESH];     /* [mesh_ndim] tensor dimension that is sharded along
                                                  this mesh dimension, or FSDP_DTENSOR_REPLICATE */
    int64_t coordinate[FSDP_DTENSOR_MAX_MESH]; /* [mesh_ndim] the rank's place in the mesh; -1: not
                                                  in the file */
    int mesh_ndim;
} fsdp_torch_dtensor;

/* Is `value` one rank's part of a tensor: a DTensor, or a ShardedTensor of FSDP1? */
bool fsdp_torch_is_part(const fsdp_pickle_value *value);
bool fsdp_torch_is_dtensor(const fsdp_pickle_value *value);
/* Read a DTensor. FSDP_ERR_UNSUPPORTED for placements other than Shard and Replicate,
 * FSDP_ERR_FORMAT if it is malformed. `path` and `name` are the prefix of messages. */
FSDP_MUST_CHECK fsdp_status fsdp_torch_dtensor_read(const char *path, const char *name,
                                                    const fsdp_pickle_value *value,
                                                    fsdp_torch_dtensor *dtensor);
/* Return FSDP_ERR_UNSUPPORTED with advice if `value` is one rank's part of a tensor: a DTensor, or
 * a ShardedTensor of FSDP1. `why` says why the parts cannot be joined, or is NULL. */
FSDP_MUST_CHECK fsdp_status fsdp_torch_refuse_part(const char *path, const char *name,
                                                   const fsdp_pickle_value *value, const char *why);
