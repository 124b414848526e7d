/**
 * @file
 * GPT-2 (Radford et al. 2019, "Language Models are Unsupervised Multitask Learners").
 */
#pragma once
#include <fsdp/autograd.h>
#include <fsdp/base.h>
#include <fsdp/hidden_act.h>
#include <fsdp/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The configuration of a GPT-2. Fields are named like the keys of a Hugging Face config.json. */
typedef struct fsdp_gpt2_config {
    int64_t vocab_size, n_embd, n_layer;
    int64_t n_head;                             /**< divides n_embd */
    int64_t n_positions;                        /**< longer sequences are an error */
    int64_t n_inner;                            /**< equals 4 * n_embd if config.json has null */
    double resid_pdrop, embd_pdrop, attn_pdrop; /**< [0, 1) */
    double layer_norm_epsilon, initializer_range;
    fsdp_hidden_act activation_function;
    bool scale_attn_weights;              /**< multiply scores by 1 / sqrt(head width) */
    bool scale_attn_by_inverse_layer_idx; /**< also multiply scores by 1 / (layer + 1) */
    bool tie_word_embeddings;
    int64_t bos_token_id, eos_token_id, pad_token_id; /**< -1: none */
    fsdp_dtype dtype; /**< dtype of the saved weights, from config.json; default float32 */
} fsdp_gpt2_config;

#ifdef __cplusplus
}
#endif
