/* The files in a checkpoint's folder that contain the model and the optimizer. --state-dict-type
 * selects the form in which they are written. All forms can be read.
 *
 * | SHARDED_STATE_DICT | .metadata, __<rank>_0.distcp: {"model", "optim"}          |
 * | FULL_STATE_DICT    | model_state_dict.pt, optim_state_dict.pt                  |
 * | LOCAL_STATE_DICT   | local_state_dict_rank<rank>.pt: {"model", "optim"}        |
 *
 * With --checkpoint-format accelerate the files are those of Accelerate's save_state()
 * (<fsdp/accelerate.h>). */
#pragma once
#include <fsdp/state_dict.h>

#include "src/train/trainer_internal.h"

/* Does `dir` contain a model and an optimizer in any form that can be read? */
bool fsdp_checkpoint_files_exist(const char *dir);
/* Does this run write SHARDED_STATE_DICT checkpoints with --checkpoint-format fsdp? If so,
 * fsdp_checkpoint_files_state() returns their content; if not, fsdp_checkpoint_files_write() writes
 * the files. */
bool fsdp_checkpoint_files_are_sharded(const fsdp_trainer *t);
/* Write the model and the optimizer into the existing folder `dir`. Not called if
 * fsdp_checkpoint_files_are_sharded(). Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_files_write(fsdp_trainer *t, const char *dir);
/* Create *all, the content of a SHARDED_STATE_DICT checkpoint. The caller owns it. Not collective.
 */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_files_state(fsdp_trainer *t, fsdp_state_dict **all);
/* Read `dir` into the run's model and optimizer. The optimizer keeps the options of this run.
 * Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_files_read(fsdp_trainer *t, const char *dir);
