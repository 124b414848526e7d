/* --async-save: a checkpoint that is written while training continues.
 *
 * The model and the optimizer are saved from a snapshot (Note [Asynchronous saves] in
 * src/state_dict/async_save.h): before a later step overwrites a part that is still needed, that
 * step copies the part. The content of trainer_state.json is made when the save begins. A save
 * thread of rank 0 writes trainer_state.json, makes the folder appear, and then removes old
 * checkpoints. Only one checkpoint is in progress at any time. */
#pragma once
#include "src/train/checkpoint.h"

/* Start saving the current state as the checkpoint `path`. No other checkpoint may be in progress.
 * Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_async_checkpoint_begin(fsdp_trainer *t, const char *path);
/* Return the state of the checkpoint in progress on this rank: *failed if it has failed, *runs if
 * this rank has not finished its part. Both are false if there is no checkpoint in progress. */
void fsdp_async_checkpoint_poll(const fsdp_trainer *t, bool *failed, bool *runs);
/* Wait for the checkpoint in progress, if any, and report it. Collective. A failure on one rank is
 * a failure on all; the error names file and cause. */
FSDP_MUST_CHECK fsdp_status fsdp_async_checkpoint_end(fsdp_trainer *t);
/* Called when the run ends, also after a failure. Finish the checkpoint in progress, if any. It is
 * valid even after a failure, because its snapshot was taken earlier. If a peer is lost, the
 * checkpoint is abandoned (fsdp_async_save_finish()). May change the last error. */
void fsdp_async_checkpoint_fini(fsdp_trainer *t);
