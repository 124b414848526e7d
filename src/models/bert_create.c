/* Builds the module tree of BERT. Names, classes and initial values are as in transformers'
 * modeling_bert: weights are drawn from N(0, initializer_range), biases are 0. */
#include "src/base/assert.h"
#include "src/models/bert.h"
#include "src/models/hidden_act.h"

typedef struct builder {
    fsdp_builder base;
    /* points to the member `config` of the fsdp_bert_model that is being built */
    const fsdp_bert_config *config;
} builder;

static fsdp_layer add_linear(builder *b, fsdp_module *parent, const char *name, int64_t in,
                             int64_t out)
{
    return fsdp_build_linear(&b->base, parent, name, in, out, true, b->config->initializer_range);
}

static fsdp_parameter *add_embedding(builder *b, fsdp_module *parent, const char *name,
                                     int64_t rows, int64_t padding_idx)
{
    const fsdp_init init = {.std = (float)b->config->initializer_range,
                            .has_zero_row = padding_idx >= 0,
                            .zero_row = padding_idx};
    return fsdp_build_embedding(&b->base, parent, name, rows, b->config->hidden_size, init);
}

static fsdp_layer add_norm(builder *b, fsdp_module *parent)
{
    return fsdp_build_layer_norm(&b->base, parent, "LayerNorm", b->config->hidden_size,
                                 b->config->layer_norm_eps);
}

static fsdp_module *add_embeddings(builder *b, fsdp_module *parent)
{
    const fsdp_bert_config *c = b->config;
    fsdp_module *m = fsdp_build_module(&b->base, parent, "embeddings", "BertEmbeddings");
    fsdp_bert_embeddings *e = fsdp_build_impl(&b->base, m, fsdp_bert_embeddings_forward, sizeof *e);
    if (!e)
        return NULL;
    e->config = c;
    e->word = add_embedding(b, m, "word_embeddings", c->vocab_size, c->pad_token_id);
    e->position = add_embedding(b, m, "position_embeddings", c->max_position_embeddings, -1);
    e->token_type = add_embedding(b, m, "token_type_embeddings", c->type_vocab_size, -1);
    e->norm = add_norm(b, m);
    fsdp_build_dropout(&b->base, m, "dropout", c->hidden_dropout_prob);
    return m;
}

static fsdp_module *add_self_attention(builder *b, fsdp_module *parent)
{
    const int64_t width = b->config->hidden_size;
    fsdp_module *m = fsdp_build_module(&b->base, parent, "self", "BertSelfAttention");
    fsdp_bert_self_attention *a =
        fsdp_build_impl(&b->base, m, fsdp_bert_self_attention_forward, sizeof *a);
    if (!a)
        return NULL;
    a->config = b->config;
    a->query = add_linear(b, m, "query", width, width);
    a->key = add_linear(b, m, "key", width, width);
    a->value = add_linear(b, m, "value", width, width);
    fsdp_build_dropout(&b->base, m, "dropout", b->config->attention_probs_dropout_prob);
    return m;
}

/* Add a module that contains a Linear with the name "dense". */
static fsdp_module *add_dense(builder *b, fsdp_module *parent, const char *name,
                              const char *class_name, fsdp_forward_fn *forward, int64_t in,
                              int64_t out)
{
    fsdp_module *m = fsdp_build_module(&b->base, parent, name, class_name);
    fsdp_bert_dense *d = fsdp_build_impl(&b->base, m, forward, sizeof *d);
    if (!d)
        return NULL;
    d->config = b->config;
    d->dense = add_linear(b, m, "dense", in, out);
    return m;
}

/* Add a BertSelfOutput or BertOutput. */
static fsdp_module *add_output(builder *b, fsdp_module *parent, const char *class_name, int64_t in)
{
    fsdp_module *m = add_dense(b, parent, "output", class_name, fsdp_bert_output_forward, in,
                               b->config->hidden_size);
    if (!m)
        return NULL;
    fsdp_bert_dense *d = m->impl;
    d->norm = add_norm(b, m);
    fsdp_build_dropout(&b->base, m, "dropout", b->config->hidden_dropout_prob);
    return m;
}

static fsdp_module *add_attention(builder *b, fsdp_module *parent)
{
    fsdp_module *m = fsdp_build_module(&b->base, parent, "attention", "BertAttention");
    fsdp_bert_attention *a = fsdp_build_impl(&b->base, m, fsdp_bert_attention_forward, sizeof *a);
    if (!a)
        return NULL;
    a->self = add_self_attention(b, m);
    a->output = add_output(b, m, "BertSelfOutput", b->config->hidden_size);
    return m;
}

