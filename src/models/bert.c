/* BERT (Devlin et al. 2019, arXiv 1810.04805): an encoder over packed sequences.
 *
 * This file contains no code for sharding, gathering or recording on the tape: the hooks of module
 * calls do all this. The forwards read the batch from the scope. Every token attends to all tokens
 * of its sequence. In each layer, a residual is added twice, and a norm follows each addition. The
 * class of a sequence is computed from its first token, [CLS].
 *
 * Note [First tokens]. The classifier reads only the last layer's output for the first token of
 * each sequence. The last layer needs the other tokens only for their keys and values. So when a
 * loss is computed, the last layer computes queries, and everything after attention, only for the n
 * first tokens. For all other tokens, the gradients of these values would be zero anyway.
 *
 * Legend: T tokens, n sequences, D hidden_size. */
#include "src/models/bert.h"

#include <string.h>

#include "src/base/alloc.h"
#include "src/models/layers.h"

static const fsdp_batch *batch_of(const fsdp_scope *s)
{
    return fsdp_scope_get_options(s)->batch;
}

static fsdp_args one(fsdp_tensor *x)
{
    return (fsdp_args){.t = {x}, .n = 1};
}

static fsdp_args two(fsdp_tensor *x, fsdp_tensor *y)
{
    return (fsdp_args){.t = {x, y}, .n = 2};
}

/* --- embeddings --- */

/* Return x + y, and drop both x and y. */
static fsdp_tensor *sum(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *y)
{
    fsdp_tensor *z = fsdp_add_(s, x, y);
    fsdp_drop(s, x);
    fsdp_drop(s, y);
    return z;
}

static fsdp_tensor *embed_token_types(fsdp_scope *s, const fsdp_bert_embeddings *e)
{
    const fsdp_batch *batch = batch_of(s);
    int32_t *zeros = NULL;
    if (!batch->token_type_ids) {
        zeros = fsdp_calloc((size_t)batch->source_tokens + 1, sizeof *zeros);
        if (!zeros)
            fsdp_scope_fail(s, FSDP_ERR_NOMEM);
    }
    fsdp_tensor *y = fsdp_embedding(s, zeros ? zeros : batch->token_type_ids, batch->source_tokens,
                                    fsdp_read(s, e->token_type), -1);
    fsdp_free(zeros);
    return y;
}

void fsdp_bert_embeddings_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in,
                                  fsdp_args *out)
{
    (void)in;
    const fsdp_bert_embeddings *e = self->impl;
    const fsdp_batch *batch = batch_of(s);
    const int64_t n = batch->source_tokens;
    fsdp_tensor *x = fsdp_embedding(s, batch->input_ids, n, fsdp_read(s, e->word),
                                    (int32_t)e->config->pad_token_id);
    x = sum(s, x, embed_token_types(s, e));
    x = sum(s, x, fsdp_embedding(s, batch->position_ids, n, fsdp_read(s, e->position), -1));
    fsdp_tensor *y = fsdp_apply_layer_norm(s, x, &e->norm, e->config->layer_norm_eps);
    fsdp_drop(s, x);
    *out = one(fsdp_apply_dropout(s, y, e->config->hidden_dropout_prob));
}

/* --- first tokens --- */

/* Return [n, D]: the rows of x [T, D] for the first token of each sequence. */
static fsdp_tensor *first_tokens(fsdp_scope *s, fsdp_tensor *x)
{
    const fsdp_batch *batch = batch_of(s);
    return fsdp_gather_rows(s, x, batch->source_offsets, batch->rows);
}

/* --- layers --- */

/* Return the array 0, 1, 2, ..., n: the offsets of n sequences that have one query each. The caller
 * frees the array. If there is not enough memory, the scope fails and the result is NULL. */
