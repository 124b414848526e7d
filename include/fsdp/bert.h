/**
 * @file
 * BERT (Devlin et al. 2019, arXiv 1810.04805): sequence classification and sentence embeddings.
 */
#pragma once
#include <fsdp/autograd.h>
#include <fsdp/base.h>
#include <fsdp/hidden_act.h>
#include <fsdp/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * The shape of a BERT, as in a Hugging Face config.json.
 *
 * Two kinds of models have it: BertForSequenceClassification, and BertModel, which has no
 * classifier; a file's `architectures` says which (the first, if it names another).
 */
typedef struct fsdp_bert_config {
    int64_t vocab_size, hidden_size, num_hidden_layers, intermediate_size;
    int64_t num_attention_heads;     /**< divides hidden_size */
    int64_t max_position_embeddings; /**< longer sequences are refused */
    int64_t type_vocab_size;         /**< segments */
    int64_t num_labels;              /**< or the entries of id2label; 2 if both are absent */
    double hidden_dropout_prob, attention_probs_dropout_prob;
    double classifier_dropout; /**< hidden_dropout_prob if null */
    double layer_norm_eps, initializer_range;
    int64_t pad_token_id; /**< its embedding gets no gradient; -1: none */
    fsdp_hidden_act hidden_act;
    fsdp_dtype dtype; /**< in which the weights were saved, says the file; default float32 */
} fsdp_bert_config;

/**
 * One vector for each sequence of the scope's batch: the mean of its tokens' last hidden states,
 * as sentence-transformers' mean pooling. It is not normalised.
 *
 * The forward runs as a call of the root module, so hooks run; pooler and classifier do not.
 *
 * @param s     its options name the batch, which must live until the backward has ended
 * @param model a BertModel or a BertForSequenceClassification
 * @return [n, hidden_size], owned by s; NULL if s has failed
 */
FSDP_API fsdp_tensor *fsdp_bert_embed(fsdp_scope *s, fsdp_module *model);

#ifdef __cplusplus
}
#endif
