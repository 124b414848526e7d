/* Creates the optimizer that a configuration asks for. */
#pragma once
#include "src/train_config/config.h"

/* Create the optimizer for the parameters of `module`. The optimizer has one group, or, with
 * --no-decay, a second group without weight decay. With Muon, each group is split into the
 * parameters that Muon updates and those that AdamW updates. Return FSDP_ERR_INVALID if no
 * parameter's name contains a given word of --no-decay; the message contains the word and the most
 * similar name. */
FSDP_MUST_CHECK fsdp_status fsdp_train_optimizer_create(const fsdp_train_config *config,
                                                        fsdp_module *module,
                                                        fsdp_optimizer **optimizer);
