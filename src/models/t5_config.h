/* The shape of a T5: read from a Hugging Face config.json, or one of the published sizes, and
 * written so that transformers 4 and 5 load it alike.
 *
 * v1.0 is feed_forward_proj "relu", its head tied to the embedding and fed with the decoder's
 * output times d_model^-0.5; v1.1 (also FLAN) is "gated-gelu" with a head of its own, unscaled. In
 * the file the last is spelled `tie_word_embeddings: false`, or, saved by transformers 5,
 * `scale_decoder_outputs: false` with `tie_word_embeddings: true`: whether the head of saved
 * weights is tied is then seen only in the weights (no lm_head.weight, or one equal to the
 * embedding). */
#pragma once
#include <fsdp/base.h>

#include "src/base/json.h"

typedef struct fsdp_t5_config {
    int64_t vocab_size, d_model, d_ff;
    int64_t d_kv; /* of one head; num_heads * d_kv need not be d_model */
    int64_t num_layers, num_decoder_layers, num_heads;
    int64_t relative_attention_num_buckets;  /* at least 4 */
    int64_t relative_attention_max_distance; /* more than half the buckets */
    double dropout_rate;                     /* [0, 1) */
    double layer_norm_epsilon;               /* > 0 */
    double initializer_factor;               /* >= 0 */
    bool is_gated_act;                       /* gelu_new(wi_0 x) * (wi_1 x); else relu(wi x) */
    bool scale_decoder_outputs;              /* by d_model^-0.5 before the head */
    bool tie_word_embeddings; /* of a fresh model; weights from a file decide for themselves */
    int64_t pad_token_id, eos_token_id, decoder_start_token_id; /* below vocab_size */
    fsdp_dtype dtype; /* in which the weights were saved, says the file; float32 if it does not */
} fsdp_t5_config;

/* Read `path`, a config.json or the directory that holds it. Errors name file, key and value:
 * FSDP_ERR_NOT_FOUND for a missing file or key, FSDP_ERR_FORMAT for a value that cannot be,
 * FSDP_ERR_UNSUPPORTED for another model or a key that would change the numbers and is not
 * implemented. */
FSDP_MUST_CHECK fsdp_status fsdp_t5_config_read(const char *path, fsdp_t5_config *config);
/* The same for a document. */
FSDP_MUST_CHECK fsdp_status fsdp_t5_config_parse(fsdp_json *doc, fsdp_t5_config *config);

/* A published size: "t5-small", "t5-base", "t5-large", "t5-3b", "t5-11b", "t5-v1_1-small" to
 * "-xxl", and the same as "flan-t5-..."; "google/", "google-t5/" in front are ignored.
 * FSDP_ERR_INVALID lists them. */
FSDP_MUST_CHECK fsdp_status fsdp_t5_config_preset(const char *name, fsdp_t5_config *config);

/* Write a config.json for weights saved in `dtype`, with or without an lm_head.weight of their own.
 * `source` is the config.json it descends from, whose other keys are kept, or NULL. Whole or not
 * at all. An unscaled model whose head is tied should be saved with lm_head.weight all the same:
 * transformers 4 cannot say "tied, but not scaled" otherwise, and 5 ties equal weights. */
FSDP_MUST_CHECK fsdp_status fsdp_t5_config_write(const fsdp_t5_config *config, bool has_lm_head,
                                                 fsdp_dtype dtype, const char *source,
                                                 const char *path);
