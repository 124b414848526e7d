/* Puts together a checkpoint of torch.distributed.checkpoint whose files are in several folders.
 * `fsdp train` on several hosts leaves such folders if the hosts have disks of their own (Note
 * [Hosts' own disks] in src/dcp/disks.h). */
#pragma once
#include <fsdp/comm.h>

#include "src/source/source.h"

typedef struct fsdp_gather_options {
    fsdp_source_progress_fn *progress; /* called on rank 0 for each file; may be NULL */
    void *context;
} fsdp_gather_options;

typedef struct fsdp_gather_result {
    size_t files;  /* number of files that the ranks of the save wrote */
    int64_t bytes; /* total size of these files */
    int hosts;     /* number of hosts from which files have come */
} fsdp_gather_result;

/* Write the folder `to` on rank 0's host with all files of the checkpoint that is in the folders
 * `dirs` [n_dirs]. Each rank looks for the folders on its own host, where some of them may be
 * missing. All folders must have the same .metadata and trainer_state.json. Files are sent in
 * pieces (src/dcp/remote_files.h). All checksums are verified; those of blocks are verified before
 * the blocks are written. `to` appears complete or not at all, and is never replaced. *result is
 * set on rank 0. Collective; if one rank fails, all fail.
 *
 * @return FSDP_ERR_INVALID if `to` exists and is not an empty folder, or if the folders are not
 *         from the same save; FSDP_ERR_NOT_FOUND if no rank has any of the folders, if the group
 *         has only one rank and its host lacks a folder, or if no rank has one of the checkpoint's
 *         files; FSDP_ERR_UNSUPPORTED if a folder has a checkpoint of another format;
 *         FSDP_ERR_FORMAT if a file is damaged; FSDP_ERR_IO if the disk is full. Messages contain
 *         the file and its folder */
FSDP_MUST_CHECK fsdp_status fsdp_gather_checkpoint(const char *const *dirs, size_t n_dirs,
                                                   const char *to, fsdp_group *group,
                                                   const fsdp_gather_options *options,
                                                   fsdp_gather_result *result);
