/* Reads and writes config.json of Llama, Mistral, Qwen2 and Qwen3, for the tables of their model
 * types (model_type.h). */
#pragma once
#include <fsdp/llama.h>

#include "src/base/json.h"

/* The names of the presets, for error messages. */
#define FSDP_LLAMA_PRESETS                                                                         \
    "llama-58m, llama-134m, TinyLlama-1.1B, Llama-2-7b, -13b, -70b, Meta-Llama-3-8B, -70B, "       \
    "Llama-3.1-8B, -70B, -405B, Llama-3.2-1B, -3B"
#define FSDP_MISTRAL_PRESETS "Mistral-7B-v0.1, -v0.3"
#define FSDP_QWEN2_PRESETS "Qwen2.5-0.5B"
#define FSDP_QWEN3_PRESETS "Qwen3-0.6B, -8B"

/* Read all keys that change what is computed. A value that is not supported is refused; the message
 * contains its key. */
FSDP_MUST_CHECK fsdp_status fsdp_llama_config_parse(fsdp_json *doc, fsdp_llama_config *config);
/* Set the keys of *c in `root`, the root of a config.json. has_own_head: see
 * fsdp_model_type.write. */
void fsdp_llama_config_set(fsdp_json_node root, const fsdp_llama_config *c, bool has_own_head);
/* Return the window of a layer, or 0 if its queries see all earlier tokens. */
int64_t fsdp_llama_window_of(const fsdp_llama_config *c, int64_t layer);
/* Get the configuration of the preset `name` of a family (llama_presets.c). Returns
 * FSDP_ERR_NOT_FOUND, without a message, if the family has no such preset. */
fsdp_status fsdp_llama_config_find_preset(fsdp_llama_family family, const char *name,
                                          fsdp_llama_config *config);
