/* Inside of asynchronous saves: what a training run adds to fsdp_dcp_async_save().
 *
 * Note [Asynchronous saves]. At the call the ranks meet once (Note [Ranks meet three times] in
 * src/dcp/dcp_writer.h); each takes a snapshot (Note [Copy on write] in src/tensor/snapshot.h) and
 * starts a thread. From then on nothing is exchanged: each thread writes its rank's file and leaves
 * a note of where things lie beside it; rank 0's takes the notes, writes .metadata, and renames the
 * folder. The ranks' own threads learn of it when they ask. A rank that fails, also in starting its
 * thread, leaves a note of that for rank 0, which ends as well; the others, and what happened, are
 * told by fsdp_async_save_wait(). */
#pragma once
#include <fsdp/state_dict.h>

#include "src/dcp/dcp_writer.h"
#include "src/tensor/snapshot.h"

typedef struct fsdp_async_save_plan {
    fsdp_group_place place; /* what it is to call, the threads that write call */
    uint64_t staging_bytes; /* of this rank */
    /* Before the next bytes of a snapshot are read: tests delay and fail here. NULL: nothing */
    fsdp_status (*before_read)(void *arg);
    void *before_read_arg;
} fsdp_async_save_plan;

/* fsdp_dcp_async_save(). `mine` is what this rank's preparations returned; `dict` is not looked at
 * if they failed. */
FSDP_MUST_CHECK fsdp_status fsdp_async_save_begin(fsdp_status mine, const fsdp_state_dict *dict,
                                                  fsdp_group *group,
                                                  const fsdp_async_save_plan *plan,
                                                  fsdp_async_save **save);
/* What this rank keeps in memory for a save at most, unless told otherwise. */
uint64_t fsdp_async_save_staging_bytes(const fsdp_group *group);
/* End a save after a failure of something else, without a word to the peers, which may be in
 * another call: each rank's thread writes on, and the folder appears once all have, as long as no
 * peer dies, stops or leaves (then it is given up). Ranks other than 0 wait until it has appeared
 * or gone. What rank 0 returns counts. */
FSDP_MUST_CHECK fsdp_status fsdp_async_save_finish(fsdp_async_save *save);
/* This rank's failure so far; FSDP_OK also while it is under way. */
FSDP_MUST_CHECK fsdp_status fsdp_async_save_status(fsdp_async_save *save);
/* What the snapshot has cost this rank so far. */
fsdp_snapshot_stats fsdp_async_save_stats(fsdp_async_save *save);
