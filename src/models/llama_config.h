/* config.json of Llama and its relatives: the functions that the tables of model_type.h need. */
#pragma once
#include <fsdp/llama.h>

#include "src/base/json.h"

/* The names of the published shapes, for error messages. */
#define FSDP_LLAMA_PRESETS                                                                         \
    "llama-58m, llama-134m, TinyLlama-1.1B, Llama-2-7b, -13b, -70b, Meta-Llama-3-8B, -70B, "       \
    "Llama-3.1-8B, -70B, -405B, Llama-3.2-1B, -3B"
#define FSDP_MISTRAL_PRESETS "Mistral-7B-v0.1, -v0.3"
#define FSDP_QWEN2_PRESETS "Qwen2.5-0.5B"

/* Read all keys that change what is computed. Keys that are not supported are refused, with a
 * message that names them. */
FSDP_MUST_CHECK fsdp_status fsdp_llama_config_parse(fsdp_json *doc, fsdp_llama_config *config);
/* Set Llama's keys. */
void fsdp_llama_config_set(fsdp_json_node root, const fsdp_llama_config *c, bool has_own_head);
/* Get the configuration of a published size. Returns FSDP_ERR_NOT_FOUND, without a message, if no
 * size of the family has this name. */
fsdp_status fsdp_llama_config_find_preset(fsdp_llama_family family, const char *name,
                                          fsdp_llama_config *config);
