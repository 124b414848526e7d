/* A checkpoint contains everything that the next step of a training run depends on.
 *
 * A folder checkpoint-<step> contains the model, the optimizer and trainer_state.json. The model
 * and the optimizer are a checkpoint of torch.distributed.checkpoint, unless --state-dict-type
 * selects another form (checkpoint_files.h). trainer_state.json contains the position in the data,
 * the sums of the current epoch, the records of earlier epochs and the configuration. The order of
 * rows, dropout and learning rates are functions of seed and step, so they are not saved. The
 * folder appears with all its files or not at all. Older folders are removed only after the new one
 * has appeared.
 *
 * A resumed run computes the same bits as a run that was not interrupted. The number of ranks may
 * change, provided that batch_size * gradient_accumulation_steps * ranks stays the same. */
#pragma once
#include "src/train/trainer_internal.h"

/* If --resume is given, continue from the checkpoint that it names. The model, the data and the
 * optimizer must be open. Prints the path of the checkpoint, and the options that differ from those
 * of the saved run. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_resume(fsdp_trainer *t);
/* Called after each step. Has no effect with --save-strategy no. Write a checkpoint if one is due.
 * If any rank has received a signal, always write a checkpoint, and then return an error, which
 * ends the run. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_at_step(fsdp_trainer *t, bool end_of_epoch);
/* Called before the run ends successfully. Wait for a checkpoint in progress, and remove
 * checkpoints that killed runs left half written. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_finish(fsdp_trainer *t);

/* Return the duration in seconds of the last step and of the call that saved a checkpoint after it.
 * `call_s` is the duration of that call. */
static inline double fsdp_checkpoint_step_seconds(const fsdp_trainer *t, double call_s)
{
    return t->step_seconds[t->step - t->first_step - 1] + call_s;
}
