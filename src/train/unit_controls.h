/* Controls of a run's units that are set once before its first step. */
#pragma once
#include "src/train/config.h"

/* Sets --forward-prefetch-depth and --backward-prefetch-depth as lists over the units below `root`
 * in tree order, which is the order of forward, as the FSDP2 tutorial sets them over its layers;
 * and --no-unshard-in-backward. FSDP_ERR_INVALID, naming the unit and the nearest name, if there is
 * no such unit. */
FSDP_MUST_CHECK fsdp_status fsdp_train_set_unit_controls(const fsdp_train_config *config,
                                                         fsdp_module *root);
