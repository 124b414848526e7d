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
/* Before the run ends successfully: wait for a checkpoint in progress, and remove what killed runs
 * left half written. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_finish(fsdp_trainer *t);

/* Return the duration of the last step in seconds, plus `call_s`, the time that the call for its
 * checkpoint took. */
static inline double fsdp_checkpoint_step_seconds(const fsdp_trainer *t, double call_s)
{
    return t->step_seconds[t->step - t->first_step - 1] + call_s;
}
