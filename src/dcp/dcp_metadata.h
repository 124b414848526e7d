/* Reads the file .metadata of a directory of torch.distributed.checkpoint (DCP). This file lists
 * the content of the directory.
 *
 * A saved state dict is flattened: each tensor and each plain value is an item with a unique name
 * (fqn). A tensor consists of chunks. A chunk is a box of the tensor. Each chunk was written by one
 * rank, in the form of a torch.save archive. A plain value has a single chunk. PyTorch has moved
 * classes between modules, so Python classes are recognized by their names without the modules. The
 * format is defined in torch/distributed/checkpoint/{metadata,filesystem}.py; versions 2.0 to 2.15
 * of PyTorch are supported. */
#pragma once
#include "src/torchfile/pickle_reader.h"

/* A chunk: a box of a tensor or a plain value, and the place of its archive. */
typedef struct fsdp_dcp_chunk {
    const int64_t *offsets, *sizes; /* [ndim of the item] the box; NULL for a plain value */
    int64_t numel;
    const char *file;        /* name in the folder of .metadata */
    uint64_t offset, length; /* the place of the chunk's archive in the file, in bytes */
} fsdp_dcp_chunk;

typedef struct fsdp_dcp_item {
    const char *fqn;
    const fsdp_pickle_value *path; /* TUPLE of the keys in the fqn; NULL if not in the file */
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

/* Read the content of .metadata, `data` [bytes], which is not needed after the call. `label` is the
 * prefix of messages. Each chunk must be within its tensor and have a place in a file. The chunks
 * of a tensor must cover it without overlap. Returns FSDP_ERR_FORMAT if the metadata are malformed;
 * the message contains the fqn. Returns FSDP_ERR_UNSUPPORTED for compressed items. */
FSDP_MUST_CHECK fsdp_status fsdp_dcp_metadata_create(const char *label, const void *data,
                                                     size_t bytes, fsdp_dcp_metadata **metadata);
void fsdp_dcp_metadata_destroy(fsdp_dcp_metadata *metadata); /* accepts NULL */
size_t fsdp_dcp_metadata_count(const fsdp_dcp_metadata *metadata);
/* Return the item with index `i`. The items are in byte order of their names. */
const fsdp_dcp_item *fsdp_dcp_metadata_at(const fsdp_dcp_metadata *metadata, size_t i);
/* Return true if this library wrote this .metadata. Return false if PyTorch has overwritten the
 * file since then. */
bool fsdp_dcp_metadata_is_own(const fsdp_dcp_metadata *metadata);
/* Return the name of the companion, a file in the same folder that belongs to the checkpoint.
 * Returns NULL if there is none. This library stores the name as the first item of `modules` in
 * StorageMeta. */
const char *fsdp_dcp_metadata_companion(const fsdp_dcp_metadata *metadata);
/* Return the item that has the name `fqn`, or NULL if there is none. */
const fsdp_dcp_item *fsdp_dcp_metadata_find(const fsdp_dcp_metadata *metadata, const char *fqn);
