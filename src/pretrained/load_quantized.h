/* Loads parameters that are stored in 4 bits: Note [Quantized parameters] in src/nn/quantized.h. */
#pragma once
#include "src/pretrained/nf4_entry.h"

/* Check that the values of `p`, a quantized parameter, can be read from `entry`. `entry` must be a
 * weight in NF4 with the same shape and the same blocks, or a tensor of floating-point numbers with
 * the same shape. Such numbers will be quantized during loading. Return FSDP_ERR_UNSUPPORTED if `p`
 * is in no unit. */
FSDP_MUST_CHECK fsdp_status fsdp_load_check_quantized(const fsdp_checkpoint_reader *reader,
                                                      const fsdp_checkpoint_entry *entry,
                                                      const fsdp_parameter *p);
/* Read this rank's part of `p` from `entry` into p->local. The caller must have begun a write of
 * p->local. Floating-point numbers are read and quantized in pieces of a few thousand elements.
 * `name` is the parameter's name, for messages. Collective over the ranks that share the parameter;
 * if one rank fails, all fail. */
FSDP_MUST_CHECK fsdp_status fsdp_load_quantized(const fsdp_checkpoint_reader *reader,
                                                const fsdp_checkpoint_entry *entry,
                                                const char *name, fsdp_parameter *p);
