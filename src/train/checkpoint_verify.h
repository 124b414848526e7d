/* Checks that a checkpoint-<step> folder is complete: trainer_state.json must be intact, all files
 * that a run with the saved configuration writes must exist, and they must be from the same save
 * (checkpoint_tie.h). src/checkpoint_tools/verify.h checks the content of these files. */
#pragma once
#include <fsdp/base.h>

#include "src/source/damage.h"

/* Call found() for each defect of the checkpoint `dir`, and add the number of defects to *damages.
 * Does nothing if `dir` is not a folder or has no trainer_state.json of this program. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_folder_verify(const char *dir, fsdp_damage_fn *found,
                                                          void *context, size_t *damages);
