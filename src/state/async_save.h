/* Inside of asynchronous saves: what a training run adds to fsdp_dcp_async_save().
 *
 * Note [Asynchronous saves]. At the call the ranks exchange what they have of the entries, as for
 * any save; each takes a snapshot (Note [Copy on write] in src/tensor/snapshot.h) and starts a
 * thread. From then on nothing is exchanged: each thread writes its rank's file and leaves a note
 * of where things lie beside it; rank 0's takes the notes, writes .metadata, and renames the
 * folder. The ranks' own threads learn of it when they ask. A rank that fails leaves a note of that
 * for rank 0, which ends as well; the others, and what happened, are told by
 * fsdp_async_save_wait(). */
#pragma once
#include <fsdp/state_dict.h>

#include "src/base/io.h"
#include "src/tensor/snapshot.h"

/* Called by the threads that write; fields may be NULL. */
typedef struct fsdp_async_save_hooks {
    /* Rank 0: further files for folder `dir`, before it appears. */
    fsdp_status (*write)(void *arg, const char *dir);
    /* Rank 0: it has appeared. */
    fsdp_status (*appeared)(void *arg);
    /* Before the next bytes of a snapshot are read: tests delay and fail here. */
    fsdp_status (*before_read)(void *arg);
    void *arg;
} fsdp_async_save_hooks;

typedef struct fsdp_async_save_plan {
    fsdp_existing existing;
    uint64_t staging_bytes; /* of this rank */
    fsdp_async_save_hooks hooks;
} fsdp_async_save_plan;

/* fsdp_dcp_async_save(). */
FSDP_MUST_CHECK fsdp_status fsdp_async_save_begin(const fsdp_state_dict *dict, const char *path,
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
