/* Applies the options of a run that control its units, such as prefetch depths. Called once, before
 * the first step. */
#pragma once
#include "src/train_config/config.h"

/* Apply --forward-prefetch-depth, --backward-prefetch-depth and --no-unshard-in-backward. If a
 * depth is given, each unit below `root` gets prefetch lists, as in the FSDP2 tutorial. The forward
 * list of a unit has the next --forward-prefetch-depth units in tree order, which is the order of
 * forward. The backward list of a unit has the --backward-prefetch-depth units that precede the
 * unit in tree order, nearest first. Return FSDP_ERR_INVALID if --no-unshard-in-backward names a
 * unit that does not exist; the message contains this name and the most similar one. */
FSDP_MUST_CHECK fsdp_status fsdp_train_set_unit_controls(const fsdp_train_config *config,
                                                         fsdp_module *root);
