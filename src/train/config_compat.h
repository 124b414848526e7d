/* Options of the FSDP tutorials, transformers' Trainer, Accelerate, Lightning and PyTorch's
 * launcher that `fsdp train` accepts but that change nothing here; each says why. All others are in
 * config_table.c. */
#pragma once
#include <fsdp/options.h>

enum {
    FSDP_TRAIN_COMPAT = 203 /* rows */
};
extern const fsdp_option fsdp_train_compat[];
