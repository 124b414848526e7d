/* Controls of a run's units that stay as they are from its first step on. */
#pragma once
#include "src/train/config.h"

/* --forward-prefetch-depth, --backward-prefetch-depth: lists over the units below `root` in the
 * order of its tree, which is that of a forward, as the FSDP2 tutorial sets them over its layers;
 * --no-unshard-in-backward. FSDP_ERR_INVALID naming a unit that is not there, and the nearest. */
FSDP_MUST_CHECK fsdp_status fsdp_train_set_unit_controls(const fsdp_train_config *config,
                                                         fsdp_module *root);
