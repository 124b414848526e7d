/* Declares the functions of pretrained.c that only this library calls. <fsdp/pretrained.h> declares
 * the public ones. */
#pragma once
#include <fsdp/pretrained.h>

#include "src/hf/wrapped_names.h"

/* Return the options with which fsdp_pretrained_load() will call fsdp_module_load(). If a caller
 * records dtypes before that call (fsdp_module_note_dtypes()), it must use these options, too. */
fsdp_load_options fsdp_pretrained_load_options(const fsdp_pretrained *pretrained, uint64_t seed);
/* Rename the tensors of `reader` to the names that a model of `config` expects. First, remove from
 * the names the parts that wrappers add. Then call fsdp_weights_names_fit(), which sets *change to
 * what else must be removed. Finally, remove this from the names, too. */
FSDP_MUST_CHECK fsdp_status fsdp_pretrained_fit_names(const fsdp_model_config *config,
                                                      fsdp_checkpoint_reader *reader,
                                                      fsdp_name_change *change);
