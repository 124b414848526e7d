/* Checking that a checkpoint is complete and undamaged. */
#pragma once
#include "src/source/damage.h"
#include "src/source/source.h"

typedef struct fsdp_verify_options {
    fsdp_damage_fn *found;
    fsdp_source_progress_fn *progress; /* may be NULL */
    void *context;                     /* argument of both callbacks */
} fsdp_verify_options;

typedef struct fsdp_verify_result {
    size_t tensors, values; /* that were read without damage */
    int64_t bytes;
    size_t damages;
    size_t
        unread; /* items and files in a form that is not read: found() was called with the reason */
    bool has_checksums; /* some items have checksums; safetensors have none */
} fsdp_verify_result;

/* Read every byte of the checkpoint `path`: bounds, holes and overlaps of tensors and chunks,
 * checksums, what indexes and files name, and that all floating-point elements are finite. All
 * damages are found, unless one prevents the checkpoint from being opened. FSDP_OK also for a
 * damaged checkpoint. FSDP_ERR_NOT_FOUND if there is no checkpoint; FSDP_ERR_UNSUPPORTED if no part
 * of it has a form that can be read. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_checkpoint(const char *path,
                                                   const fsdp_verify_options *options,
                                                   fsdp_verify_result *result);
