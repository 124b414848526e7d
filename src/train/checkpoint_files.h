/* The files of a checkpoint that contain the model and the optimizer. With --checkpoint-format
 * fsdp, --state-dict-type selects which files are written:
 *
 * | SHARDED_STATE_DICT | .metadata, __<rank>_0.distcp: {"model", "optim"}          |
 * | FULL_STATE_DICT    | model_state_dict.pt, optim_state_dict.pt                  |
 * | LOCAL_STATE_DICT   | local_state_dict_rank<rank>.pt: {"model", "optim"}        |
 *
 * {"model", "optim"} is one dict that contains the state dicts of both. With the other values of
 * --checkpoint-format, the files are those of Accelerate's save_state() (<fsdp/accelerate.h>). A
 * run can resume from any of these files. */
#pragma once
#include <fsdp/state_dict.h>

#include "src/train/trainer_internal.h"

/* Return true if `dir` contains a model and an optimizer in files from which a run can resume. */
bool fsdp_checkpoint_files_exist(const char *dir);
/* Return true if this run saves SHARDED_STATE_DICT checkpoints with --checkpoint-format fsdp. To
 * save such a checkpoint, write the dict from fsdp_checkpoint_files_state(). To save any other
 * checkpoint, call fsdp_checkpoint_files_write(). */
bool fsdp_checkpoint_files_are_sharded(const fsdp_trainer *t);
/* Write the model and the optimizer into the existing folder `dir`. Must not be called if
 * fsdp_checkpoint_files_are_sharded() returns true. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_files_write(fsdp_trainer *t, const char *dir);
/* Create *all, the dict that a SHARDED_STATE_DICT checkpoint contains. The caller owns *all. Not
 * collective.
 */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_files_state(fsdp_trainer *t, fsdp_state_dict **all);
/* Read the model and the optimizer from `dir`. The optimizer keeps this run's options; the saved
 * options are ignored. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_files_read(fsdp_trainer *t, const char *dir);
