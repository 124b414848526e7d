/* Checks that a checkpoint-<step> folder is whole: that trainer_state.json is intact and that the
 * files which the run wrote according to it exist. src/checkpoint_tools/verify.h checks the content
 * of these files. */
#pragma once
#include <fsdp/base.h>

#include "src/source/damage.h"

/* Calls found() for each damage and counts it in *damages. Does nothing if `dir` is no folder or
 * has no trainer_state.json of this program. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_folder_verify(const char *dir, fsdp_damage_fn *found,
                                                          void *context, size_t *damages);
