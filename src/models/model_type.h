/* The interface through which programs work with a model of any type. Each type has a const table
 * of functions and names (fsdp_model_type). registry.c lists the tables.
 *
 * This folder has more than 25 source files, because each family of models has four or five files
 * of its own: the configuration, the tree of modules, the forwards and the table. All families
 * share the other files. */
#pragma once
#include <fsdp/models.h>

#include "src/base/json.h"

typedef struct fsdp_decode_cache fsdp_decode_cache;

/* Functions by which a model generates one token at a time. The first call processes the whole
 * prompts. After it, each step adds one id to every sequence. A cache keeps the keys and values of
 * earlier tokens, which attention needs.
 *
 *     create(model, &cache);
 *     logits = prompt(s, model, cache);          the scope's batch has the prompts
 *     while (...) {
 *         select(s, cache, rows, n);             rows: indices of the sequences that continue
 *         logits = step(s, model, cache, ids);   one id per sequence; one scope per step
 *     }
 *     destroy(cache);
 *
 * Logits are [sequences, V], for the next token of each sequence. In beam search, each beam is a
 * sequence. If the model is sharded, all calls are collective: even a rank without sequences must
 * make them. The scopes have no tape, so there are no gradients. After a failure, the result is
 * NULL and the cache must not be used; the caller can only destroy it. */
typedef struct fsdp_decoder {
    FSDP_MUST_CHECK fsdp_status (*create)(const fsdp_module *model, fsdp_decode_cache **cache);
    void (*destroy)(fsdp_decode_cache *cache); /* accepts NULL */
    fsdp_tensor *(*prompt)(fsdp_scope *s, fsdp_module *model, fsdp_decode_cache *cache);
    fsdp_tensor *(*step)(fsdp_scope *s, fsdp_module *model, fsdp_decode_cache *cache,
                         const int32_t *ids);
    /* Replace the current sequences by n new ones: new sequence i is a copy of old sequence
     * rows[i]. An old sequence may be left out, or copied several times. The new sequences of one
     * prompt must be adjacent, and the prompts must be in their old order. */
    void (*select)(fsdp_scope *s, fsdp_decode_cache *cache, const int32_t *rows, int32_t n);
} fsdp_decoder;

/* The work of the matrix products of one training step: see Note [Model FLOP utilization] in
 * src/bench/bench.h. */
typedef struct fsdp_model_work {
    double flops;
    int64_t products[3][2]; /* [n_products]: {out, in} of the largest linear layers */
    int n_products;
} fsdp_model_work;

struct fsdp_model_type {
    const char *name; /* model_type of config.json */
    /* Class of the root, as in `architectures` of config.json. No two model types have the same
     * root class. */
    const char *root_class;

    /* Read a config.json and set all members of *config except `type`. */
    FSDP_MUST_CHECK fsdp_status (*parse)(fsdp_json *doc, fsdp_model_config *config);
    /* Set the keys of this model in a config.json. has_own_head is true if the saved weights
     * contain a head that is separate from the embedding. */
    void (*write)(fsdp_json_node root, const fsdp_model_config *config, bool has_own_head);
    /* Get the configuration of the preset `name`. Returns FSDP_ERR_NOT_FOUND, without a message, if
     * there is no such preset. */
    fsdp_status (*preset)(const char *name, fsdp_model_config *config);
    const char *presets; /* names of the presets, for error messages */
    /* Set all members of *info except model_type, class_name and block_classes. */
    void (*info)(const fsdp_model_config *config, fsdp_model_info *info);
    void (*set_dropout)(fsdp_model_config *config, double p); /* sets all dropout rates */
    /* Change the configuration to that of a classifier of n classes. NULL: there is no classifier
     * for this model_type. */
    void (*set_num_labels)(fsdp_model_config *config, int64_t n);
    /* Change the configuration to that of a classifier whose labels are of kind `type`. NULL: there
     * is no classifier for this model_type. */
    void (*set_problem_type)(fsdp_model_config *config, fsdp_problem_type type);
    /* Change the configuration to that of a model with a head for the task `task`. Return false if
     * this model_type has no such head. NULL: this model_type has only one task. */
    bool (*set_task)(fsdp_model_config *config, fsdp_task task);
    /* True: only set_task() chooses this type, and never the root class in `architectures` of a
     * config.json. */
    bool by_task;

    FSDP_MUST_CHECK fsdp_status (*create)(const fsdp_model_config *config, fsdp_module **model);
    void (*get_config)(const fsdp_module *model, fsdp_model_config *config);
    fsdp_tensor *(*loss)(fsdp_scope *s, fsdp_module *model, float factor);
    fsdp_model_outputs (*logits)(fsdp_scope *s, fsdp_module *model);
    const fsdp_decoder *decoder; /* NULL: the model does not generate */
    /* Return the work of a training step with `rows` sequences of `source` tokens. For SEQ2SEQ,
     * `source` and `target` are the lengths of the source and the target of each sequence; for
     * other tasks, `target` is not used. */
    fsdp_model_work (*work)(const fsdp_model_config *config, int64_t rows, int64_t source,
                            int64_t target);
    const char *const *block_classes; /* see fsdp_model_info */
    /* Return the buffer `name` of the PyTorch model, e.g. "inv_freq", and set *n to the number of
     * its elements. Its values depend only on the configuration. The result is borrowed. It is NULL
     * if the name is unknown. The function pointer is NULL if the model has no buffers. */
    const float *(*buffer)(const fsdp_module *model, const char *name, int64_t *n);

    /* The members from base_prefix to tied_head_to_save describe the weights in a file. Note [Tied
     * heads] in registry.c says when the head of a model is tied to an embedding. */
    const char *base_prefix; /* transformers' base_model_prefix, e.g. "transformer" */
    /* Paths of modules that get initial values if the saved weights lack them, e.g. "classifier".
     * NULL: none. */
    const char *const *fresh_modules;
    const char *head;              /* name of the head's weight, "lm_head.weight"; NULL: no head */
    const char *const *embeddings; /* parameters to which the head may be tied; NULL-terminated */
    /* true: only the weights, not config.json, decide whether the head is tied */
    bool tied_by_weights;
    void (*set_tied)(fsdp_model_config *config, bool tied); /* NULL if there is no head */
    /* Return the second name under which a tied head must also be saved, or NULL if it needs no
     * second name. The function pointer may be NULL, with the same meaning. */
    const char *(*tied_head_to_save)(const fsdp_model_config *config);
};

/* All model types; NULL-terminated. */
extern const fsdp_model_type *const fsdp_model_types[];

/* Return the type whose root_class is the class of `model`, or NULL if there is none. */
const fsdp_model_type *fsdp_model_type_of(const fsdp_module *model);
/* Set *config from an open document, as fsdp_model_config_read() does from a file. */
FSDP_MUST_CHECK fsdp_status fsdp_model_config_parse(fsdp_json *doc, fsdp_model_config *config);

extern const fsdp_model_type fsdp_t5_type, fsdp_mt5_type, fsdp_umt5_type;
extern const fsdp_model_type fsdp_llama_type, fsdp_mistral_type, fsdp_qwen2_type, fsdp_qwen3_type;
extern const fsdp_model_type fsdp_gpt2_type;
extern const fsdp_model_type fsdp_bert_classifier_type, fsdp_bert_model_type,
    fsdp_bert_masked_lm_type;
