/**
 * @file
 * Llama (Touvron et al. 2023, arXiv 2302.13971 and 2307.09288; Grattafiori et al. 2024, arXiv
 * 2407.21783), and related models that differ from it in a few details: Mistral, Qwen2 and Qwen3.
 */
#pragma once
#include <fsdp/autograd.h>
#include <fsdp/base.h>
#include <fsdp/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The model_type of a configuration. */
typedef enum fsdp_llama_family {
    FSDP_LLAMA,   /**< "llama" */
    FSDP_MISTRAL, /**< "mistral" (Jiang et al. 2023, arXiv 2310.06825): may use a sliding window */
    FSDP_QWEN2,   /**< "qwen2" (Yang et al. 2024, arXiv 2407.10671): q, k and v have biases */
    FSDP_QWEN3    /**< "qwen3" (Yang et al. 2025, arXiv 2505.09388): an RMS norm of each head of q
                       and k, before they are rotated */
} fsdp_llama_family;

/** rope_type: how rotary frequencies are scaled. */
typedef enum fsdp_rope_type {
    FSDP_ROPE_DEFAULT, /**< frequency j is theta^(-2j/K), with K = head_dim */
    FSDP_ROPE_LINEAR,  /**< the default frequencies, divided by `factor` */
    FSDP_ROPE_LLAMA3,  /**< the default frequencies, scaled depending on their wavelength, as in
                            Llama 3.1 */
    FSDP_ROPE_DYNAMIC, /**< dynamic NTK: `theta` grows with the longest sequence of the batch, once
                            this sequence is longer than max_position_embeddings */
    FSDP_ROPE_YARN     /**< YaRN (Peng et al. 2023, arXiv 2309.00071): low frequencies are divided
                            by `factor`, high ones are not, and sines and cosines are multiplied by
                            attention_factor */
} fsdp_rope_type;

enum {
    FSDP_LLAMA_MAX_MIXED_LAYERS = 512 /**< see fsdp_llama_config.full_attention */
};

/** Rotary embedding: the values of rope_parameters in a config.json, or of rope_theta and
 * rope_scaling in an older one. */
typedef struct fsdp_rope_config {
    fsdp_rope_type type;
    double theta;
    double factor;                            /**< used by all types but FSDP_ROPE_DEFAULT */
    double low_freq_factor, high_freq_factor; /**< used by FSDP_ROPE_LLAMA3 */
    int64_t original_max_position_embeddings; /**< used by FSDP_ROPE_LLAMA3 and _YARN. For
                                                   FSDP_ROPE_DYNAMIC, it is
                                                   max_position_embeddings */
    /** Used by FSDP_ROPE_YARN. If attention_factor is 0, it is computed from `factor`, mscale and
     * mscale_all_dim. beta_fast and beta_slow are numbers of rotations within
     * original_max_position_embeddings tokens; 0 means 32 for beta_fast and 1 for beta_slow. */
    double attention_factor, beta_fast, beta_slow, mscale, mscale_all_dim;
    bool truncate; /**< used by FSDP_ROPE_YARN: the ramp between high and low frequencies begins and
                        ends at whole indices; default true */
} fsdp_rope_config;

/** The configuration of a Llama, Mistral, Qwen2 or Qwen3 model. Fields are named like the keys of a
 * Hugging Face config.json. */
typedef struct fsdp_llama_config {
    fsdp_llama_family family;
    int64_t vocab_size, hidden_size, intermediate_size;
    int64_t num_hidden_layers, num_attention_heads;
    int64_t num_key_value_heads;     /**< divides num_attention_heads */
    int64_t head_dim;                /**< even; need not be hidden_size / num_attention_heads */
    int64_t max_position_embeddings; /**< length of sequences in pretraining. Longer sequences are
                                          allowed: rotary positions have no limit */
    int64_t sliding_window; /**< a token attends to itself and the sliding_window - 1 tokens before
                                 it; 0: to itself and all tokens before it */
    int64_t max_window_layers; /**< the first max_window_layers layers ignore sliding_window */
    /** For layers whose index is at least max_window_layers: bit i % 64 of element i / 64 is 1 if
     * layer i ignores sliding_window. With these bits, the layers can have the types in any order
     * (layer_types in config.json). */
    uint64_t full_attention[FSDP_LLAMA_MAX_MIXED_LAYERS / 64];
    fsdp_rope_config rope;
    double rms_norm_eps, initializer_range, attention_dropout;
    bool attention_bias; /**< the projections q, k, v and o have biases; in Qwen2, q, k and v always
                              have them */
    bool mlp_bias;
    bool tie_word_embeddings;
    int64_t bos_token_id, eos_token_id, pad_token_id; /**< -1: none */
    fsdp_dtype dtype; /**< dtype of the saved weights, from config.json; default float32 */
} fsdp_llama_config;

#ifdef __cplusplus
}
#endif
