/* What a directory of torch.distributed.checkpoint (DCP) holds: its file .metadata.
 *
 * A saved state dict is flattened: each tensor and each plain value is an item of its own name
 * (fqn). A tensor lies in chunks, boxes of it that ranks wrote; a value in one. Classes are known
 * by their last name, because PyTorch has moved them. Format:
 * torch/distributed/checkpoint/{metadata,filesystem}.py of PyTorch 2.0 to 2.15. */
#pragma once
#include "src/torchfile/pickle_reader.h"

/* A box of a tensor, and where its bytes are. */
typedef struct fsdp_dcp_chunk {
    const int64_t *offsets, *sizes; /* [ndim] of the item; NULL for a value */
    int64_t numel;
    const char *file;        /* beside .metadata */
    uint64_t offset, length; /* bytes in the file: an archive of torch.save */
} fsdp_dcp_chunk;

typedef struct fsdp_dcp_item {
    const char *fqn;
    const fsdp_pickle_value *path; /* TUPLE of keys that were joined to the fqn; NULL if unknown */
    const char *dtype_name;        /* safetensors' name; NULL: a plain value */
    const int64_t *shape;          /* [ndim] */
    int ndim;
    int64_t numel, bytes;
    fsdp_dcp_chunk *chunks; /* [n_chunks] */
    size_t n_chunks;
} fsdp_dcp_item;

typedef struct fsdp_dcp_metadata fsdp_dcp_metadata;

/* What this library writes for StorageMeta's save_id, where torch has a uuid. */
#define FSDP_DCP_SAVE_ID "fsdp.c"

/* Read .metadata, `data` [bytes], which is not needed afterwards. Every chunk lies within its
 * tensor, the chunks of each cover it without overlap, and each is stored somewhere. `label` begins
 * the messages. FSDP_ERR_FORMAT naming the fqn; FSDP_ERR_UNSUPPORTED for compressed items. */
FSDP_MUST_CHECK fsdp_status fsdp_dcp_metadata_create(const char *label, const void *data,
                                                     size_t bytes, fsdp_dcp_metadata **metadata);
void fsdp_dcp_metadata_destroy(fsdp_dcp_metadata *metadata); /* accepts NULL */
size_t fsdp_dcp_metadata_count(const fsdp_dcp_metadata *metadata);
/* Item `i` in byte order of names. */
const fsdp_dcp_item *fsdp_dcp_metadata_at(const fsdp_dcp_metadata *metadata, size_t i);
/* Did this library write it? PyTorch may have saved over what it wrote. */
bool fsdp_dcp_metadata_is_own(const fsdp_dcp_metadata *metadata);
/* The name of a file that this library's caller put beside .metadata, as which it says so: the
 * first of StorageMeta's modules. NULL: none. */
const char *fsdp_dcp_metadata_companion(const fsdp_dcp_metadata *metadata);
/* NULL if there is none. */
const fsdp_dcp_item *fsdp_dcp_metadata_find(const fsdp_dcp_metadata *metadata, const char *fqn);
