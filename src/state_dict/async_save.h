/* Private functions for asynchronous saves, which a training run uses in addition to
 * fsdp_dcp_async_save().
 *
 * Note [Asynchronous saves]. When a save begins, the ranks meet once (Note [Ranks meet three times]
 * in src/dcp/dcp_writer.h). Then each rank makes a snapshot (Note [Copy on write] in
 * src/tensor/snapshot.h) and starts a thread. The ranks do not communicate after that. Each thread
 * writes its rank's file, and writes a note with the positions of the rank's entries into the
 * folder. The thread of rank 0 reads the notes, writes .metadata, and renames the folder. A rank
 * that fails, even if it only cannot start its thread, writes a note of the failure. This note ends
 * the save on rank 0. fsdp_async_save_wait() reports the outcome to all ranks. */
#pragma once
#include <fsdp/state_dict.h>

#include "src/dcp/dcp_writer.h"
#include "src/tensor/snapshot.h"

typedef struct fsdp_async_save_options {
    fsdp_group_place place; /* its callbacks are called in the thread of rank 0 */
    uint64_t staging_bytes; /* staging memory of this rank */
    /* Called before each read of bytes from the snapshot. Tests use it to delay a save or to make
     * it fail. May be NULL. */
    fsdp_status (*before_read)(void *arg);
    void *before_read_arg;
} fsdp_async_save_options;

/* Begin a save as fsdp_dcp_async_save() does. `mine` is the status of this rank's own preparations.
 * If it is an error, `dict` is not read. */
FSDP_MUST_CHECK fsdp_status fsdp_async_save_begin(fsdp_status mine, const fsdp_state_dict *dict,
                                                  fsdp_group *group,
                                                  const fsdp_async_save_options *options,
                                                  fsdp_async_save **save);
/* Return the default limit of the staging memory of this rank, in bytes. */
uint64_t fsdp_async_save_staging_bytes(const fsdp_group *group);
/* End a save after another part of the run has failed. This does not communicate with the peers,
 * which may be in another call. Each rank's thread continues to write, and the folder gets its
 * final name once all ranks have written. If a peer dies, stops or leaves, the save is given up. On
 * ranks other than 0, this call waits until rank 0 has renamed or removed the folder. On rank 0, it
 * returns the outcome of the save. */
FSDP_MUST_CHECK fsdp_status fsdp_async_save_finish(fsdp_async_save *save);
/* Return this rank's failure, or FSDP_OK if it has not failed so far. May be called while the save
 * runs. */
FSDP_MUST_CHECK fsdp_status fsdp_async_save_status(fsdp_async_save *save);
/* Return statistics on what the snapshot has cost this rank so far. */
fsdp_snapshot_stats fsdp_async_save_stats(fsdp_async_save *save);
