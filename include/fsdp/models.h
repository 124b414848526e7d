/**
 * @file
 * Models. A model is a module tree, whose modules have Hugging Face's names, class names and
 * forwards.
 *
 * A model is single-device code and does not know about ranks. Build the tree, then give it memory
 * (fsdp_fully_shard() or fsdp_module_to_empty()) and values (fsdp_module_init() or
 * fsdp_module_load()).
 *
 *     fsdp_model_config config;
 *     FSDP_TRY(fsdp_model_config_read("Llama-3.2-1B", &config));
 *     FSDP_TRY(fsdp_model_create(&config, &model));
 *     ...
 *     fsdp_tensor *loss = fsdp_model_loss(scope, model, 1.0f / (float)batch->label_tokens);
 *
 * The functions of this header work for any model, like AutoConfig and AutoModel. Each model also
 * has a header of its own.
 */
#pragma once
#include <fsdp/autograd.h>
#include <fsdp/base.h>
#include <fsdp/batch.h>
#include <fsdp/bert.h>
#include <fsdp/gpt2.h>
#include <fsdp/llama.h>
#include <fsdp/nn.h>
#include <fsdp/t5.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A kind of model, such as T5. There is one for each model_type of config.json. */
typedef struct fsdp_model_type fsdp_model_type;

/** The configuration of any model. May be copied. */
typedef struct fsdp_model_config {
    const fsdp_model_type *type; /**< selects the member of the union */
    union {
        fsdp_t5_config t5;
        fsdp_llama_config llama;
        fsdp_gpt2_config gpt2;
        fsdp_bert_config bert;
    };
} fsdp_model_config;

/** Properties of a model, for programs that support every kind of model. */
typedef struct fsdp_model_info {
    const char *model_type; /**< "llama"; static */
    const char *class_name; /**< class of the root: "LlamaForCausalLM"; static */
    /** transformers' _no_split_modules: classes whose modules become units of their own,
     * NULL-terminated. */
    const char *const *block_classes;
    fsdp_batch_format format; /**< form of the model's batches */
    int64_t vocab_size;
    int64_t max_positions;                            /**< longest sequence; 0: unlimited */
    int64_t type_vocab_size;                          /**< token_type_ids are less than this; 0: the
                                                           model takes none */
    int64_t num_labels;                               /**< number of classes; 0 if the model is not
                                                           a classifier */
    int64_t bos_token_id, eos_token_id, pad_token_id; /**< -1: none */
    bool tie_word_embeddings;
    fsdp_dtype dtype; /**< dtype of the saved weights, from config.json */
} fsdp_model_info;

/**
 * Read `path`, which is a config.json or the directory that contains it. model_type in the file
 * selects the model. Error messages name the file, the key and the value.
 * @return FSDP_ERR_NOT_FOUND if the file or a key is missing; FSDP_ERR_FORMAT if a value is
 *         impossible; FSDP_ERR_UNSUPPORTED if this library does not have the model, or if a key
 *         that it does not support would change the results.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_model_config_read(const char *path,
                                                            fsdp_model_config *config);
/**
 * Get the configuration of a published model by name, e.g. "t5-small", "gpt2", "bert-base-uncased".
 * @return FSDP_ERR_INVALID for an unknown name; the message lists the known names.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_model_config_preset(const char *name,
                                                              fsdp_model_config *config);
/**
 * Write a config.json that transformers 4 and 5 understand in the same way. The file appears
 * complete or not at all.
 *
 * @param has_own_head true: the weights contain an output embedding of their own (lm_head.weight)
 * @param dtype        dtype of the saved weights
 * @param source       path of the original config.json; keys that this function does not set are
 *                     copied from it. NULL: none
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_model_config_write(const fsdp_model_config *config,
                                                             bool has_own_head, fsdp_dtype dtype,
                                                             const char *source, const char *path);
FSDP_API fsdp_model_info fsdp_model_config_info(const fsdp_model_config *config);
/**
 * Change the head of the model for another task. BERT: CLASSIFICATION, with the number of classes
 * of the configuration, or MASKED_LM. No effect if the model is for this task already.
 * @return FSDP_ERR_INVALID if no model of this model_type has a head for the task; the message
 *         names the model, the task for which it has a head, and the requested task
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_model_config_set_task(fsdp_model_config *config,
                                                                fsdp_task task);
/** Set every dropout rate of the configuration to p, in [0, 1). */
FSDP_API void fsdp_model_config_set_dropout(fsdp_model_config *config, double p);

/**
 * Build the module tree of a model, without memory. Names, classes and initialization match
 * those of Hugging Face.
 *
 * @param config copied
 * @param model  out: owned by the caller, destroyed with fsdp_module_destroy()
 * @return FSDP_ERR_INVALID if a value of the configuration is impossible, e.g. a dimension that is
 *         not positive; FSDP_ERR_UNSUPPORTED if this library does not have what a value asks for
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_model_create(const fsdp_model_config *config,
                                                       fsdp_module **model);
/**
 * Get the configuration of a model created by fsdp_model_create().
 * @return FSDP_ERR_INVALID if `model` is not the root of such a model
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_model_get_config(const fsdp_module *model,
                                                           fsdp_model_config *config);

/**
 * Compute the loss of the scope's batch: `factor` times the sum, over the labels, of -log
 * softmax(logits)[label].
 *
 * The forward calls the root module by fsdp_module_call(), so the module's hooks run. A batch
 * without rows or labels gives 0, and its backward gives gradients of zero.
 *
 * @param s      a scope whose options contain the batch. The batch must be for the model's task and
 *               must exist until backward has ended
 * @param factor 1 for a sum; 1 / batch->label_tokens for the mean over this batch's labels
 * @return [] float32, owned by s; NULL if s has failed
 */
FSDP_API fsdp_tensor *fsdp_model_loss(fsdp_scope *s, fsdp_module *model, float factor);

/** Outputs of a forward: packed rows, owned by the scope. Ts, Tt and n are sizes of the batch (see
 * fsdp_batch), V is the size of the vocabulary, D is the width of the model. */
typedef struct fsdp_model_outputs {
    /** SEQ2SEQ: [Tt, V]; CAUSAL_LM, MASKED_LM: [Ts, V]; CLASSIFICATION: [n, classes]. NULL if the
     * model has no head (BertModel). */
    fsdp_tensor *logits;
    fsdp_tensor *last_hidden; /**< output of the last norm: [Tt, D] for SEQ2SEQ, else [Ts, D] */
    fsdp_tensor *encoder_last_hidden; /**< SEQ2SEQ: [Ts, D]; else NULL */
} fsdp_model_outputs;

/** Compute the logits of the scope's batch. The batch's labels are not used. If `s` has failed,
 * every field of the result is NULL.
 */
FSDP_API fsdp_model_outputs fsdp_model_logits(fsdp_scope *s, fsdp_module *model);

#ifdef __cplusplus
}
#endif
