/* T5 (Raffel et al. 2020, arXiv 1910.10683): encoder and decoder over packed sequences.
 *
 * This file contains no code for sharding, gathering or recording on the tape: the hooks of module
 * calls do all this. The forwards read the batch from the scope. Attention scores are not scaled by
 * 1 / sqrt(K). Positions affect the scores only through a bias, which depends on the distance
 * between query and key. The first block of a stack computes the bias, and all blocks of the stack
 * add it to their scores; in umT5, each block computes a bias of its own. An RMS norm comes before
 * each layer. The output of each layer is added to the residual stream. In float16, infinite sums
 * are clamped to finite values. An intermediate tensor is dropped as soon as its last reader has
 * run. The tape keeps the tensors that backward needs.
 *
 * Legend: Ts source tokens, Tt target tokens, D d_model, H heads, K d_kv, F d_ff, V vocabulary. */
#include <math.h>

#include "src/models/hidden_act.h"
#include "src/models/layers.h"
#include "src/models/t5.h"

#include "src/autograd/activated_linear.h"
#include "src/autograd/activation.h"

/* --- functions that decoding (t5_decode.c) also uses --- */

fsdp_tensor *fsdp_t5_norm(fsdp_scope *s, const fsdp_t5 *t5, fsdp_tensor *x,
                          const fsdp_parameter *weight)
{
    return fsdp_rms_norm(s, x, fsdp_read(s, weight), (float)t5->config.layer_norm_epsilon);
}

fsdp_tensor *fsdp_t5_dropout(fsdp_scope *s, const fsdp_t5 *t5, fsdp_tensor *x)
{
    fsdp_tensor *y = fsdp_dropout(s, x, (float)t5->config.dropout_rate);
    if (y != x)
        fsdp_drop(s, x);
    return y;
}

fsdp_tensor *fsdp_t5_residual(fsdp_scope *s, const fsdp_t5 *t5, fsdp_tensor *x, fsdp_tensor *y)
{
    fsdp_tensor *sum = fsdp_add_dropout_(s, x, y, (float)t5->config.dropout_rate);
    fsdp_drop(s, y);
    fsdp_tensor *clamped = fsdp_clamp_infinite_(s, sum);
    if (clamped != sum)
        fsdp_drop(s, sum);
    return clamped;
}

fsdp_tensor *fsdp_t5_position_bias(fsdp_scope *s, const fsdp_t5_layer *layer, int64_t span)
{
    return fsdp_relative_position_bias(s, fsdp_read(s, layer->relative_attention_bias), span,
                                       layer->root->config.relative_attention_max_distance,
                                       !layer->decoder);
}

fsdp_args fsdp_t5_attended(fsdp_scope *s, const fsdp_t5_layer *layer, fsdp_tensor *x,
                           fsdp_tensor *position_bias)
{
    if (layer->root->config.family != FSDP_UMT5)
        return (fsdp_args){.t = {x, position_bias}, .n = 2};
    fsdp_drop(s, position_bias);
    return (fsdp_args){.t = {x}, .n = 1};
}

/* --- layers --- */

/* Compute attention and project its result with `o`. The queries are computed from x, the keys and
 * values from kv. x and kv are not dropped. */
static fsdp_tensor *attend(fsdp_scope *s, const fsdp_t5_layer *layer, fsdp_tensor *x,
                           fsdp_tensor *kv, fsdp_tensor *position_bias,
                           const fsdp_attention_options *options)
{
    const fsdp_layer layers[] = {layer->q, layer->k, layer->v};
    fsdp_tensor *qkv[3];
    if (x == kv) {
        fsdp_apply_joined(s, x, layers, 3, qkv);
    } else {
        fsdp_apply_joined(s, x, layers, 1, qkv);
        fsdp_apply_joined(s, kv, layers + 1, 2, qkv + 1);
    }
    fsdp_tensor *mixed = fsdp_attention(s, qkv[0], qkv[1], qkv[2], position_bias, options);
    for (int i = 0; i < 3; i++)
        fsdp_drop(s, qkv[i]);
    fsdp_tensor *y = fsdp_apply_linear(s, mixed, &layer->o);
    fsdp_drop(s, mixed);
    return y;
}

