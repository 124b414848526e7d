/* Reads and writes config.json of GPT-2. Also has the presets: configurations of published
 * models. */
#pragma once
#include <fsdp/gpt2.h>

#include "src/base/json.h"

FSDP_MUST_CHECK fsdp_status fsdp_gpt2_config_parse(fsdp_json *doc, fsdp_gpt2_config *config);
void fsdp_gpt2_config_set(fsdp_json_node root, const fsdp_gpt2_config *config, bool has_own_head);

#define FSDP_GPT2_PRESETS "gpt2, gpt2-medium, gpt2-large, gpt2-xl, distilgpt2"
/* Get the configuration of the preset `name`. Returns FSDP_ERR_NOT_FOUND, without a message, if
 * there is no such preset. */
fsdp_status fsdp_gpt2_config_find_preset(const char *name, fsdp_gpt2_config *config);
