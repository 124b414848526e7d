/* Creates the optimizer that a configuration asks for. */
#pragma once
#include "src/train_config/config.h"

/* Create the optimizer for the parameters of `module`. It has one group. With --no-decay it has a
 * second group, without weight decay. FSDP_ERR_INVALID, naming the flag and the nearest name, if no
 * parameter's name contains a word of --no-decay. */
FSDP_MUST_CHECK fsdp_status fsdp_train_optimizer_create(const fsdp_train_config *config,
                                                        fsdp_module *module,
                                                        fsdp_optimizer **optimizer);
