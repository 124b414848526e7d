/* Under which name a file holds a parameter. */
#pragma once
#include <fsdp/ckpt.h>

/* The tensor of parameter `name`, found as transformers finds it:
 * - under its own name;
 * - without `base_prefix` in a file of the bare model ("bert.pooler.dense.weight" as
 *   "pooler.dense.weight"), with it in a file of a model with a head. NULL: no prefix;
 * - each of them with gamma and beta for LayerNorm's weight and bias, as old versions wrote.
 * *entry is NULL if there is none. */
FSDP_MUST_CHECK fsdp_status fsdp_load_find(const fsdp_checkpoint_reader *reader,
                                           const char *base_prefix, const char *name,
                                           const fsdp_checkpoint_entry **entry);
