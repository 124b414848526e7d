/* Checkpoints of a training run: everything that its next step depends on.
 *
 * A folder checkpoint-<step> contains the model, the optimizer and trainer_state.json. The model
 * and the optimizer are a checkpoint of torch.distributed.checkpoint, unless --state-dict-type
 * selects another form (checkpoint_files.h). trainer_state.json contains the position, the sums of
 * the epoch, records and the configuration. The order of rows, dropout and learning rates are
 * functions of seed and step, so they are not saved. The folder appears with all its files or not
 * at all. Older folders are removed only after the new one has appeared.
 *
 * A resumed run computes the same bits as a run that was not interrupted. The number of ranks may
 * change, provided that batch_size * gradient_accumulation_steps * ranks stays the same. */
#pragma once
#include "src/train/trainer_internal.h"

/* Continue from the checkpoint that --resume names, if it is given. The model, the data and the
 * optimizer must be open. Prints the path of the checkpoint, and the options that differ from those
 * of the saved run. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_resume(fsdp_trainer *t);
/* After a step: write a checkpoint if one is due. After a signal, a checkpoint is always due, and
 * the function then returns an error, which ends the run. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_at_step(fsdp_trainer *t, bool end_of_epoch);
/* Before training: check that checkpoints can be written. Called by rank 0. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_check(const fsdp_trainer *t);
/* Before the run ends successfully: wait for a checkpoint in progress, and remove what killed runs
 * left half written. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_finish(fsdp_trainer *t);

/* Which checkpoints to remove after a new one has appeared. */
typedef struct fsdp_checkpoint_rotation {
    const char *folder; /* borrowed from the trainer */
    int64_t step;       /* step of the new checkpoint */
    int64_t limit;      /* number of checkpoints to keep; 0: all */
    bool remove_later;  /* also remove checkpoints of later steps, which another run left */
} fsdp_checkpoint_rotation;
fsdp_checkpoint_rotation fsdp_checkpoint_rotation_of(const fsdp_trainer *t);
/* Remove these checkpoints. Called by rank 0 or its save thread. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_remove_old(const fsdp_checkpoint_rotation *rotation);
/* Return the duration of the last step in seconds, plus `call_s`, the time that the call for its
 * checkpoint took. */
double fsdp_checkpoint_step_seconds(const fsdp_trainer *t, double call_s);
