/* Inside of BERT: what the modules of its tree keep, for bert_create.c, which builds them, and
 * bert.c, which runs them. */
#pragma once
#include <fsdp/models.h>

#include "src/models/builder.h"

/* BertModel's: the root, or below it. All others point to its configuration. */
typedef struct fsdp_bert_model {
    fsdp_bert_config config;
    fsdp_module *embeddings, *encoder, *pooler;
} fsdp_bert_model;

/* BertForSequenceClassification's. */
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

/* BertSelfOutput, BertOutput; without norm BertIntermediate, BertPooler. */
typedef struct fsdp_bert_dense {
    const fsdp_bert_config *config;
    fsdp_layer dense, norm;
    fsdp_activation activation; /* of what comes in, before the product: BertOutput's is that which
                                   BertIntermediate ends with in transformers, so that the two are
                                   one operation. FSDP_ACTIVATION_NONE: none */
} fsdp_bert_dense;

/* Forwards (bert.c). From BertModel on x [T, D] goes in and comes out, of the pooler [n, D]. A
 * layer, its attention and that one's self-attention may get first tokens [n, D] of x as well, of
 * which the queries are then, and give as many (Note [First tokens]); the outputs of attention and
 * feed-forward get what their result is added to. BertModel gets
 * nothing and gives hidden states and the pooler's output. */
fsdp_forward_fn fsdp_bert_model_forward;
fsdp_forward_fn fsdp_bert_embeddings_forward;
fsdp_forward_fn fsdp_bert_encoder_forward;
fsdp_forward_fn fsdp_bert_layer_forward;
fsdp_forward_fn fsdp_bert_attention_forward;
fsdp_forward_fn fsdp_bert_self_attention_forward;
fsdp_forward_fn fsdp_bert_intermediate_forward;
fsdp_forward_fn fsdp_bert_output_forward; /* also BertSelfOutput's */
fsdp_forward_fn fsdp_bert_pooler_forward;

/* For bert_type.c; see fsdp_model_create(), fsdp_model_loss(), fsdp_model_logits(). */
FSDP_MUST_CHECK fsdp_status fsdp_bert_model_create(const fsdp_bert_config *config,
                                                   fsdp_module **model);
FSDP_MUST_CHECK fsdp_status fsdp_bert_classifier_create(const fsdp_bert_config *config,
                                                        fsdp_module **model);
/* Of a root of either kind; borrowed. */
const fsdp_bert_config *fsdp_bert_get_config(const fsdp_module *model);
fsdp_tensor *fsdp_bert_classifier_loss(fsdp_scope *s, fsdp_module *model, float factor);
fsdp_model_outputs fsdp_bert_classifier_logits(fsdp_scope *s, fsdp_module *model);
/* Fails: there is no head. */
fsdp_tensor *fsdp_bert_model_loss(fsdp_scope *s, fsdp_module *model, float factor);
/* last_hidden alone. */
fsdp_model_outputs fsdp_bert_model_logits(fsdp_scope *s, fsdp_module *model);
