/* The keys of config.json that describe rotary positions. */
#pragma once
#include <fsdp/llama.h>

#include "src/base/json.h"

/* Read the parameters of rope, in one of their two spellings (Note [Spellings of rope] in
 * rope_config.c). The caller must read max_position_embeddings first and pass its value. */
FSDP_MUST_CHECK fsdp_status fsdp_rope_config_read(fsdp_json_node root,
                                                  int64_t max_position_embeddings,
                                                  fsdp_rope_config *config);
/* Write the parameters of rope, in the spelling of transformers 4 or in both spellings. */
void fsdp_rope_config_set(fsdp_json_node root, const fsdp_rope_config *config);
