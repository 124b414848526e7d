/* --async-save: a checkpoint that is written while training continues.
 *
 * The model and the optimizer are a snapshot (Note [Asynchronous saves] in
 * src/state_dict/async_save.h): a later step that would overwrite a part copies it first.
 * trainer_state.json is made at the call and written with them. Rank 0's thread makes the folder
 * appear, then removes old ones. One checkpoint is in progress at a time. */
#pragma once
#include "src/train/checkpoint.h"

/* Begin the checkpoint `path` of the current state. None may be in progress. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_async_checkpoint_begin(fsdp_trainer *t, const char *path);
/* The state of the checkpoint in progress on this rank: *failed if it has failed, *runs if this
 * rank's part is not done. */
void fsdp_async_checkpoint_look(const fsdp_trainer *t, bool *failed, bool *runs);
/* Wait for the checkpoint in progress, if any, and report it. Collective. A failure on one rank is
 * a failure on all; the error names file and cause. */
FSDP_MUST_CHECK fsdp_status fsdp_async_checkpoint_end(fsdp_trainer *t);
/* After the run has failed. The checkpoint in progress is a snapshot from before the failure and is
 * finished, unless a peer is lost (fsdp_async_save_finish()). May change the last error. */
void fsdp_async_checkpoint_fini(fsdp_trainer *t);
