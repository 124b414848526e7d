/* Checks that a checkpoint-<step> folder is complete: that trainer_state.json is intact, and that
 * all files exist that a run with the configuration in trainer_state.json writes.
 * src/checkpoint_tools/verify.h checks the content of these files. */
#pragma once
#include <fsdp/base.h>

#include "src/source/damage.h"

/* Call found() for each damage, and count the damages in *damages. Does nothing if `dir` is not a
 * folder or has no trainer_state.json of this program. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_folder_verify(const char *dir, fsdp_damage_fn *found,
                                                          void *context, size_t *damages);
