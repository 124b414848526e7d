/* Internals of BERT: the structs of its modules, for bert_create.c, which builds them, and bert.c,
 * which runs them. */
#pragma once
#include <fsdp/models.h>

#include "src/models/builder.h"

/* The impl of BertModel, which is the root or a child of the root. All other modules point to its
 * configuration. */
typedef struct fsdp_bert_model {
    fsdp_bert_config config;
    fsdp_module *embeddings, *encoder, *pooler;
} fsdp_bert_model;

/* The impl of BertForSequenceClassification. */
typedef struct fsdp_bert_classifier {
    fsdp_module *bert;
    fsdp_layer classifier;
} fsdp_bert_classifier;

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

/* The impl of BertSelfOutput, BertOutput, BertIntermediate and BertPooler. The last two have no
 * norm. */
typedef struct fsdp_bert_dense {
    const fsdp_bert_config *config;
    fsdp_layer dense, norm;
    /* The activation that is applied to the input before the product, or FSDP_ACTIVATION_NONE. In
     * transformers, BertIntermediate ends with an activation. Here BertOutput applies it, so that
     * the activation and the product are one operation. */
    fsdp_activation activation;
} fsdp_bert_dense;

/* Forwards (bert.c). BertModel and BertEmbeddings take no arguments. BertModel returns hidden
 * states [T, D] and the pooler's output [n, D]. The other modules take x, with a row for each
 * token, and return a tensor with as many rows, except the pooler, which returns [n, D]. A layer,
 * its attention and its self-attention may also take the first tokens [n, D] of x. They then
 * compute queries and results only for first tokens (Note [First tokens] in bert.c). The outputs of
 * attention and feed-forward also take the tensor to which their result is added. */
fsdp_forward_fn fsdp_bert_model_forward;
fsdp_forward_fn fsdp_bert_embeddings_forward;
fsdp_forward_fn fsdp_bert_encoder_forward;
fsdp_forward_fn fsdp_bert_layer_forward;
fsdp_forward_fn fsdp_bert_attention_forward;
fsdp_forward_fn fsdp_bert_self_attention_forward;
fsdp_forward_fn fsdp_bert_intermediate_forward;
fsdp_forward_fn fsdp_bert_output_forward; /* also for BertSelfOutput */
fsdp_forward_fn fsdp_bert_pooler_forward;

/* For bert_type.c; see fsdp_model_create(), fsdp_model_loss(), fsdp_model_logits(). */
FSDP_MUST_CHECK fsdp_status fsdp_bert_model_create(const fsdp_bert_config *config,
                                                   fsdp_module **model);
FSDP_MUST_CHECK fsdp_status fsdp_bert_classifier_create(const fsdp_bert_config *config,
                                                        fsdp_module **model);
/* Accepts a BertModel or a BertForSequenceClassification. The result is borrowed. */
const fsdp_bert_config *fsdp_bert_get_config(const fsdp_module *model);
fsdp_tensor *fsdp_bert_classifier_loss(fsdp_scope *s, fsdp_module *model, float factor);
fsdp_model_outputs fsdp_bert_classifier_logits(fsdp_scope *s, fsdp_module *model);
/* Always fails, because there is no head. */
fsdp_tensor *fsdp_bert_model_loss(fsdp_scope *s, fsdp_module *model, float factor);
/* Returns last_hidden only. */
fsdp_model_outputs fsdp_bert_model_logits(fsdp_scope *s, fsdp_module *model);