static fsdp_attention_options attention_options(const fsdp_t5 *t5, const fsdp_batch *batch)
{
    return (fsdp_attention_options){.heads = t5->config.num_heads,
                                    .n_sequences = batch->rows,
                                    .scale = 1.0f,
                                    .dropout_p = (float)t5->config.dropout_rate};
}

void fsdp_t5_self_attention_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in,
                                    fsdp_args *out)
{
    const fsdp_t5_layer *layer = self->impl;
    const fsdp_batch *batch = fsdp_scope_get_options(s)->batch;
    fsdp_tensor *x = in->t[0], *position_bias = in->t[1];
    int32_t longest = layer->decoder ? batch->max_target_len : batch->max_source_len;
    if (!position_bias)
        position_bias = fsdp_t5_position_bias(s, layer, longest > 1 ? longest : 1);
    fsdp_attention_options options = attention_options(layer->root, batch);
    options.q_offsets = layer->decoder ? batch->target_offsets : batch->source_offsets;
    options.causal = layer->decoder;
    fsdp_tensor *normed = fsdp_t5_norm(s, layer->root, x, layer->layer_norm);
    fsdp_tensor *y = attend(s, layer, normed, normed, position_bias, &options);
    fsdp_drop(s, normed);
    *out = fsdp_t5_attended(s, layer, fsdp_t5_residual(s, layer->root, x, y), position_bias);
}

void fsdp_t5_cross_attention_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in,
                                     fsdp_args *out)
{
    const fsdp_t5_layer *layer = self->impl;
    const fsdp_batch *batch = fsdp_scope_get_options(s)->batch;
    fsdp_tensor *x = in->t[0], *encoded = in->t[1];
    fsdp_attention_options options = attention_options(layer->root, batch);
    options.q_offsets = batch->target_offsets;
    options.kv_offsets = batch->source_offsets;
    fsdp_tensor *normed = fsdp_t5_norm(s, layer->root, x, layer->layer_norm);
    fsdp_tensor *y = attend(s, layer, normed, encoded, NULL, &options);
    fsdp_drop(s, normed);
    *out = (fsdp_args){.t = {fsdp_t5_residual(s, layer->root, x, y)}, .n = 1};
}

static bool drops_hidden(const fsdp_scope *s, const fsdp_t5_layer *layer)
{
    return layer->root->config.dropout_rate > 0.0 && fsdp_scope_get_options(s)->training;
}

/* Compute the feed-forward of T5 v1.1: wo (a(wi_0 x) * (wi_1 x)). If dropout is active, a(wi_0 x) *
 * (wi_1 x) is computed as a tensor of its own, because dropout is applied to its elements. */
static fsdp_tensor *gated_feed_forward(fsdp_scope *s, const fsdp_t5_layer *layer, fsdp_tensor *x)
{
    const fsdp_activation a = fsdp_hidden_act_activation(layer->root->config.dense_act_fn);
    fsdp_tensor *gate = fsdp_apply_linear(s, x, &layer->wi_0);
    fsdp_tensor *up = fsdp_apply_linear(s, x, &layer->wi_1), *y;
    if (drops_hidden(s, layer)) {
        fsdp_tensor *hidden =
            fsdp_gated_dropout(s, a, gate, up, (float)layer->root->config.dropout_rate);
        y = fsdp_apply_linear(s, hidden, &layer->wo);
        fsdp_drop(s, hidden);
    } else {
        y = fsdp_apply_activated_linear(s, a, gate, up, &layer->wo);
    }
    fsdp_drop(s, gate);
    fsdp_drop(s, up);
    return y;
}

