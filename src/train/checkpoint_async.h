/* --async-save: a checkpoint that is written while training continues.
 *
 * The model and the optimizer are saved from a snapshot (Note [Asynchronous saves] in
 * src/state_dict/async_save.h). Before a later step overwrites a part of the snapshot that is not
 * written yet, the step copies this part. The content of trainer_state.json is computed when the
 * save begins. A save thread of rank 0 writes trainer_state.json, makes the folder appear, and then
 * removes old checkpoints. Only one checkpoint is in progress at any time. */
#pragma once
#include "src/train/checkpoint.h"

/* Start saving the current state as the checkpoint `path`. No other checkpoint may be in progress.
 * Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_async_checkpoint_begin(fsdp_trainer *t, const char *path);
/* Set *failed to whether the checkpoint in progress has failed on this rank. Set *runs to whether
 * this rank is still saving it. If no checkpoint is in progress, set both to false. */
void fsdp_async_checkpoint_poll(const fsdp_trainer *t, bool *failed, bool *runs);
/* Wait for the checkpoint in progress, if there is one, and print how long it took. If it failed on
 * one rank, all ranks return an error that names the file and the cause. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_async_checkpoint_end(fsdp_trainer *t);
/* Called at the end of every run, even if the run has failed. If a checkpoint is in progress,
 * finish it. This works even if the run has failed, because the snapshot was taken before the
 * failure. But if a peer is lost, abandon the checkpoint (fsdp_async_save_finish()). May change the
 * last error. */
void fsdp_async_checkpoint_fini(fsdp_trainer *t);
