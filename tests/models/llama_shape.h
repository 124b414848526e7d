/* A small shape for tests of Llama and its relatives. */
#pragma once
#include <fsdp/models.h>

/* A shape that divides badly: 3 heads of 6 on 1 key/value head, width 15, 17 ids, two layers.
 * Llama's has every bias, Mistral's has a separate head and a padding id, and the others are tied.
 * All layers of Mistral's and the second layer of Qwen2's have a window of 3. */
fsdp_model_config llama_odd_shape(fsdp_llama_family family);
