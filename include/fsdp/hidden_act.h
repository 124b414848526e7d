/**
 * @file
 * The non-linearity between the two products of a feed-forward layer, as configurations name it.
 */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

/** hidden_act of BERT, activation_function of GPT-2; transformers' ACT2FN. */
typedef enum fsdp_hidden_act {
    FSDP_HIDDEN_ACT_GELU,     /**< "gelu": fsdp_gelu() */
    FSDP_HIDDEN_ACT_GELU_NEW, /**< "gelu_new": fsdp_gelu_new() */
    FSDP_HIDDEN_ACT_RELU      /**< "relu": fsdp_relu() */
} fsdp_hidden_act;

#ifdef __cplusplus
}
#endif
