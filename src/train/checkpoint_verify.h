/* Is a checkpoint-<step> folder whole: trainer_state.json, and are the files there that it says the
 * run wrote? What is in these, src/checkpoint_tools/verify.h looks at. */
#pragma once
#include <fsdp/base.h>

#include "src/source/damage.h"

/* Calls found() for each damage and counts it in *damages; nothing to do for what is no folder or
 * has no trainer_state.json of this program. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_folder_verify(const char *dir, fsdp_damage_fn *found,
                                                          void *context, size_t *damages);