static int32_t *offsets_of_ones(fsdp_scope *s, int32_t n)
{
    int32_t *offsets = fsdp_calloc((size_t)n + 1, sizeof *offsets);
    if (!offsets)
        fsdp_scope_fail(s, FSDP_ERR_NOMEM);
    for (int32_t i = 0; offsets && i <= n; i++)
        offsets[i] = i;
    return offsets;
}

void fsdp_bert_self_attention_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in,
                                      fsdp_args *out)
{
    const fsdp_bert_self_attention *a = self->impl;
    const fsdp_batch *batch = batch_of(s);
    int32_t *ones = in->n > 1 ? offsets_of_ones(s, batch->rows) : NULL;
    const fsdp_attention_options options = {.heads = a->config->num_attention_heads,
                                            .q_offsets = ones ? ones : batch->source_offsets,
                                            .kv_offsets = batch->source_offsets,
                                            .n_sequences = batch->rows,
                                            .dropout_p =
                                                (float)a->config->attention_probs_dropout_prob};
    fsdp_tensor *x = in->t[0];
    const fsdp_layer layers[] = {a->query, a->key, a->value};
    fsdp_tensor *qkv[3];
    if (in->n == 1) {
        fsdp_apply_joined(s, x, layers, 3, qkv);
    } else {
        fsdp_apply_joined(s, in->t[1], layers, 1, qkv);
        fsdp_apply_joined(s, x, layers + 1, 2, qkv + 1);
    }
    *out = one(fsdp_attention(s, qkv[0], qkv[1], qkv[2], NULL, &options));
    fsdp_free(ones);
}

/* Apply the linear layer and dropout to in->t[0], add the residual in->t[1], and apply the norm. */
void fsdp_bert_output_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out)
{
    const fsdp_bert_dense *d = self->impl;
    fsdp_tensor *y = d->activation == FSDP_ACTIVATION_NONE
                         ? fsdp_apply_linear(s, in->t[0], &d->dense)
                         : fsdp_apply_activated_linear(s, d->activation, in->t[0], NULL, &d->dense);
    fsdp_tensor *x = fsdp_add_dropout_(s, in->t[1], y, (float)d->config->hidden_dropout_prob);
    fsdp_drop(s, y);
    *out = one(fsdp_apply_layer_norm(s, x, &d->norm, d->config->layer_norm_eps));
}

void fsdp_bert_attention_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in,
                                 fsdp_args *out)
{
    const fsdp_bert_attention *a = self->impl;
    fsdp_tensor *mixed = fsdp_module_call(s, a->self, NULL, *in).t[0];
    *out = fsdp_module_call(s, a->output, NULL, two(mixed, in->t[in->n - 1]));
}

void fsdp_bert_intermediate_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in,
                                    fsdp_args *out)
{
    const fsdp_bert_dense *d = self->impl;
    *out = one(fsdp_apply_linear(s, in->t[0], &d->dense));
}

void fsdp_bert_layer_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out)
{
    const fsdp_bert_layer *layer = self->impl;
    fsdp_tensor *attended = fsdp_module_call(s, layer->attention, NULL, *in).t[0];
    fsdp_tensor *wide = fsdp_module_call1(s, layer->intermediate, attended);
    *out = fsdp_module_call(s, layer->output, NULL, two(wide, attended));
    fsdp_drop(s, wide);
    fsdp_drop(s, attended);
}

/* Run a layer on x [T, D]. The result is [n, D]: only the rows of the first tokens of the sequences
 * (Note [First tokens]). */
static void first_tokens_layer_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in,
                                       fsdp_args *out)
{
    fsdp_tensor *first = first_tokens(s, in->t[0]);
    const fsdp_args both = two(in->t[0], first);
    fsdp_bert_layer_forward(s, self, &both, out);
    fsdp_drop(s, first);
}

/* --- the model --- */

static fsdp_tensor *embed(fsdp_scope *s, const fsdp_module *model)
{
    const fsdp_bert_model *m = model->impl;
    return fsdp_module_call(s, m->embeddings, NULL, (fsdp_args){.n = 0}).t[0];
}

