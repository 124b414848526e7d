/* T5 a token at a time: see fsdp_decoder. The encoder runs once; keys and values of the source are
 * kept once a prompt, however many sequences it has. */
#pragma once
#include "src/models/model_type.h"

extern const fsdp_decoder fsdp_t5_decoder;
