/* --async-save: a checkpoint that is written while training continues.
 *
 * The model and the optimizer are saved from a snapshot (Note [Asynchronous saves] in
 * src/state_dict/async_save.h): if a later step is about to overwrite a part that is still needed,
 * it first copies that part. The content of trainer_state.json is created when the save begins. A
 * save thread of rank 0 writes trainer_state.json, makes the folder appear, and then removes old
 * checkpoints. Only one checkpoint is in progress at any time. */
#pragma once
#include "src/train/checkpoint.h"

/* Start saving the current state as the checkpoint `path`. No other checkpoint may be in progress.
 * Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_async_checkpoint_begin(fsdp_trainer *t, const char *path);
/* Describe the checkpoint in progress: set *failed if it has failed on this rank, and *runs if this
 * rank has not finished its part. Both are false if there is no checkpoint in progress. */
void fsdp_async_checkpoint_poll(const fsdp_trainer *t, bool *failed, bool *runs);
/* Wait for the checkpoint in progress, if any, and report it. If it failed on one rank, it fails on
 * all ranks; the error names the file and the cause. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_async_checkpoint_end(fsdp_trainer *t);
/* Called when the run ends, even if it has failed. Finish the checkpoint in progress, if any. Its
 * snapshot was taken before the failure, so it is valid. If a peer is lost, the checkpoint is
 * abandoned (fsdp_async_save_finish()). May change the last error. */
void fsdp_async_checkpoint_fini(fsdp_trainer *t);