/* Return the module of the BertModel whose child is `encoder`. */
static const fsdp_module *model_of(const fsdp_bert_encoder *encoder)
{
    return encoder->layers->parent->parent;
}

/* Run all layers and return the output of the last one. `x` is the input of the first layer. If `x`
 * is NULL, the first layer itself calls the embeddings: see Note [Input of the first layer] in
 * src/nn/module.h. If `last` is not NULL, it replaces the forward of the last layer. */
static fsdp_tensor *run_layers(fsdp_scope *s, const fsdp_bert_encoder *encoder, fsdp_tensor *x,
                               fsdp_forward_fn *last)
{
    const int n = fsdp_module_n_children(encoder->layers);
    for (int i = 0; i < n; i++) {
        fsdp_tensor *before = x;
        fsdp_forward_fn *forward = i + 1 < n ? NULL : last;
        fsdp_module *layer = fsdp_module_child(encoder->layers, i);
        fsdp_args result =
            x ? fsdp_module_call(s, layer, forward, one(x))
              : fsdp_module_call_embedding(s, layer, model_of(encoder), embed, one(x));
        x = result.t[0];
        /* In the first iteration, `before` is the input of the encoder. The caller owns this
         * tensor, so fsdp_drop() does not release it. */
        fsdp_drop(s, before);
    }
    return x;
}

void fsdp_bert_encoder_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in,
                               fsdp_args *out)
{
    *out = one(run_layers(s, self->impl, in->t[0], NULL));
}

static void first_tokens_encoder_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in,
                                         fsdp_args *out)
{
    *out = one(run_layers(s, self->impl, in->t[0], first_tokens_layer_forward));
}

static void pool(fsdp_scope *s, const fsdp_bert_dense *d, fsdp_tensor *first, fsdp_args *out)
{
    *out = one(fsdp_tanh(s, fsdp_apply_linear(s, first, &d->dense)));
}

void fsdp_bert_pooler_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out)
{
    pool(s, self->impl, first_tokens(s, in->t[0]), out);
}

/* Run the pooler on x [n, D], whose rows belong to the first tokens only (Note [First tokens]). */
static void first_tokens_pooler_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in,
                                        fsdp_args *out)
{
    pool(s, self->impl, in->t[0], out);
}

/* Embed the batch and run the encoder. If `forward` is not NULL, it replaces the encoder's own
 * forward. */
static fsdp_tensor *encode(fsdp_scope *s, const fsdp_bert_model *m, fsdp_forward_fn *forward)
{
    const fsdp_bert_encoder *encoder = m->encoder->impl;
    const bool embeds = fsdp_first_layer_embeds(encoder->layers, m->embeddings);
    fsdp_tensor *x = embeds ? NULL : embed(s, m->encoder->parent);
    fsdp_tensor *y = fsdp_module_call(s, m->encoder, forward, one(x)).t[0];
    fsdp_drop(s, x);
    return y;
}

static fsdp_tensor *last_hidden(fsdp_scope *s, const fsdp_bert_model *m)
{
    return encode(s, m, NULL);
}

void fsdp_bert_model_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out)
{
    (void)in;
    const fsdp_bert_model *m = self->impl;
    fsdp_tensor *hidden = last_hidden(s, m);
    *out = two(hidden, fsdp_module_call1(s, m->pooler, hidden));
}

/* Run the BertModel, but return only the pooler's output (Note [First tokens]). */
static void pooled_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out)
{
    (void)in;
    const fsdp_bert_model *m = self->impl;
    fsdp_tensor *first = encode(s, m, first_tokens_encoder_forward);
    *out = fsdp_module_call(s, m->pooler, first_tokens_pooler_forward, one(first));
}

void fsdp_bert_hidden_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out)
{
    (void)in;
    *out = one(last_hidden(s, self->impl));
}

/* --- roots --- */

