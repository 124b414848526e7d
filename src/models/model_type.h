/* What a kind of model is to programs that serve any of them: one const table for each model_type,
 * listed in registry.c. */
#pragma once
#include <fsdp/models.h>

#include "src/base/json.h"

typedef struct fsdp_decode_cache fsdp_decode_cache;

/* A model a token at a time, for generation: the prompts run once, then each step feeds one id of
 * every sequence. What attention needs of earlier tokens stays in a cache of the model's own.
 *
 *     create(model, &cache);
 *     logits = prompt(s, model, cache);          the scope's batch: prompts, in their order
 *     while (...) {
 *         select(s, cache, rows, n);             those that go on, or beams
 *         logits = step(s, model, cache, ids);   one id a sequence; a scope each
 *     }
 *     destroy(cache);
 *
 * Logits are [sequences, V], of what follows. All are collective where the model is sharded; a rank
 * without sequences takes part all the same. No gradients: scopes have no tape. After a failure the
 * result is NULL and the cache can only be destroyed. */
typedef struct fsdp_decoder {
    FSDP_MUST_CHECK fsdp_status (*create)(const fsdp_module *model, fsdp_decode_cache **cache);
    void (*destroy)(fsdp_decode_cache *cache); /* accepts NULL */
    fsdp_tensor *(*prompt)(fsdp_scope *s, fsdp_module *model, fsdp_decode_cache *cache);
    fsdp_tensor *(*step)(fsdp_scope *s, fsdp_module *model, fsdp_decode_cache *cache,
                         const int32_t *ids);
    /* Go on with sequences rows[0 .. n): any of them, also several times. The sequences of one
     * prompt stay together and prompts keep their order. */
    void (*select)(fsdp_scope *s, fsdp_decode_cache *cache, const int32_t *rows, int32_t n);
} fsdp_decoder;

/* What one training step multiplies: see Note [Model FLOP utilisation] in src/bench/bench.h. */
typedef struct fsdp_model_work {
    double flops;
    int64_t products[3][2]; /* [n_products]: out and in of the linear layers that are most of it */
    int n_products;
} fsdp_model_work;

struct fsdp_model_type {
    const char *name;       /* model_type of config.json */
    const char *root_class; /* of the root, in architectures of config.json; no other model's */

    /* config.json: parse fills all of *config but its type; write sets the model's own keys. */
    FSDP_MUST_CHECK fsdp_status (*parse)(fsdp_json *doc, fsdp_model_config *config);
    void (*write)(fsdp_json_node root, const fsdp_model_config *config, bool has_own_head);
    /* A published shape; FSDP_ERR_NOT_FOUND, without message, if the name is none of its. */
    fsdp_status (*preset)(const char *name, fsdp_model_config *config);
    const char *presets; /* their names, for messages */
    void (*info)(const fsdp_model_config *config, fsdp_model_info *info); /* but for type, class */
    void (*set_dropout)(fsdp_model_config *config, double p);             /* every rate it has */
    /* Make it a classifier of n classes; NULL: there is none of this model_type. */
    void (*set_num_labels)(fsdp_model_config *config, int64_t n);

    FSDP_MUST_CHECK fsdp_status (*create)(const fsdp_model_config *config, fsdp_module **model);
    void (*get_config)(const fsdp_module *model, fsdp_model_config *config);
    fsdp_tensor *(*loss)(fsdp_scope *s, fsdp_module *model, float factor);
    fsdp_model_outputs (*logits)(fsdp_scope *s, fsdp_module *model);
    const fsdp_decoder *decoder; /* NULL: it does not generate */
    /* Of `rows` sequences of `source` and, SEQ2SEQ, `target` tokens. */
    fsdp_model_work (*work)(const fsdp_model_config *config, int64_t rows, int64_t source,
                            int64_t target);
    const char *const *block_classes; /* see fsdp_model_info */
    /* Numbers [n] that follow from the configuration alone, by the name of PyTorch's buffer,
     * borrowed; NULL for other names. The slot is NULL if the model has none. */
    const float *(*buffer)(const fsdp_module *model, const char *name, int64_t *n);

    /* How saved weights are named. Whether the head is tied is decided by them (Note [Tied heads]
     * in registry.c). */
    const char *base_prefix; /* transformers' base_model_prefix: "transformer" */
    /* Paths of modules that are drawn where the weights lack them: "classifier"; NULL: none. */
    const char *const *fresh_modules;
    const char *head;              /* "lm_head.weight"; NULL: it has none */
    const char *const *embeddings; /* names of what the head may be tied to; NULL-terminated */
    bool tied_by_weights;          /* config.json's tie_word_embeddings says nothing about it */
    void (*set_tied)(fsdp_model_config *config, bool tied); /* NULL without head */
    /* A further name under which the tied head is to be saved; NULL, or returns it: none. */
    const char *(*tied_head_to_save)(const fsdp_model_config *config);
};

/* NULL-terminated. */
extern const fsdp_model_type *const fsdp_model_types[];

/* The type whose root has this class; NULL if there is none. */
const fsdp_model_type *fsdp_model_type_of(const fsdp_module *model);
/* fsdp_model_config_read() for a document. */
FSDP_MUST_CHECK fsdp_status fsdp_model_config_parse(fsdp_json *doc, fsdp_model_config *config);

extern const fsdp_model_type fsdp_t5_type, fsdp_mt5_type;
extern const fsdp_model_type fsdp_llama_type, fsdp_mistral_type, fsdp_qwen2_type;
extern const fsdp_model_type fsdp_gpt2_type;
extern const fsdp_model_type fsdp_bert_classifier_type, fsdp_bert_model_type;
