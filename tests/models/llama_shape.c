/* See llama_shape.h. */
#include "tests/models/llama_shape.h"

#include "src/models/model_type.h"

fsdp_model_config llama_odd_shape(fsdp_llama_family family)
{
    static const fsdp_model_type *const types[] = {[FSDP_LLAMA] = &fsdp_llama_type,
                                                   [FSDP_MISTRAL] = &fsdp_mistral_type,
                                                   [FSDP_QWEN2] = &fsdp_qwen2_type,
                                                   [FSDP_QWEN3] = &fsdp_qwen3_type};
    return (fsdp_model_config){.type = types[family],
                               .llama = {.family = family,
                                         .vocab_size = 17,
                                         .hidden_size = 15,
                                         .intermediate_size = 7,
                                         .num_hidden_layers = 2,
                                         .num_attention_heads = 3,
                                         .num_key_value_heads = 1,
                                         .head_dim = 6,
                                         .max_position_embeddings = 8,
                                         .sliding_window = family == FSDP_LLAMA ? 0 : 3,
                                         .max_window_layers = family == FSDP_QWEN2 ? 1 : 0,
                                         .full_attention = {family == FSDP_QWEN3 ? 2 : 0},
                                         .rope = {.type = FSDP_ROPE_DEFAULT, .theta = 10000.0},
                                         .rms_norm_eps = 1e-5,
                                         .initializer_range = 0.5,
                                         .attention_bias = family == FSDP_LLAMA,
                                         .mlp_bias = family == FSDP_LLAMA,
                                         .tie_word_embeddings = family != FSDP_MISTRAL,
                                         .bos_token_id = 1,
                                         .eos_token_id = 2,
                                         .pad_token_id = family == FSDP_MISTRAL ? 3 : -1}};
}
