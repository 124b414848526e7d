/* Options of the FSDP tutorials, transformers' Trainer, Accelerate, Lightning and PyTorch's
 * launcher that have no effect here. Each is accepted or refused, with a reason. All other options
 * of `fsdp train` are in config_table.c. */
#pragma once
#include <fsdp/options.h>

enum {
    FSDP_TRAIN_COMPAT = 190 /* number of rows in fsdp_train_compat */
};
extern const fsdp_option fsdp_train_compat[];