static bool is_base(const fsdp_module *model)
{
    return strcmp(fsdp_module_class(model), "BertModel") == 0;
}

/* Return true if `model` is the root of a model that has a head. */
static bool has_head(const fsdp_module *model)
{
    return strcmp(fsdp_module_class(model), "BertForSequenceClassification") == 0 ||
           strcmp(fsdp_module_class(model), "BertForMaskedLM") == 0;
}

/* Return the BertModel below `model`, which is the root of a model that has a head. */
static fsdp_module *base_of(const fsdp_module *model)
{
    /* the pointer to the BertModel is the first member of the struct of each root with a head */
    fsdp_module *const *bert = model->impl;
    return *bert;
}

const fsdp_bert_config *fsdp_bert_get_config(const fsdp_module *model)
{
    const fsdp_bert_model *m = is_base(model) ? model->impl : base_of(model)->impl;
    return &m->config;
}

bool fsdp_bert_check_batch(fsdp_scope *s, const fsdp_module *model)
{
    const fsdp_bert_config *c = fsdp_bert_get_config(model);
    const fsdp_batch *batch = batch_of(s);
    if (!fsdp_scope_ok(s))
        return false;
    if (!batch)
        fsdp_scope_error(s, "BERT", "the scope's options name no batch");
    else if (batch->max_source_len > c->max_position_embeddings)
        fsdp_scope_error(s, "BERT", "a sequence of %d tokens, max_position_embeddings is %lld",
                         (int)batch->max_source_len, (long long)c->max_position_embeddings);
    else if (batch->token_type_ids)
        for (int32_t t = 0; t < batch->source_tokens && fsdp_scope_ok(s); t++)
            if (batch->token_type_ids[t] < 0 || batch->token_type_ids[t] >= c->type_vocab_size)
                fsdp_scope_error(s, "BERT", "token_type_ids[%d] is %d, type_vocab_size is %lld",
                                 (int)t, (int)batch->token_type_ids[t],
                                 (long long)c->type_vocab_size);
    return fsdp_scope_ok(s);
}

static fsdp_tensor *in_float32(fsdp_scope *s, fsdp_tensor *x)
{
    return fsdp_cast(s, x, FSDP_DTYPE_F32);
}

/* Compute logits [n, num_labels] from the pooler's output. The logits and their gradients are
 * always float32. A batch has few logits, so casting them costs little. If they were bfloat16, a
 * rounding error in a logit would affect the gradients of all parameters: with two labels, the
 * gradient of a logit would be wrong by up to 2 %. */
static fsdp_tensor *classify(fsdp_scope *s, const fsdp_bert_classifier *c, fsdp_tensor *pooled)
{
    const fsdp_bert_config *config = fsdp_bert_get_config(c->bert);
    fsdp_tensor *x = in_float32(s, fsdp_apply_dropout(s, pooled, config->classifier_dropout));
    fsdp_tensor *weight = in_float32(s, fsdp_read(s, c->classifier.weight));
    fsdp_tensor *bias = in_float32(s, fsdp_read(s, c->classifier.bias));
    return fsdp_linear(s, x, weight, bias);
}

static fsdp_tensor *loss_of_logits(fsdp_scope *s, const fsdp_bert_classifier *c,
                                   fsdp_tensor *logits)
{
    const fsdp_bert_config *config = fsdp_bert_get_config(c->bert);
    const fsdp_batch *batch = batch_of(s);
    const float factor = s->run->loss_factor;
    if (config->problem_type == FSDP_PROBLEM_SINGLE_LABEL)
        return fsdp_cross_entropy(s, logits, batch->labels, factor);
    if (batch->num_targets != config->num_labels) {
        fsdp_scope_error(s, "BERT",
                         "the batch has %d labels of a row that are numbers, num_labels is %lld",
                         (int)batch->num_targets, (long long)config->num_labels);
        return NULL;
    }
    return config->problem_type == FSDP_PROBLEM_REGRESSION
               ? fsdp_mse_loss(s, logits, batch->targets, factor)
               : fsdp_binary_cross_entropy_with_logits(s, logits, batch->targets, factor);
}