static void add_layer(builder *b, fsdp_module *list, int64_t index)
{
    const fsdp_bert_config *c = b->config;
    fsdp_module *m = fsdp_build_item(&b->base, list, index, "BertLayer");
    fsdp_bert_layer *layer = fsdp_build_impl(&b->base, m, fsdp_bert_layer_forward, sizeof *layer);
    if (!layer)
        return;
    layer->attention = add_attention(b, m);
    layer->intermediate =
        add_dense(b, m, "intermediate", "BertIntermediate", fsdp_bert_intermediate_forward,
                  c->hidden_size, c->intermediate_size);
    fsdp_build_module(&b->base, layer->intermediate, "intermediate_act_fn",
                      fsdp_hidden_act_class(c->hidden_act));
    layer->output = add_output(b, m, "BertOutput", c->intermediate_size);
    if (layer->output)
        ((fsdp_bert_dense *)layer->output->impl)->activation =
            fsdp_hidden_act_activation(c->hidden_act);
}

static fsdp_module *add_encoder(builder *b, fsdp_module *parent)
{
    fsdp_module *m = fsdp_build_module(&b->base, parent, "encoder", "BertEncoder");
    fsdp_bert_encoder *encoder =
        fsdp_build_impl(&b->base, m, fsdp_bert_encoder_forward, sizeof *encoder);
    if (!encoder)
        return NULL;
    encoder->layers = fsdp_build_module(&b->base, m, "layer", "ModuleList");
    for (int64_t i = 0; i < b->config->num_hidden_layers && b->base.status == FSDP_OK; i++)
        add_layer(b, encoder->layers, i);
    return m;
}

static fsdp_module *add_pooler(builder *b, fsdp_module *parent)
{
    const int64_t width = b->config->hidden_size;
    fsdp_module *m =
        add_dense(b, parent, "pooler", "BertPooler", fsdp_bert_pooler_forward, width, width);
    fsdp_build_module(&b->base, m, "activation", "Tanh");
    return m;
}

/* Build the BertModel `m`: set its struct, and add the modules below it. If `pools` is false, it
 * gets no pooler. */
static void build_base(builder *b, fsdp_module *m, const fsdp_bert_config *config, bool pools)
{
    fsdp_bert_model *model = fsdp_build_impl(&b->base, m, fsdp_bert_model_forward, sizeof *model);
    if (!model)
        return;
    model->config = *config;
    b->config = &model->config;
    model->embeddings = add_embeddings(b, m);
    model->encoder = add_encoder(b, m);
    if (pools)
        model->pooler = add_pooler(b, m);
}

static void build_model(builder *b, fsdp_module *m, const fsdp_bert_config *config)
{
    build_base(b, m, config, true);
}

static void build_classifier(builder *b, fsdp_module *root, const fsdp_bert_config *config)
{
    fsdp_bert_classifier *c = fsdp_build_impl(&b->base, root, NULL, sizeof *c);
    if (!c)
        return;
    c->bert = fsdp_build_module(&b->base, root, "bert", "BertModel");
    build_base(b, c->bert, config, true);
    fsdp_build_dropout(&b->base, root, "dropout", config->classifier_dropout);
    if (b->base.status == FSDP_OK)
        c->classifier = add_linear(b, root, "classifier", config->hidden_size, config->num_labels);
}

static fsdp_module *add_transform(builder *b, fsdp_module *parent)
{
    const int64_t width = b->config->hidden_size;
    fsdp_module *m = add_dense(b, parent, "transform", "BertPredictionHeadTransform",
                               fsdp_bert_transform_forward, width, width);
    fsdp_build_module(&b->base, m, "transform_act_fn",
                      fsdp_hidden_act_class(b->config->hidden_act));
    if (!m)
        return NULL;
    fsdp_bert_dense *d = m->impl;
    d->norm = add_norm(b, m);
    d->activation = fsdp_hidden_act_activation(b->config->hidden_act);
    return m;
}

/* Return the weight of the word embeddings of the BertModel `bert`, or NULL if building it has
 * failed. */
static fsdp_parameter *word_embeddings(const builder *b, const fsdp_module *bert)
{
    if (b->base.status != FSDP_OK)
        return NULL;
    const fsdp_bert_model *model = bert->impl;
    const fsdp_bert_embeddings *e = model->embeddings->impl;
    return e->word;
}

