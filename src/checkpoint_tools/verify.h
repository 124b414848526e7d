/* Checks that a checkpoint is complete and undamaged. */
#pragma once
#include "src/source/damage.h"
#include "src/source/source.h"

typedef struct fsdp_verify_options {
    fsdp_damage_fn *found;
    fsdp_source_progress_fn *progress; /* may be NULL */
    void *context;                     /* argument of both callbacks */
} fsdp_verify_options;

typedef struct fsdp_verify_result {
    size_t tensors, values; /* number of items that were checked, including damaged ones */
    int64_t bytes;
    size_t damages;
    size_t unread; /* number of items and files in a form that this library does not read; found()
                      was called with the reason */
    bool has_checksums; /* whether any file has checksums; safetensors files have none */
} fsdp_verify_result;

/* Read every byte of the checkpoint `path`. Checks that tensors and chunks are within their bounds,
 * without holes and overlaps; that the data match their checksums; that all files and tensors named
 * in an index or another file exist; and that all floating-point elements are finite. The check
 * continues after damage is found, unless the damage prevents the checkpoint from being opened.
 * Returns FSDP_OK even if the checkpoint is damaged, FSDP_ERR_NOT_FOUND if `path` does not exist,
 * and FSDP_ERR_UNSUPPORTED if the checkpoint has a form that this library does not read. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_checkpoint(const char *path,
                                                   const fsdp_verify_options *options,
                                                   fsdp_verify_result *result);
