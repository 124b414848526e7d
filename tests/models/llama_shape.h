/* A small shape for tests of Llama and its relatives. */
#pragma once
#include <fsdp/models.h>

/* One that divides badly: 3 heads of 6 on 1 key/value head, width 15, 17 ids, two layers; Llama's
 * with every bias, Mistral's with a head of its own and a padding id, tied the others; a window of
 * 3 in all layers of Mistral's and the second of Qwen2's. */
fsdp_model_config llama_odd_shape(fsdp_llama_family family);
