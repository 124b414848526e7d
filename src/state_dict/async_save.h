/* Private functions for asynchronous saves. They have more options than fsdp_dcp_async_save(), and
 * a training run calls them directly.
 *
 * Note [Asynchronous saves]. When a save begins, the ranks hold the first of the three meetings of
 * a save (Note [Ranks meet three times] in src/dcp/dcp_writer.h). Then each rank makes a snapshot
 * (Note [Copy on write] in src/tensor/snapshot.h) and starts a thread. The ranks do not communicate
 * after that. Each thread writes its rank's file. It then writes a second, small file into the
 * folder, the rank's note (src/dcp/rank_note.h), with the positions of the rank's entries in its
 * file. The thread of rank 0 reads the notes of the other ranks, writes .metadata, and renames the
 * folder. A rank that fails, or that cannot start its thread, writes a note of its failure. Such a
 * note ends the save on rank 0. fsdp_async_save_wait() returns the outcome of all ranks on every
 * rank.
 *
 * If hosts have disks of their own (Note [Hosts' own disks] in src/dcp/disks.h), notes would not
 * reach rank 0. The threads then only write the files. The checkpoint is completed by
 * fsdp_async_save_wait(), which all ranks call together. fsdp_async_save_finish() cannot complete
 * it. */
#pragma once
#include <fsdp/state_dict.h>

#include "src/dcp/dcp_writer.h"
#include "src/tensor/snapshot.h"

typedef struct fsdp_async_save_options {
    /* Where to save. The thread of rank 0 calls the callbacks of `place`, unless hosts have disks
     * of their own. In that case, all ranks call them in fsdp_async_save_wait(). */
    fsdp_group_place place;
    /* Size of this rank's staging memory. Before a training step overwrites a part of the snapshot
     * that is not written yet, the step copies this part to the staging memory. */
    uint64_t staging_bytes;
    /* Called before each read of bytes from the snapshot. Tests use it to delay a save or to make
     * it fail. May be NULL. */
    fsdp_status (*before_read)(void *arg);
    void *before_read_arg;
} fsdp_async_save_options;

/* Begin a save as fsdp_dcp_async_save() does. `mine` is FSDP_OK, or the error of a step that this
 * rank took before the call. If one rank passes an error, the call fails on all ranks. `dict` is
 * not read if `mine` is an error. */
FSDP_MUST_CHECK fsdp_status fsdp_async_save_begin(fsdp_status mine, const fsdp_state_dict *dict,
                                                  fsdp_group *group,
                                                  const fsdp_async_save_options *options,
                                                  fsdp_async_save **save);
/* Return the default limit of the staging memory of this rank, in bytes. */
uint64_t fsdp_async_save_staging_bytes(const fsdp_group *group);
/* End a save after another part of the run has failed. The peers may be in other calls, so this
 * function does not communicate with them. It waits until the threads of the ranks have finished
 * the save: each thread writes its rank's file, and then the thread of rank 0 gives the folder its
 * final name. The function gives up the save if a peer has died, has been stopped, or has left. If
 * hosts have disks of their own, it always gives up the save and returns FSDP_ERR_STATE.
 *
 * On rank 0, the function returns the outcome of the save. On any other rank, it waits until this
 * rank's save has failed, or until rank 0 has renamed or removed the folder. It then returns this
 * rank's error, or FSDP_OK if this rank has none. */
FSDP_MUST_CHECK fsdp_status fsdp_async_save_finish(fsdp_async_save *save);
/* Return this rank's error, or FSDP_OK if there is none so far. May be called while the save
 * runs. */
FSDP_MUST_CHECK fsdp_status fsdp_async_save_status(fsdp_async_save *save);
/* Return statistics on what the snapshot has cost this rank so far. */
fsdp_snapshot_stats fsdp_async_save_stats(fsdp_async_save *save);
