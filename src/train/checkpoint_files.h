/* The files of a checkpoint that hold model and optimizer: as --state-dict-type says when they are
 * written; whatever is there when they are read.
 *
 * | SHARDED_STATE_DICT | .metadata, __<rank>_0.distcp: {"model", "optim"}          |
 * | FULL_STATE_DICT    | model_state_dict.pt, optim_state_dict.pt                  |
 * | LOCAL_STATE_DICT   | local_state_dict_rank<rank>.pt: {"model", "optim"}        |
 *
 * With --checkpoint-format accelerate they are those of Accelerate's save_state()
 * (<fsdp/accelerate.h>).
 */
#pragma once
#include <fsdp/state_dict.h>

#include "src/train/trainer_internal.h"

/* Does `dir` hold a model and an optimizer in any of these forms? */
bool fsdp_checkpoint_files_exist(const char *dir);
/* Does this run write a SHARDED_STATE_DICT, which is what fsdp_checkpoint_files_state() gives? */
bool fsdp_checkpoint_files_are_sharded(const fsdp_trainer *t);
/* The other forms, into the existing folder `dir`. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_files_write(fsdp_trainer *t, const char *dir);
/* What a SHARDED_STATE_DICT holds, as the caller's; not collective. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_files_state(fsdp_trainer *t, fsdp_state_dict **all);
/* Into the run's model and optimizer, whose options stay: those of this run count. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_files_read(fsdp_trainer *t, const char *dir);
