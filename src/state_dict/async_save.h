/* Private functions for asynchronous saves, which a training run uses besides
 * fsdp_dcp_async_save().
 *
 * Note [Asynchronous saves]. At the call the ranks meet once (Note [Ranks meet three times] in
 * src/dcp/dcp_writer.h); each takes a snapshot (Note [Copy on write] in src/tensor/snapshot.h) and
 * starts a thread. From then on the ranks do not communicate. Each thread writes its rank's file
 * and leaves a note with the positions of its entries in the folder. The thread of rank 0 reads the
 * notes, writes .metadata, and renames the folder. A rank that fails, also in starting its thread,
 * leaves a note of the failure, which ends the save of rank 0 too. fsdp_async_save_wait() reports
 * the outcome to all ranks. */
#pragma once
#include <fsdp/state_dict.h>

#include "src/dcp/dcp_writer.h"
#include "src/tensor/snapshot.h"

typedef struct fsdp_async_save_options {
    fsdp_group_place place; /* its callbacks are called by the threads that write */
    uint64_t staging_bytes; /* staging memory of this rank */
    /* Called before the next bytes of a snapshot are read, for tests, which delay and fail here.
     * NULL: nothing. */
    fsdp_status (*before_read)(void *arg);
    void *before_read_arg;
} fsdp_async_save_options;

/* As fsdp_dcp_async_save(). `mine` is what this rank's preparations returned; `dict` is not read if
 * they failed. */
FSDP_MUST_CHECK fsdp_status fsdp_async_save_begin(fsdp_status mine, const fsdp_state_dict *dict,
                                                  fsdp_group *group,
                                                  const fsdp_async_save_options *options,
                                                  fsdp_async_save **save);
/* Default limit of the memory that this rank uses for a save. */
uint64_t fsdp_async_save_staging_bytes(const fsdp_group *group);
/* End a save after a failure of something else. This does not communicate with the peers, which may
 * be in another call. Each rank's thread continues to write, and the folder appears once all have
 * written, unless a peer dies, stops or leaves, which ends the save. Ranks other than 0 wait until
 * the folder has appeared or was removed. The result of rank 0 is the outcome. */
FSDP_MUST_CHECK fsdp_status fsdp_async_save_finish(fsdp_async_save *save);
/* This rank's failure so far; FSDP_OK also while the save runs. */
FSDP_MUST_CHECK fsdp_status fsdp_async_save_status(fsdp_async_save *save);
/* What the snapshot has cost this rank so far. */
fsdp_snapshot_stats fsdp_async_save_stats(fsdp_async_save *save);
