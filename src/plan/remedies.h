/* Changes of a run that make it need less memory, for --memory-limit and for `fsdp plan --fit`. */
#pragma once
#include "src/base/str.h"
#include "src/train_config/config.h"

/* Change `c`, and append the flags for this change to *flags. Returns false if there is nothing to
 * change. */
typedef bool fsdp_remedy_fn(fsdp_train_config *c, fsdp_str *flags);

fsdp_remedy_fn fsdp_remedy_checkpoint, fsdp_remedy_save_in_step, fsdp_remedy_reshard,
    fsdp_remedy_split_batch, fsdp_remedy_bf16, fsdp_remedy_adafactor, fsdp_remedy_offload,
    fsdp_remedy_checkpoint_ops, fsdp_remedy_adamw_8bit, fsdp_remedy_bf16_master,
    fsdp_remedy_float8_all_gather, fsdp_remedy_activation_offload, fsdp_remedy_lora,
    fsdp_remedy_load_in_4bit;

/* Return false if the program would refuse the command line of `c` with `flags` added, because a
 * flag contradicts another one. If `c` was not parsed from a command line, return true. */
bool fsdp_remedy_is_accepted(const fsdp_train_config *c, const char *flags);
