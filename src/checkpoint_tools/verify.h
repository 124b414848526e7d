/* Checks that a checkpoint is complete and undamaged. */
#pragma once
#include "src/source/damage.h"
#include "src/source/source.h"

typedef struct fsdp_verify_options {
    fsdp_damage_fn *found;
    fsdp_source_progress_fn *progress; /* may be NULL */
    void *context;                     /* passed to found() and progress() */
} fsdp_verify_options;

typedef struct fsdp_verify_result {
    size_t tensors, values; /* number of items that were checked, including damaged ones */
    int64_t bytes;
    size_t damages;
    /* Number of items and files that this library cannot read. found() was called with the reason
     * for each of them. */
    size_t unread;
    bool has_checksums; /* true: at least one file has checksums; safetensors files have none */
} fsdp_verify_result;

/* Read every byte of the checkpoint `path`, and check that
 * - tensors and chunks are within their bounds, without holes and overlaps;
 * - the data match their checksums;
 * - all files and tensors that an index or another file names exist;
 * - all floating-point elements are finite.
 *
 * Calls options->found() for each fault that it finds, and continues, unless the damage prevents
 * the checkpoint from being opened. Returns FSDP_OK even if the checkpoint is damaged. Returns
 * FSDP_ERR_NOT_FOUND if `path` does not exist, and FSDP_ERR_UNSUPPORTED if this library cannot read
 * the form of the checkpoint. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_checkpoint(const char *path,
                                                   const fsdp_verify_options *options,
                                                   fsdp_verify_result *result);
