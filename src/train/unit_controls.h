/* Sets the controls of a run's units, once before the first step. */
#pragma once
#include "src/train_config/config.h"

/* Apply --forward-prefetch-depth, --backward-prefetch-depth and --no-unshard-in-backward. For each
 * depth, each unit below `root` gets a prefetch list, as in the FSDP2 tutorial: the next units in
 * tree order, which is the order of forward, or the units before it, nearest first. Return
 * FSDP_ERR_INVALID if --no-unshard-in-backward names a unit that does not exist; the message
 * contains this name and the most similar one. */
FSDP_MUST_CHECK fsdp_status fsdp_train_set_unit_controls(const fsdp_train_config *config,
                                                         fsdp_module *root);
