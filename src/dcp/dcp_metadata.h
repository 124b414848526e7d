/* Reads the file .metadata of a directory of torch.distributed.checkpoint (DCP), which lists the
 * content of the directory.
 *
 * A saved state dict is flattened: each tensor and each plain value is an item with a name of its
 * own (fqn). A tensor consists of chunks. Each chunk is a box of the tensor, written by one rank as
 * an archive of torch.save. A plain value has a single chunk. Classes are recognized without their
 * modules, because PyTorch has moved them between modules. Format:
 * torch/distributed/checkpoint/{metadata,filesystem}.py of PyTorch 2.0 to 2.15. */
#pragma once
#include "src/torchfile/pickle_reader.h"

/* A box of a tensor, and the place of its bytes. */
typedef struct fsdp_dcp_chunk {
    const int64_t *offsets, *sizes; /* [ndim of the item]; NULL for a value */
    int64_t numel;
    const char *file;        /* name in the folder of .metadata */
    uint64_t offset, length; /* in bytes; the place of the chunk's archive in the file */
} fsdp_dcp_chunk;

typedef struct fsdp_dcp_item {
    const char *fqn;
    const fsdp_pickle_value *path; /* TUPLE of the keys that make up the fqn; NULL if unknown */
    const char *dtype_name;        /* name in safetensors, such as "F32"; NULL: a plain value */
    const int64_t *shape;          /* [ndim] */
    int ndim;
    int64_t numel, bytes;
    fsdp_dcp_chunk *chunks; /* [n_chunks] */
    size_t n_chunks;
} fsdp_dcp_item;

typedef struct fsdp_dcp_metadata fsdp_dcp_metadata;

/* The save_id that this library writes into StorageMeta. torch writes a uuid there. */
#define FSDP_DCP_SAVE_ID "fsdp.c"

/* Read .metadata. `data` [bytes] is the content of the file, and is not needed afterwards. Check
 * that every chunk is within its tensor, that the chunks of a tensor cover it without overlap, and
 * that each chunk has a place in a file. `label` is the prefix of messages. FSDP_ERR_FORMAT naming
 * the fqn; FSDP_ERR_UNSUPPORTED for compressed items. */
FSDP_MUST_CHECK fsdp_status fsdp_dcp_metadata_create(const char *label, const void *data,
                                                     size_t bytes, fsdp_dcp_metadata **metadata);
void fsdp_dcp_metadata_destroy(fsdp_dcp_metadata *metadata); /* accepts NULL */
size_t fsdp_dcp_metadata_count(const fsdp_dcp_metadata *metadata);
/* Return item `i` in byte order of names. */
const fsdp_dcp_item *fsdp_dcp_metadata_at(const fsdp_dcp_metadata *metadata, size_t i);
/* Did this library write this .metadata? PyTorch may have overwritten it since. */
bool fsdp_dcp_metadata_is_own(const fsdp_dcp_metadata *metadata);
/* Return the companion: the name of another file that belongs to the checkpoint, or NULL if there
 * is none. This library stores it as the first item of `modules` in StorageMeta. */
const char *fsdp_dcp_metadata_companion(const fsdp_dcp_metadata *metadata);
/* Return the item `fqn`, or NULL if there is none. */
const fsdp_dcp_item *fsdp_dcp_metadata_find(const fsdp_dcp_metadata *metadata, const char *fqn);
