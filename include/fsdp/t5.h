/**
 * @file
 * T5 (Raffel et al. 2020, arXiv 1910.10683): an encoder-decoder model, in v1.0 and v1.1 (also
 * FLAN). mT5 (Xue et al. 2021, arXiv 2010.11934) is v1.1 with a larger vocabulary. umT5 (Chung et
 * al. 2023, arXiv 2304.09151) is mT5 with a position bias in every layer.
 */
#pragma once
#include <fsdp/autograd.h>
#include <fsdp/base.h>
#include <fsdp/hidden_act.h>
#include <fsdp/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The model_type of a configuration. Classes of modules are named after it: T5Block, MT5Block,
 * UMT5Block. */
typedef enum fsdp_t5_family {
    FSDP_T5,  /**< "t5" */
    FSDP_MT5, /**< "mt5": the head's input is never scaled */
    FSDP_UMT5 /**< "umt5": the self-attention of every layer has its own relative_attention_bias; in
                   the other families, all layers of a stack share the relative_attention_bias of
                   the first layer */
} fsdp_t5_family;

/**
 * The configuration of a T5 (Raffel et al. 2020, arXiv 1910.10683). Most fields are named like the
 * keys of a Hugging Face config.json.
 *
 * v1.0 has feed_forward_proj "relu". Its head is tied to the embedding, and the decoder's output is
 * multiplied by d_model^-0.5 before the head. v1.1 (also FLAN) has feed_forward_proj "gated-gelu".
 * Its head is separate, and the decoder's output is not scaled.
 *
 * If `tie_word_embeddings` in config.json is false, the head is separate, and the decoder's output
 * is not scaled. But transformers 5 saves v1.1 with `tie_word_embeddings` true and
 * `scale_decoder_outputs` false. The weights then decide: the head is tied if there is no
 * lm_head.weight, or if lm_head.weight equals the embedding.
 */
typedef struct fsdp_t5_config {
    fsdp_t5_family family;
    int64_t vocab_size, d_model, d_ff;
    int64_t d_kv; /**< width of one head; num_heads * d_kv may differ from d_model */
    int64_t num_layers, num_decoder_layers, num_heads;
    int64_t relative_attention_num_buckets;  /**< at least 4 */
    int64_t relative_attention_max_distance; /**< greater than half the number of buckets */
    double dropout_rate;                     /**< [0, 1) */
    double layer_norm_epsilon;               /**< > 0 */
    double initializer_factor;               /**< >= 0 */
    bool is_gated_act;                       /**< the feed-forward computes wo (a(wi_0 x) * (wi_1
                                                  x)); false: wo a(wi x) */
    fsdp_hidden_act dense_act_fn;            /**< the function a */
    bool scale_decoder_outputs;              /**< multiply the decoder's output by d_model^-0.5
                                                  before the head */
    bool tie_word_embeddings;                /**< the head is tied to the embedding.
                                                  fsdp_pretrained_open() sets this from the
                                                  weights */
    int64_t pad_token_id, eos_token_id, decoder_start_token_id; /**< below vocab_size */
    fsdp_dtype dtype; /**< dtype of the saved weights, from config.json; default float32 */
} fsdp_t5_config;

/**
 * Read `path`, which is a config.json or the directory that contains it. Error messages name the
 * file, the key and the value.
 * @return FSDP_ERR_NOT_FOUND if the file or a key is missing; FSDP_ERR_FORMAT if a value is
 *         impossible; FSDP_ERR_UNSUPPORTED if the model is not a T5, or if a key that this library
 *         does not support would change the results.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_t5_config_read(const char *path, fsdp_t5_config *config);

/**
 * Get the configuration of a published size: "t5-small", "t5-base", "t5-large", "t5-3b", "t5-11b",
 * "t5-v1_1-small" to "t5-v1_1-xxl", "flan-t5-small" to "flan-t5-xxl", "mt5-small" to "mt5-xxl",
 * and "umt5-small" to "umt5-xxl". A leading "google/" or "google-t5/" is ignored.
 * @return FSDP_ERR_INVALID for an unknown name; the message lists the known names.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_t5_config_preset(const char *name,
                                                           fsdp_t5_config *config);

/**
 * Write a config.json that transformers 4 and 5 understand in the same way. The file appears
 * complete or not at all. If the head is tied but its input is not scaled, the caller must save
 * lm_head.weight, too. Without that weight, transformers 4 would not load such a model correctly.
 * transformers 5 ties the head if lm_head.weight equals the embedding.
 *
 * @param has_lm_head true: the weights contain lm_head.weight
 * @param dtype       dtype of the saved weights
 * @param source      path of the original config.json; keys that this function does not set are
 *                    copied from it. NULL: none
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_t5_config_write(const fsdp_t5_config *config,
                                                          bool has_lm_head, fsdp_dtype dtype,
                                                          const char *source, const char *path);

/**
 * Build the module tree of a T5ForConditionalGeneration, without memory.
 *
 * Names and classes are Hugging Face's: encoder.block.0 is a T5Block. The embedding is one
 * parameter with three names (shared, encoder.embed_tokens, decoder.embed_tokens), or four if the
 * head is tied. Parameters are initialized as in T5PreTrainedModel._init_weights.
 *
 * @param config copied; dimensions must be positive
 * @param model  out: owned by the caller, destroyed with fsdp_module_destroy()
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_t5_create(const fsdp_t5_config *config,
                                                    fsdp_module **model);
/** Get the configuration of a model created by fsdp_t5_create(). The model owns the configuration.
 * Its field tie_word_embeddings has the value with which the model was built. */
FSDP_API const fsdp_t5_config *fsdp_t5_get_config(const fsdp_module *model);

/**
 * Compute the loss of the scope's batch: `factor` times the sum, over the labels, of -log
 * softmax(logits)[label].
 *
 * The forward calls the root module by fsdp_module_call(), so the module's hooks run. A batch
 * without rows or labels gives 0, and its backward gives gradients of zero.
 *
 * @param s      a scope whose options have the batch; the batch must exist until backward has ended
 * @param factor 1 for a sum; 1 / batch->label_tokens for the mean over this batch's labels
 * @return [] float32, owned by s; NULL if s has failed
 */
FSDP_API fsdp_tensor *fsdp_t5_loss(fsdp_scope *s, fsdp_module *model, float factor);

/** Outputs of a forward: packed rows, owned by the scope. Ts and Tt are sizes of the batch (see
 * fsdp_batch), V is the vocabulary, D is d_model. */
typedef struct fsdp_t5_outputs {
    fsdp_tensor *logits;              /**< [Tt, V] */
    fsdp_tensor *last_hidden;         /**< [Tt, D]: output of the last norm, before it is scaled for
                                           the head */
    fsdp_tensor *encoder_last_hidden; /**< [Ts, D] */
} fsdp_t5_outputs;

/**
 * Compute the logits of the scope's batch. The decoder's inputs are the batch's decoder_input_ids.
 * The batch's labels are not used.
 *
 * @return the outputs; every field is NULL if s has failed
 */
FSDP_API fsdp_t5_outputs fsdp_t5_logits(fsdp_scope *s, fsdp_module *model);

#ifdef __cplusplus
}
#endif
