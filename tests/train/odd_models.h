/* A tiny configuration of each kind of model; its sizes are odd and all different. */
#pragma once
#include <fsdp/models.h>

extern const fsdp_model_config odd_t5; /* v1.1: gated, own head */
/* grouped heads, biases, own head; row 0 is the padding id's */
extern const fsdp_model_config odd_llama;
extern const fsdp_model_config odd_mistral; /* a window of 5 */
extern const fsdp_model_config odd_qwen2;
extern const fsdp_model_config odd_gpt2;
extern const fsdp_model_config odd_bert; /* a classifier of 3 labels */

/* All of them, NULL-terminated. */
extern const fsdp_model_config *const odd_models[];
