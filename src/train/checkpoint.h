/* Checkpoints of a training run: everything that its next step depends on.
 *
 * A folder checkpoint-<step> holds model and optimizer (checkpoint_files.h: a checkpoint of
 * torch.distributed.checkpoint, unless --state-dict-type says otherwise) and beside them
 * trainer_state.json: position, sums of the epoch, records, configuration. Order of
 * rows, dropout and rates are functions of seed and step, so that they need no state of their own.
 * The folder appears whole or not at all, and an older one goes only once it is there.
 *
 * A run that is continued computes what it would have computed, bit by bit, also on another number
 * of ranks, if batch_size * gradient_accumulation_steps * ranks is the same. */
#pragma once
#include "src/train/trainer_internal.h"

/* Once the model, data and optimizer are open: continue from what --resume names, if anything. A
 * notice says where from, and which options are others than before. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_resume(fsdp_trainer *t);
/* After a step: write a checkpoint if it is time to. A signal that came makes it time, and ends the
 * run with an error. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_at_step(fsdp_trainer *t, bool end_of_epoch);
/* What is checked before training: can checkpoints be written? Rank 0. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_check(const fsdp_trainer *t);
/* Before the run ends well: wait for a checkpoint that is under way, and remove what killed runs
 * left half written. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_finish(fsdp_trainer *t);

/* What goes once a newer checkpoint is there. */
typedef struct fsdp_checkpoint_rotation {
    const char *folder; /* the trainer's */
    int64_t step;       /* of the newer one */
    int64_t limit;      /* as many stay; 0: all */
    bool anew;          /* those beyond `step` too: another run left them */
} fsdp_checkpoint_rotation;
fsdp_checkpoint_rotation fsdp_checkpoint_rotation_of(const fsdp_trainer *t);
/* Rank 0, or its thread. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_remove_old(const fsdp_checkpoint_rotation *rotation);
/* Of the step that was taken last, with the `call_s` of its checkpoint. */
double fsdp_checkpoint_step_seconds(const fsdp_trainer *t, double call_s);