static fsdp_tensor *feed_forward(fsdp_scope *s, const fsdp_t5_layer *layer, fsdp_tensor *x)
{
    const fsdp_activation a = fsdp_hidden_act_activation(layer->root->config.dense_act_fn);
    const float p = (float)layer->root->config.dropout_rate;
    fsdp_tensor *wide = fsdp_apply_linear(s, x, &layer->wi), *y;
    if (a == FSDP_ACTIVATION_RELU && !fsdp_layer_is_applied_by_itself(&layer->wo)) {
        y = fsdp_relu_dropout_linear_(s, wide, p, fsdp_read(s, layer->wo.weight), NULL);
    } else if (drops_hidden(s, layer)) {
        fsdp_tensor *hidden = fsdp_t5_dropout(s, layer->root, fsdp_activate(s, a, wide));
        y = fsdp_apply_linear(s, hidden, &layer->wo);
        fsdp_drop(s, hidden);
    } else {
        y = fsdp_apply_activated_linear(s, a, wide, NULL, &layer->wo);
    }
    fsdp_drop(s, wide);
    return y;
}

void fsdp_t5_ff_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out)
{
    const fsdp_t5_layer *layer = self->impl;
    fsdp_tensor *x = in->t[0];
    fsdp_tensor *normed = fsdp_t5_norm(s, layer->root, x, layer->layer_norm);
    fsdp_tensor *y = layer->root->config.is_gated_act ? gated_feed_forward(s, layer, normed)
                                                      : feed_forward(s, layer, normed);
    fsdp_drop(s, normed);
    *out = (fsdp_args){.t = {fsdp_t5_residual(s, layer->root, x, y)}, .n = 1};
}

/* --- blocks and stacks --- */

void fsdp_t5_block_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out)
{
    const fsdp_t5_block *block = self->impl;
    fsdp_args attended =
        fsdp_module_call(s, block->layers[0], NULL, (fsdp_args){.t = {in->t[0], in->t[1]}, .n = 2});
    fsdp_tensor *x = attended.t[0], *before;
    if (block->decoder) {
        before = x;
        x = fsdp_module_call(s, block->layers[1], NULL, (fsdp_args){.t = {x, in->t[2]}, .n = 2})
                .t[0];
        fsdp_drop(s, before);
    }
    before = x;
    x = fsdp_module_call1(s, block->layers[block->n_layers - 1], x);
    fsdp_drop(s, before);
    *out = (fsdp_args){.t = {x, attended.t[1]}, .n = attended.n};
}

static fsdp_tensor *embed(fsdp_scope *s, const fsdp_module *self)
{
    const fsdp_t5_stack *stack = self->impl;
    const fsdp_batch *batch = fsdp_scope_get_options(s)->batch;
    const int32_t *ids = stack->decoder ? batch->decoder_input_ids : batch->input_ids;
    int32_t tokens = stack->decoder ? batch->target_tokens : batch->source_tokens;
    fsdp_tensor *x = fsdp_embedding(s, ids, tokens, fsdp_read(s, stack->embed_tokens), -1);
    return fsdp_t5_dropout(s, stack->root, x);
}

/* Run an encoder or a decoder. The argument of a decoder is the encoder's output; an encoder has no
 * arguments. The result [T, D] is the output of the final norm. */
void fsdp_t5_stack_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out)
{
    const fsdp_t5_stack *stack = self->impl;
    const bool embeds = fsdp_first_layer_embeds(stack->blocks, NULL);
    fsdp_tensor *x = embeds ? NULL : embed(s, self);
    fsdp_tensor *position_bias = NULL;
    for (int i = 0; i < fsdp_module_n_children(stack->blocks); i++) {
        fsdp_args call = {.t = {x, position_bias, in->t[0]}, .n = 3};
        fsdp_module *block = fsdp_module_child(stack->blocks, i);
        fsdp_args result = x ? fsdp_module_call(s, block, NULL, call)
                             : fsdp_module_call_embedding(s, block, self, embed, call);
        fsdp_drop(s, x);
        x = result.t[0];
        position_bias = result.t[1];
    }
    fsdp_tensor *normed = fsdp_t5_norm(s, stack->root, x, stack->final_layer_norm);
    fsdp_drop(s, x);
    *out = (fsdp_args){.t = {fsdp_t5_dropout(s, stack->root, normed)}, .n = 1};
}

