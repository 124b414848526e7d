/* Is a checkpoint whole? */
#pragma once
#include "src/source/damage.h"
#include "src/source/source.h"

typedef struct fsdp_verify_options {
    fsdp_damage_fn *found;
    fsdp_source_progress_fn *progress; /* NULL: nobody asks */
    void *context;                     /* of both */
} fsdp_verify_options;

typedef struct fsdp_verify_result {
    size_t tensors, values; /* that were read */
    int64_t bytes;
    size_t damages;
    size_t unread; /* items and files in a form that is not read: found() was called with why */
    bool has_checksums; /* of some items: formats of safetensors have none */
} fsdp_verify_result;

/* Read every byte of the checkpoint `path`: bounds, holes and overlaps of tensors and chunks,
 * checksums, what indexes and files name, and that all floating-point elements are finite. One
 * damage does not keep others from being found, unless the checkpoint cannot be opened for it.
 * FSDP_OK also for a damaged one. FSDP_ERR_NOT_FOUND if there is none; FSDP_ERR_UNSUPPORTED if all
 * of it has a form that is not read. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_checkpoint(const char *path,
                                                   const fsdp_verify_options *options,
                                                   fsdp_verify_result *result);