/* Add the head. The weight of its output layer is the weight of the word embeddings. Its bias is a
 * parameter of cls.predictions; cls.predictions.decoder shares this parameter under its own
 * name. */
static void add_head(builder *b, fsdp_module *root, fsdp_bert_masked_lm *m)
{
    const int64_t vocab = b->config->vocab_size;
    m->cls = fsdp_build_module(&b->base, root, "cls", "BertOnlyMLMHead");
    m->predictions = fsdp_build_module(&b->base, m->cls, "predictions", "BertLMPredictionHead");
    m->output.weight = word_embeddings(b, m->bert);
    m->output.bias =
        fsdp_build_parameter(&b->base, m->predictions, "bias", 1, &vocab, (fsdp_init){0});
    m->transform = add_transform(b, m->predictions);
    fsdp_build_tied(&b->base, m->predictions, "decoder", "Linear", m->output.weight);
    if (b->base.status != FSDP_OK)
        return;
    m->decoder = fsdp_module_find(m->predictions, "decoder");
    b->base.status = fsdp_module_share_parameter(m->decoder, "bias", m->output.bias);
    fsdp_module_set_forward(m->cls, fsdp_bert_cls_forward, m, NULL);
    fsdp_module_set_forward(m->predictions, fsdp_bert_predictions_forward, m, NULL);
    fsdp_module_set_forward(m->decoder, fsdp_bert_decoder_forward, m, NULL);
}

static void build_masked_lm(builder *b, fsdp_module *root, const fsdp_bert_config *config)
{
    fsdp_bert_masked_lm *m = fsdp_build_impl(&b->base, root, NULL, sizeof *m);
    if (!m)
        return;
    m->bert = fsdp_build_module(&b->base, root, "bert", "BertModel");
    build_base(b, m->bert, config, false);
    if (b->base.status == FSDP_OK)
        add_head(b, root, m);
}

static fsdp_status check_config(const fsdp_bert_config *c)
{
    const fsdp_dim dims[] = {{"vocab_size", c->vocab_size},
                             {"hidden_size", c->hidden_size},
                             {"num_hidden_layers", c->num_hidden_layers},
                             {"num_attention_heads", c->num_attention_heads},
                             {"intermediate_size", c->intermediate_size},
                             {"max_position_embeddings", c->max_position_embeddings},
                             {"type_vocab_size", c->type_vocab_size},
                             {"num_labels", c->num_labels}};
    FSDP_TRY(fsdp_check_dims("BERT", dims, FSDP_LENGTH(dims)));
    if (c->hidden_size % c->num_attention_heads != 0)
        return fsdp_error(FSDP_ERR_INVALID,
                          "BERT: hidden_size %lld is not a multiple of %lld heads",
                          (long long)c->hidden_size, (long long)c->num_attention_heads);
    if (c->pad_token_id < -1 || c->pad_token_id >= c->vocab_size)
        return fsdp_error(FSDP_ERR_INVALID, "BERT: pad_token_id is %lld, vocab_size %lld",
                          (long long)c->pad_token_id, (long long)c->vocab_size);
    return FSDP_OK;
}

static fsdp_status create(const fsdp_bert_config *config, const char *class_name,
                          void (*build)(builder *b, fsdp_module *root,
                                        const fsdp_bert_config *config),
                          fsdp_module **model)
{
    FSDP_TRY(check_config(config));
    fsdp_module *root;
    FSDP_TRY(fsdp_module_create(class_name, &root));
    builder b = {0};
    build(&b, root, config);
    if (b.base.status != FSDP_OK) {
        fsdp_module_destroy(root);
        return b.base.status;
    }
    *model = root;
    return FSDP_OK;
}

fsdp_status fsdp_bert_model_create(const fsdp_bert_config *config, fsdp_module **model)
{
    return create(config, "BertModel", build_model, model);
}

fsdp_status fsdp_bert_classifier_create(const fsdp_bert_config *config, fsdp_module **model)
{
    return create(config, "BertForSequenceClassification", build_classifier, model);
}

fsdp_status fsdp_bert_masked_lm_create(const fsdp_bert_config *config, fsdp_module **model)
{
    if (!config->tie_word_embeddings)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "BERT: tie_word_embeddings is false, but a masked language model with an "
                          "output embedding of its own is not supported");
    return create(config, "BertForMaskedLM", build_masked_lm, model);
}
