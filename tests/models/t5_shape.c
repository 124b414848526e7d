/* See t5_shape.h. */
#include "tests/models/t5_shape.h"

#include "src/models/model_type.h"

fsdp_model_config t5_odd_shape(void)
{
    return (fsdp_model_config){.type = &fsdp_t5_type,
                               .t5 = {.vocab_size = 17,
                                      .d_model = 15,
                                      .d_ff = 7,
                                      .d_kv = 5,
                                      .num_layers = 2,
                                      .num_decoder_layers = 1,
                                      .num_heads = 3,
                                      .relative_attention_num_buckets = 8,
                                      .relative_attention_max_distance = 20,
                                      .layer_norm_epsilon = 1e-6,
                                      .initializer_factor = 1.0,
                                      .is_gated_act = true,
                                      .dense_act_fn = FSDP_HIDDEN_ACT_GELU_NEW,
                                      .eos_token_id = 1}};
}