/* --- the root --- */

static fsdp_tensor *scaled_for_head(fsdp_scope *s, const fsdp_t5 *t5, fsdp_tensor *hidden)
{
    if (!t5->config.scale_decoder_outputs)
        return hidden;
    return fsdp_scale(s, hidden, (float)(1.0 / sqrt((double)t5->config.d_model)));
}

void fsdp_t5_head_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out)
{
    const fsdp_t5 *t5 = self->impl;
    *out = (fsdp_args){.t = {fsdp_linear(s, in->t[0], fsdp_read(s, t5->head), NULL)}, .n = 1};
}

static void head_loss_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out)
{
    const fsdp_t5 *t5 = self->impl;
    const int32_t *labels = fsdp_scope_get_options(s)->batch->labels;
    fsdp_tensor *loss = fsdp_linear_cross_entropy_(s, in->t[0], fsdp_read(s, t5->head), labels,
                                                   s->run->loss_factor);
    *out = (fsdp_args){.t = {loss}, .n = 1};
}

fsdp_tensor *fsdp_t5_head(fsdp_scope *s, const fsdp_t5 *t5, fsdp_tensor *hidden)
{
    fsdp_tensor *scaled = scaled_for_head(s, t5, hidden);
    fsdp_tensor *logits = fsdp_module_call1(s, t5->lm_head, scaled);
    if (scaled != hidden)
        fsdp_drop(s, scaled);
    return logits;
}

static fsdp_args run_stacks(fsdp_scope *s, const fsdp_t5 *t5)
{
    fsdp_args none = {.n = 0};
    fsdp_args encoded = fsdp_module_call(s, t5->encoder, NULL, none);
    fsdp_args decoded = fsdp_module_call(s, t5->decoder, NULL, encoded);
    return (fsdp_args){.t = {encoded.t[0], decoded.t[0]}, .n = 2};
}

static void loss_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out)
{
    (void)in;
    const fsdp_t5 *t5 = self->impl;
    fsdp_args hidden = run_stacks(s, t5);
    fsdp_drop(s, hidden.t[0]);
    fsdp_tensor *x = scaled_for_head(s, t5, hidden.t[1]);
    *out = fsdp_module_call(s, t5->lm_head, head_loss_forward, (fsdp_args){.t = {x}, .n = 1});
}

static void logits_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out)
{
    (void)in;
    const fsdp_t5 *t5 = self->impl;
    fsdp_args hidden = run_stacks(s, t5);
    fsdp_tensor *logits = fsdp_t5_head(s, t5, hidden.t[1]);
    *out = (fsdp_args){.t = {logits, hidden.t[1], hidden.t[0]}, .n = 3};
}

static bool has_batch(fsdp_scope *s)
{
    if (fsdp_scope_ok(s) && !fsdp_scope_get_options(s)->batch)
        fsdp_scope_error(s, "T5", "the scope's options name no batch");
    return fsdp_scope_ok(s);
}

fsdp_tensor *fsdp_t5_loss(fsdp_scope *s, fsdp_module *model, float factor)
{
    if (!has_batch(s))
        return NULL;
    s->run->loss_factor = factor;
    return fsdp_module_call(s, model, loss_forward, (fsdp_args){.n = 0}).t[0];
}

fsdp_t5_outputs fsdp_t5_logits(fsdp_scope *s, fsdp_module *model)
{
    if (!has_batch(s))
        return (fsdp_t5_outputs){0};
    fsdp_args out = fsdp_module_call(s, model, logits_forward, (fsdp_args){.n = 0});
    return (fsdp_t5_outputs){
        .logits = out.t[0], .last_hidden = out.t[1], .encoder_last_hidden = out.t[2]};
}
