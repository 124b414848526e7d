/* Converts weights of Lit-LLaMA and LitGPT to those of the Hugging Face model that a config.json
 * describes (Note [Weights of Lit-LLaMA and LitGPT] in lit_names.h). */
#pragma once
#include <fsdp/models.h>

#include "src/hf/lit_names.h"
#include "src/source/source.h"

/* Set *model to sizes from `config`, such as the number of heads. They decide which rows of the
 * weights are used, and in which order. `dir`, the folder of config.json, is kept in *model for
 * messages, so it must outlive *model. `label` is the path of the checkpoint, for messages. Return
 * FSDP_ERR_INVALID if config.json does not describe a model with the layers of Llama. */
FSDP_MUST_CHECK fsdp_status fsdp_lit_model_of(const fsdp_model_config *config, const char *dir,
                                              const char *label, fsdp_lit_format format,
                                              fsdp_lit_model *model);
/* Translate the items of `source` (fsdp_source_translate_lit()). `name` is the folder or the hub
 * name of the model that the weights belong to. The source must have weights of `format`. Set
 * *n_left_out to the number of items outside of the model. After a failure, only
 * fsdp_source_close() may be called. */
FSDP_MUST_CHECK fsdp_status fsdp_lit_translate_source(fsdp_source *source, fsdp_lit_format format,
                                                      const char *name, size_t *n_left_out);