static void loss_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out)
{
    (void)in;
    const fsdp_bert_classifier *c = self->impl;
    fsdp_args pooled = fsdp_module_call(s, c->bert, pooled_forward, (fsdp_args){.n = 0});
    fsdp_tensor *logits = classify(s, c, pooled.t[0]);
    *out = one(loss_of_logits(s, c, logits));
}

static void logits_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out)
{
    (void)in;
    const fsdp_bert_classifier *c = self->impl;
    fsdp_args hidden = fsdp_module_call(s, c->bert, NULL, (fsdp_args){.n = 0});
    *out = two(classify(s, c, hidden.t[1]), hidden.t[0]);
}

static bool has_tokens_everywhere(fsdp_scope *s, const fsdp_batch *batch)
{
    for (int32_t i = 0; i < batch->rows; i++)
        if (batch->source_offsets[i] == batch->source_offsets[i + 1]) {
            fsdp_scope_error(s, "BertPooler", "sequence %d has no tokens", (int)i);
            return false;
        }
    return true;
}

/* Do what fsdp_bert_check_batch() does, and also refuse a sequence without tokens, because the
 * pooler reads the first token of each sequence. */
static bool check_classes(fsdp_scope *s, const fsdp_module *model)
{
    return fsdp_bert_check_batch(s, model) && has_tokens_everywhere(s, batch_of(s));
}

fsdp_tensor *fsdp_bert_classifier_loss(fsdp_scope *s, fsdp_module *model, float factor)
{
    if (!check_classes(s, model))
        return NULL;
    s->run->loss_factor = factor;
    return fsdp_module_call(s, model, loss_forward, (fsdp_args){.n = 0}).t[0];
}

fsdp_model_outputs fsdp_bert_classifier_logits(fsdp_scope *s, fsdp_module *model)
{
    if (!check_classes(s, model))
        return (fsdp_model_outputs){0};
    fsdp_args out = fsdp_module_call(s, model, logits_forward, (fsdp_args){.n = 0});
    return (fsdp_model_outputs){.logits = out.t[0], .last_hidden = out.t[1]};
}

fsdp_tensor *fsdp_bert_model_loss(fsdp_scope *s, fsdp_module *model, float factor)
{
    (void)factor;
    fsdp_scope_error(
        s, fsdp_module_class(model),
        "this model has no head, so it has no loss; a BertForSequenceClassification has one");
    return NULL;
}

fsdp_model_outputs fsdp_bert_model_logits(fsdp_scope *s, fsdp_module *model)
{
    if (!check_classes(s, model))
        return (fsdp_model_outputs){0};
    fsdp_args out = fsdp_module_call(s, model, NULL, (fsdp_args){.n = 0});
    return (fsdp_model_outputs){.last_hidden = out.t[0]};
}

static void embed_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out)
{
    (void)in;
    const fsdp_batch *batch = batch_of(s);
    fsdp_tensor *hidden =
        is_base(self)
            ? last_hidden(s, self->impl)
            : fsdp_module_call(s, base_of(self), fsdp_bert_hidden_forward, (fsdp_args){.n = 0})
                  .t[0];
    *out = one(fsdp_segment_mean(s, hidden, batch->source_offsets, batch->rows));
}

fsdp_tensor *fsdp_bert_embed(fsdp_scope *s, fsdp_module *model)
{
    if (!is_base(model) && !has_head(model)) {
        fsdp_scope_error(
            s, "BERT", "a %s is not a BertModel, BertForSequenceClassification or BertForMaskedLM",
            fsdp_module_class(model));
        return NULL;
    }
    if (!fsdp_bert_check_batch(s, model))
        return NULL;
    return fsdp_module_call(s, model, embed_forward, (fsdp_args){.n = 0}).t[0];
}
