/* Internals of BERT: the structs and the forwards of its modules. bert_create.c builds the modules,
 * and bert.c runs them. */
#pragma once
#include <fsdp/models.h>

#include "src/models/builder.h"

/* The struct of BertModel. A BertModel is the root or a child of the root. The modules below it
 * point to `config` in this struct. */
typedef struct fsdp_bert_model {
    fsdp_bert_config config;
    fsdp_module *embeddings, *encoder, *pooler; /* pooler: NULL below BertForMaskedLM */
} fsdp_bert_model;

/* The struct of a BertForSequenceClassification, which is a root. */
typedef struct fsdp_bert_classifier {
    fsdp_module *bert; /* must be first: every root that has a BertModel begins with this pointer */
    fsdp_layer classifier;
} fsdp_bert_classifier;

/* The struct that BertForMaskedLM shares with the modules of its head: cls, cls.predictions and
 * cls.predictions.decoder. The parts of the head are called as modules, so each of them can be an
 * FSDP unit. */
typedef struct fsdp_bert_masked_lm {
    fsdp_module *bert; /* must be first, as in every root; this BertModel has no pooler */
    fsdp_module *cls, *predictions, *transform, *decoder;
    /* The output layer of the head. Its weight is shared with the word embeddings. Its bias is a
     * parameter of cls.predictions. */
    fsdp_layer output;
} fsdp_bert_masked_lm;

typedef struct fsdp_bert_embeddings {
    const fsdp_bert_config *config;
    fsdp_parameter *word, *position, *token_type;
    fsdp_layer norm;
} fsdp_bert_embeddings;

typedef struct fsdp_bert_encoder {
    fsdp_module *layers; /* the ModuleList */
} fsdp_bert_encoder;

typedef struct fsdp_bert_layer {
    fsdp_module *attention, *intermediate, *output;
} fsdp_bert_layer;

typedef struct fsdp_bert_attention {
    fsdp_module *self, *output;
} fsdp_bert_attention;

typedef struct fsdp_bert_self_attention {
    const fsdp_bert_config *config;
    fsdp_layer query, key, value;
} fsdp_bert_self_attention;

/* The struct of BertSelfOutput, BertOutput, BertIntermediate, BertPooler and
 * BertPredictionHeadTransform. BertIntermediate and BertPooler have no norm. */
typedef struct fsdp_bert_dense {
    const fsdp_bert_config *config;
    fsdp_layer dense, norm;
    /* BertPredictionHeadTransform applies this activation to the output of `dense`. BertOutput
     * applies it to the input of `dense`. All other classes have FSDP_ACTIVATION_NONE. In
     * transformers, BertIntermediate applies the activation, after its own linear layer. Here
     * BertOutput does, so that the activation and BertOutput's linear layer are one operation. */
    fsdp_activation activation;
} fsdp_bert_dense;

/* Forwards (bert.c). T is the number of tokens, and n is the number of sequences.
 *
 * BertModel and BertEmbeddings take no arguments. All other modules take x, which has T rows.
 * BertSelfOutput and BertOutput also take a second tensor, which they add before the norm. All
 * modules return T rows, with two exceptions. The pooler returns [n, D]. BertModel returns two
 * tensors: the hidden states [T, D] and the pooler's output [n, D].
 *
 * BertLayer, BertAttention and BertSelfAttention may get a second argument [n, D]: the rows of x
 * for the first tokens of the sequences. If such a module gets this argument, it computes queries
 * and results only for the first tokens, and returns n rows (Note [First tokens] in bert.c). */
fsdp_forward_fn fsdp_bert_model_forward;
fsdp_forward_fn fsdp_bert_embeddings_forward;
fsdp_forward_fn fsdp_bert_encoder_forward;
fsdp_forward_fn fsdp_bert_layer_forward;
fsdp_forward_fn fsdp_bert_attention_forward;
fsdp_forward_fn fsdp_bert_self_attention_forward;
fsdp_forward_fn fsdp_bert_intermediate_forward;
fsdp_forward_fn fsdp_bert_output_forward; /* also for BertSelfOutput */
fsdp_forward_fn fsdp_bert_pooler_forward;
fsdp_forward_fn fsdp_bert_hidden_forward; /* BertModel: the hidden states, without the pooler */
/* Forwards of the head of BertForMaskedLM (bert_masked_lm.c). Unless the comment at a forward says
 * otherwise, it computes logits from hidden states. */
fsdp_forward_fn fsdp_bert_cls_forward;
fsdp_forward_fn fsdp_bert_predictions_forward;
fsdp_forward_fn fsdp_bert_transform_forward; /* from hidden states to hidden states */
fsdp_forward_fn fsdp_bert_decoder_forward;

/* Functions for the tables in bert_type.c: see fsdp_model_create(), fsdp_model_loss() and
 * fsdp_model_logits(). */
FSDP_MUST_CHECK fsdp_status fsdp_bert_model_create(const fsdp_bert_config *config,
                                                   fsdp_module **model);
FSDP_MUST_CHECK fsdp_status fsdp_bert_classifier_create(const fsdp_bert_config *config,
                                                        fsdp_module **model);
FSDP_MUST_CHECK fsdp_status fsdp_bert_masked_lm_create(const fsdp_bert_config *config,
                                                       fsdp_module **model);
/* Return the configuration of `model`, the root of any BERT. The result is borrowed. */
const fsdp_bert_config *fsdp_bert_get_config(const fsdp_module *model);
fsdp_tensor *fsdp_bert_classifier_loss(fsdp_scope *s, fsdp_module *model, float factor);
fsdp_model_outputs fsdp_bert_classifier_logits(fsdp_scope *s, fsdp_module *model);
fsdp_tensor *fsdp_bert_masked_lm_loss(fsdp_scope *s, fsdp_module *model, float factor);
fsdp_model_outputs fsdp_bert_masked_lm_logits(fsdp_scope *s, fsdp_module *model);
/* Check the scope's batch. This is called before any module, so that a bad batch does not fail
 * inside a sharded module. Returns false if the scope has failed. */
bool fsdp_bert_check_batch(fsdp_scope *s, const fsdp_module *model);
/* Make the scope fail, because a BertModel has no head and so no loss. */
fsdp_tensor *fsdp_bert_model_loss(fsdp_scope *s, fsdp_module *model, float factor);
/* Compute last_hidden only. The logits in the result are NULL, because a BertModel has no head. */
fsdp_model_outputs fsdp_bert_model_logits(fsdp_scope *s, fsdp_module *model);
