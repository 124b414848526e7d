/* Private functions that open and load models by name. */
#pragma once
#include <fsdp/pretrained.h>

#include "src/hf/wrapped_names.h"

/* Return the options with which fsdp_pretrained_load() loads values. Callers that record dtypes
 * before the load must use the same options. */
fsdp_load_options fsdp_pretrained_load_options(const fsdp_pretrained *pretrained, uint64_t seed);
/* Rename the tensors of `reader` to the names that a model of `config` expects. *change is what was
 * removed from the names besides parts of wrappers, as in fsdp_weights_names_fit(). */
FSDP_MUST_CHECK fsdp_status fsdp_pretrained_fit_names(const fsdp_model_config *config,
                                                      fsdp_checkpoint_reader *reader,
                                                      fsdp_name_change *change);
