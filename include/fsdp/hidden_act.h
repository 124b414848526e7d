/**
 * @file
 * The activation functions that a configuration can choose for feed-forward layers, between the two
 * matrix products.
 */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

/** Values of BERT's hidden_act, GPT-2's activation_function and T5's dense_act_fn: keys of
 * transformers' ACT2FN. */
typedef enum fsdp_hidden_act {
    FSDP_HIDDEN_ACT_GELU,     /**< "gelu": fsdp_gelu() */
    FSDP_HIDDEN_ACT_GELU_NEW, /**< "gelu_new": fsdp_gelu_new() */
    FSDP_HIDDEN_ACT_RELU,     /**< "relu": fsdp_relu() */
    FSDP_HIDDEN_ACT_SILU,     /**< "silu": fsdp_silu() */
    FSDP_HIDDEN_ACT_TANH      /**< "tanh": fsdp_tanh() */
} fsdp_hidden_act;

#ifdef __cplusplus
}
#endif
