/* --async-save: a checkpoint that is written while the run goes on.
 *
 * Model and optimizer are a snapshot (Note [Asynchronous saves] in src/state_dict/async_save.h),
 * which the next step copies from where it comes first; trainer_state.json is made at once and
 * written with them. Rank 0's thread lets the folder appear, then removes old ones. One checkpoint
 * is under way at a time. */
#pragma once
#include "src/train/checkpoint.h"

/* Begin the checkpoint `path` of now; none is under way. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_async_checkpoint_begin(fsdp_trainer *t, const char *path);
/* Of the one under way: has it failed on this rank, or is this rank's part not done? */
void fsdp_async_checkpoint_look(const fsdp_trainer *t, bool *failed, bool *runs);
/* Wait for the one under way, if there is one, and tell of it. Collective; a failure of one rank is
 * one of all, and names file and cause. */
FSDP_MUST_CHECK fsdp_status fsdp_async_checkpoint_end(fsdp_trainer *t);
/* The run has failed: what is under way is a snapshot from before that, and is finished, unless a
 * peer is lost (fsdp_async_save_finish()). The last error is another one then. */
void fsdp_async_checkpoint_fini(fsdp_trainer *t);
