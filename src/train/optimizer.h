/* The optimizer that a configuration asks for. */
#pragma once
#include "src/train/config.h"

/* Creates the optimizer over the parameters of `module`: one group, or with --no-decay a second one
 * without weight decay. FSDP_ERR_INVALID, naming the flag and the nearest name, for a word of
 * --no-decay that no name contains. */
FSDP_MUST_CHECK fsdp_status fsdp_train_optimizer_create(const fsdp_train_config *config,
                                                        fsdp_module *module,
                                                        fsdp_optimizer **optimizer);
