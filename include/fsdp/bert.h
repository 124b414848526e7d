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
 * The configuration of a BERT model, as in a Hugging Face config.json.
 *
 * It describes two kinds of models: BertForSequenceClassification, and BertModel, which has no
 * classifier. `architectures` in the file selects one; any other name selects the first.
 */
typedef struct fsdp_bert_config {
    int64_t vocab_size, hidden_size, num_hidden_layers, intermediate_size;
    int64_t num_attention_heads;     /**< divides hidden_size */
    int64_t max_position_embeddings; /**< longer sequences are an error */
    int64_t type_vocab_size;         /**< number of segments */
    int64_t num_labels;              /**< or the number of entries of id2label; 2 if both are
                                          absent */
    double hidden_dropout_prob, attention_probs_dropout_prob;
    double classifier_dropout; /**< null in the file: hidden_dropout_prob */
    double layer_norm_eps, initializer_range;
    int64_t pad_token_id; /**< its embedding gets no gradient; -1: none */
    fsdp_hidden_act hidden_act;
    fsdp_dtype dtype; /**< dtype of the saved weights according to the file; default float32 */
} fsdp_bert_config;

/**
 * Sentence embeddings: one vector for each sequence of the scope's batch, the mean of the last
 * hidden states of its tokens (sentence-transformers' mean pooling). It is not normalised.
 *
 * The forward runs as a call of the root module, so hooks run. Pooler and classifier do not run.
 *
 * @param s     its options must name the batch, which must live until backward has ended
 * @param model a BertModel or a BertForSequenceClassification
 * @return [n, hidden_size], owned by s; NULL if s has failed
 */
FSDP_API fsdp_tensor *fsdp_bert_embed(fsdp_scope *s, fsdp_module *model);

#ifdef __cplusplus
}
#endif
