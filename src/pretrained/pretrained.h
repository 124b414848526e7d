/* Internal functions that open and load models by name. */
#pragma once
#include <fsdp/pretrained.h>

#include "src/hf/wrapped_names.h"

/* Return the options with which fsdp_pretrained_load() loads values. Callers that record dtypes
 * before the load (fsdp_module_note_dtypes()) must use the same options. */
fsdp_load_options fsdp_pretrained_load_options(const fsdp_pretrained *pretrained, uint64_t seed);
/* Rename the tensors of `reader` to the names that a model of `config` expects. *change is set to
 * what was removed in addition to the parts that wrappers add (fsdp_weights_names_fit()). */
FSDP_MUST_CHECK fsdp_status fsdp_pretrained_fit_names(const fsdp_model_config *config,
                                                      fsdp_checkpoint_reader *reader,
                                                      fsdp_name_change *change);
