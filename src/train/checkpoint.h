/* A checkpoint contains everything that the next step of a training run depends on.
 *
 * A folder checkpoint-<step> contains the model, the optimizer and trainer_state.json. By default,
 * the model and the optimizer are a checkpoint of torch.distributed.checkpoint; checkpoint_files.h
 * lists the other kinds of files. trainer_state.json contains the position in the data, the sums of
 * the current epoch (loss, tokens), the results of earlier epochs and the configuration. Dropout,
 * learning rates and the order of rows depend only on the step and the configuration, so they are
 * not saved. The folder appears with all its files or not at all. Older folders are removed only
 * after the new one has appeared.
 *
 * A resumed run computes the same bits as a run that was not interrupted. The number of ranks may
 * change, provided that batch_size * gradient_accumulation_steps * ranks stays the same. */
#pragma once
#include "src/train/trainer_internal.h"

/* If --resume is given, and the checkpoint that it selects was saved by this program, set
 * t->resumed_prefix to the --task-prefix of the saved run. The data are opened with this prefix, so
 * this function must be called before the data are opened. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_find_prefix(fsdp_trainer *t);
/* If --resume is given, load the checkpoint that it selects into *t. Print the path of the
 * checkpoint, and the options that differ from those of the saved run. The model, the data and the
 * optimizer must be open.
 *
 * If this run will save checkpoints, remove unfinished checkpoints of earlier runs, whether or not
 * --resume is given. Return an error if this run would replace a checkpoint that another program
 * wrote. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_resume(fsdp_trainer *t);
/* Called after each step. `end_of_epoch` is true after the last step of an epoch or of the run.
 * Save a checkpoint if one is due. If any rank has received a signal, save a checkpoint even if
 * none is due, and return an error, which ends the run. With --save-strategy no, do nothing.
 * Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_at_step(fsdp_trainer *t, bool end_of_epoch);
/* Called before the model is saved, and before the run ends successfully. Wait for the checkpoint
 * in progress, if there is one, and remove unfinished checkpoints of runs that were killed.
 * Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_finish(fsdp_trainer *t);

/* Return the duration of the last step plus `call_s`, in seconds. `call_s` is the duration of the
 * call that saved a checkpoint after that step. */
static inline double fsdp_checkpoint_step_seconds(const fsdp_trainer *t, double call_s)
{
    return t->step_seconds[t->step - t->first_step - 1] + call_s;
}
