/* Return the options of loading. fsdp_pretrained_load() (fsdp/pretrained.h) and callers that record
 * dtypes before it must use the same ones. */
#pragma once
#include <fsdp/pretrained.h>

#include "src/hf/wrapped_names.h"

fsdp_load_options fsdp_pretrained_load_options(const fsdp_pretrained *pretrained, uint64_t seed);
/* Rename the tensors of `reader` to the names that a model of `config` expects, without the names
 * of wrappers. *change gets the prefixes that were removed in addition, as in
 * fsdp_weights_names_fit(). */
FSDP_MUST_CHECK fsdp_status fsdp_pretrained_fit_names(const fsdp_model_config *config,
                                                      fsdp_checkpoint_reader *reader,
                                                      fsdp_name_change *change);
