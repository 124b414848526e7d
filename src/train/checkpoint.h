/* Checkpoints of a training run: everything that its next step depends on.
 *
 * A folder checkpoint-<step> holds the model and the optimizer (checkpoint_files.h; a checkpoint of
 * torch.distributed.checkpoint unless --state-dict-type says otherwise) and trainer_state.json:
 * position, sums of the epoch, records, configuration. The order of rows, dropout and learning
 * rates are functions of seed and step, so they need no saved state. The folder appears whole or
 * not at all. An older one is removed only after the new one has appeared.
 *
 * A resumed run computes the same bits as a run without a break, also on another number of ranks,
 * provided that batch_size * gradient_accumulation_steps * ranks is the same. */
#pragma once
#include "src/train/trainer_internal.h"

/* Called when the model, data and optimizer are open. Continues from what --resume names, if
 * anything. Prints the source, and the options that differ from the saved run. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_resume(fsdp_trainer *t);
/* After a step: write a checkpoint if one is due. A signal makes one due and ends the run with an
 * error. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_at_step(fsdp_trainer *t, bool end_of_epoch);
/* Before training: check that checkpoints can be written. Rank 0. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_check(const fsdp_trainer *t);
/* Before the run ends successfully: wait for a checkpoint in progress, and remove what killed runs
 * left half written. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_finish(fsdp_trainer *t);

/* What to remove after a newer checkpoint has appeared. */
typedef struct fsdp_checkpoint_rotation {
    const char *folder; /* borrowed from the trainer */
    int64_t step;       /* of the newer checkpoint */
    int64_t limit;      /* number of checkpoints to keep; 0: all */
    bool remove_later;  /* also remove checkpoints beyond `step`, which another run left */
} fsdp_checkpoint_rotation;
fsdp_checkpoint_rotation fsdp_checkpoint_rotation_of(const fsdp_trainer *t);
/* Called by rank 0 or its save thread. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_remove_old(const fsdp_checkpoint_rotation *rotation);
/* Seconds of the last step, including the `call_s` of its checkpoint. */
double fsdp_checkpoint_step_seconds(const fsdp_trainer *t, double call_s);
