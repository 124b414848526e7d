/* Decoding with T5, one token at a time: see fsdp_decoder. The encoder runs once. Keys and values
 * of a source are stored once per prompt, even if the prompt has several sequences. */
#pragma once
#include "src/models/model_type.h"

extern const fsdp_decoder fsdp_t5_decoder;
