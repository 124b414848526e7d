/**
 * @file
 * BERT (Devlin et al. 2019, arXiv 1810.04805), for sequence classification, masked language
 * modeling and sentence embeddings.
 */
#pragma once
#include <fsdp/autograd.h>
#include <fsdp/base.h>
#include <fsdp/batch.h>
#include <fsdp/hidden_act.h>
#include <fsdp/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * The configuration of a BERT model. Fields are named like the keys of a Hugging Face config.json.
 *
 * The struct describes three kinds of models: BertForSequenceClassification, BertForMaskedLM, and
 * BertModel, which has no head. If `architectures` in the file is BertModel, the model is a
 * BertModel. Otherwise it is a BertForSequenceClassification, even if the file says
 * BertForMaskedLM: most published models are BertForMaskedLM, and most programs fine-tune them as
 * classifiers. To get a BertForMaskedLM, call fsdp_model_config_set_task() with
 * FSDP_TASK_MASKED_LM.
 */
typedef struct fsdp_bert_config {
    int64_t vocab_size, hidden_size, num_hidden_layers, intermediate_size;
    int64_t num_attention_heads;     /**< divides hidden_size */
    int64_t max_position_embeddings; /**< longer sequences are an error */
    int64_t type_vocab_size;         /**< number of segments: token_type_ids are less than this */
    int64_t num_labels; /**< number of classes: num_labels in the file, else the number of entries
                             of id2label in the file, else 2 */
    /** problem_type in config.json. If it is missing there: regression if num_labels is 1,
     * otherwise one class per sequence. */
    fsdp_problem_type problem_type;
    double hidden_dropout_prob, attention_probs_dropout_prob;
    double classifier_dropout; /**< if config.json has null, this field gets the value of
                                  hidden_dropout_prob */
    double layer_norm_eps, initializer_range;
    int64_t pad_token_id; /**< the embedding of this id gets no gradient; -1: there is no such id */
    fsdp_hidden_act hidden_act;
    bool tie_word_embeddings; /**< masked language model: the output embedding is the input
                                   embedding; false is not supported. Default true */
    bool has_lm_head;         /**< true: `architectures` in config.json is BertForMaskedLM or
                                   BertForPreTraining */
    fsdp_dtype dtype;         /**< dtype of the saved weights, from config.json; default float32 */
} fsdp_bert_config;

/**
 * Compute sentence embeddings: one vector for each sequence of the scope's batch. A vector is the
 * mean of the last hidden states of the sequence's tokens (sentence-transformers' mean pooling) and
 * is not normalized.
 *
 * The forward calls the root module by fsdp_module_call(), so the module's hooks run. Pooler and
 * classifier do not run.
 *
 * @param s     a scope whose options have the batch; the batch must exist until backward has ended
 * @param model a BertModel, a BertForSequenceClassification or a BertForMaskedLM
 * @return [n, hidden_size], owned by s; NULL if s has failed
 */
FSDP_API fsdp_tensor *fsdp_bert_embed(fsdp_scope *s, fsdp_module *model);

#ifdef __cplusplus
}
#endif
