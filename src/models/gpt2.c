/* GPT-2 (Radford et al. 2019): a decoder over packed sequences.
 *
 * This file contains no code for sharding, gathering or recording on the tape: the hooks of module
 * calls do all this. A norm comes before attention, and another one before the feed-forward. The
 * results of attention and feed-forward are added to the residual stream. Positions are learned
 * embeddings. Linear layers are Conv1Ds, whose weights are [in, out]. One Conv1D computes query,
 * key and value. An intermediate tensor is dropped as soon as its last reader has run. The tape
 * keeps the tensors that backward needs.
 *
 * Legend: T tokens, D n_embd. */
#include "src/models/gpt2.h"

#include <math.h>

#include "src/autograd/joined_linear.h"
#include "src/models/hidden_act.h"
#include "src/models/layers.h"

static fsdp_tensor *norm(fsdp_scope *s, const fsdp_gpt2 *gpt2, fsdp_tensor *x,
                         const fsdp_layer *layer)
{
    return fsdp_apply_layer_norm(s, x, layer, gpt2->config.layer_norm_epsilon);
}

/* --- layers --- */

static float attention_scale(const fsdp_gpt2_attention *m)
{
    const fsdp_gpt2_config *c = &m->root->config;
    double scale = c->scale_attn_weights ? 1.0 / sqrt((double)(c->n_embd / c->n_head)) : 1.0;
    return (float)(c->scale_attn_by_inverse_layer_idx ? scale / (double)(m->layer_idx + 1) : scale);
}

static fsdp_tensor *attend(fsdp_scope *s, const fsdp_gpt2_attention *m, fsdp_tensor *x,
                           const fsdp_causal_rows *rows)
{
    const fsdp_gpt2_config *c = &m->root->config;
    const fsdp_attention_options options = {.heads = c->n_head,
                                            .q_offsets = rows->q_offsets,
                                            .scale = attention_scale(m),
                                            .dropout_p = (float)c->attn_pdrop};
    fsdp_tensor *qkv = fsdp_apply_conv1d(s, x, &m->c_attn), *part[3];
    /* Attention can read q, k and v as columns of qkv. But to gather rows or to fill a cache, q, k
     * and v must be contiguous tensors. In these cases, fsdp_chunk() copies them. */
    if (rows->rows || fsdp_causal_input_of(s, &m->root->lm).cache)
        fsdp_chunk(s, qkv, 3, part);
    else
        fsdp_split_columns(s, qkv, 3, part);
    fsdp_drop(s, qkv);
    fsdp_tensor *q = fsdp_causal_rows_of(s, rows, part[0]);
    fsdp_tensor *mixed =
        fsdp_causal_attention(s, &m->root->lm, m->layer_idx, q, part[1], part[2], options);
    fsdp_causal_rows_drop(s, rows, q);
    for (int i = 0; i < 3; i++)
        fsdp_drop(s, part[i]);
    fsdp_tensor *y = fsdp_apply_conv1d(s, mixed, &m->c_proj);
    return fsdp_apply_dropout(s, y, c->resid_pdrop);
}

static void run_attention(fsdp_scope *s, const fsdp_gpt2_attention *m, fsdp_tensor *x, bool read,
                          fsdp_args *out)
{
    fsdp_causal_rows rows = fsdp_causal_rows_find(s, &m->root->lm, read);
    *out = (fsdp_args){.t = {attend(s, m, x, &rows)}, .n = 1};
    fsdp_causal_rows_fini(&rows);
}

void fsdp_gpt2_attention_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in,
                                 fsdp_args *out)
{
    run_attention(s, self->impl, in->t[0], false, out);
}

/* Compute attention for x [T, D]. The result is [n, D], only the n rows that are read (Note [Rows
 * that are read] in causal.h). */
static void attention_of_read_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in,
                                      fsdp_args *out)
{
    run_attention(s, self->impl, in->t[0], true, out);
}

void fsdp_gpt2_mlp_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out)
{
    const fsdp_gpt2_mlp *m = self->impl;
    const fsdp_gpt2_config *c = &m->root->config;
    fsdp_tensor *wide = fsdp_apply_conv1d(s, in->t[0], &m->c_fc);
    fsdp_tensor *y = fsdp_apply_activated_conv1d(
        s, fsdp_hidden_act_activation(c->activation_function), wide, &m->c_proj);
    fsdp_drop(s, wide);
    *out = (fsdp_args){.t = {fsdp_apply_dropout(s, y, c->resid_pdrop)}, .n = 1};
}

/* Return layer(norm(x)). `forward` replaces the layer's own forward, unless it is NULL. */
static fsdp_tensor *normed_layer(fsdp_scope *s, const fsdp_gpt2 *gpt2, fsdp_tensor *x,
                                 const fsdp_layer *ln, fsdp_module *layer, fsdp_forward_fn *forward)
{
    fsdp_tensor *normed = norm(s, gpt2, x, ln);
    fsdp_tensor *y = fsdp_module_call(s, layer, forward, (fsdp_args){.t = {normed}, .n = 1}).t[0];
    fsdp_drop(s, normed);
    return y;
}

/* Return x + y, and drop y. */
static fsdp_tensor *residual(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *y)
{
    fsdp_tensor *sum = fsdp_add_(s, y, x);
    fsdp_drop(s, y);
    return sum;
}

static fsdp_tensor *run_rows(fsdp_scope *s, const fsdp_gpt2_block *m, fsdp_tensor *x,
                             const fsdp_causal_rows *rows)
{
    fsdp_tensor *attended = normed_layer(s, m->root, x, &m->ln_1, m->attn,
                                         rows->rows ? attention_of_read_forward : NULL);
    fsdp_tensor *stream = fsdp_causal_rows_of(s, rows, x);
    fsdp_tensor *h = residual(s, stream, attended);
    fsdp_causal_rows_drop(s, rows, stream);
    return residual(s, h, normed_layer(s, m->root, h, &m->ln_2, m->mlp, NULL));
}

static void run_block(fsdp_scope *s, const fsdp_gpt2_block *m, fsdp_tensor *x, bool read,
                      fsdp_args *out)
{
    fsdp_causal_rows rows = fsdp_causal_rows_find(s, &m->root->lm, read);
    *out = (fsdp_args){.t = {run_rows(s, m, x, &rows)}, .n = 1};
    fsdp_causal_rows_fini(&rows);
}

void fsdp_gpt2_block_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out)
{
    run_block(s, self->impl, in->t[0], false, out);
}

static void block_of_read_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in,
                                  fsdp_args *out)
{
    run_block(s, self->impl, in->t[0], true, out);
}

/* --- the body --- */

static bool check_input(fsdp_scope *s, const fsdp_gpt2_body *m, const fsdp_causal_input *input)
{
    const fsdp_gpt2_config *c = &m->root->config;
    const fsdp_batch *batch = fsdp_scope_get_options(s)->batch;
    if (input->span > c->n_positions)
        fsdp_scope_error(s, "GPT-2", "a sequence of %d tokens, n_positions is %lld",
                         (int)input->span, (long long)c->n_positions);
    else if (batch && batch->token_type_ids) /* transformers would add the wte embeddings of these
                                              * ids to the input */
        fsdp_scope_error(s, "GPT-2", "a batch with token_type_ids, which are not supported");
    return fsdp_scope_ok(s);
}

static fsdp_tensor *embed(fsdp_scope *s, const fsdp_module *self)
{
    const fsdp_gpt2_body *m = self->impl;
    const fsdp_causal_input input = fsdp_causal_input_of(s, &m->root->lm);
    const fsdp_gpt2_config *c = &m->root->config;
    if (!check_input(s, m, &input))
        return NULL;
    fsdp_tensor *token = fsdp_module_call(s, m->wte, NULL, (fsdp_args){.n = 0}).t[0];
    fsdp_tensor *position =
        fsdp_embedding(s, input.position_ids, input.tokens, fsdp_read(s, m->wpe), -1);
    fsdp_tensor *x = fsdp_add_(s, token, position);
    fsdp_drop(s, token);
    fsdp_drop(s, position);
    return fsdp_apply_dropout(s, x, c->embd_pdrop);
}

/* Run the body. `last` replaces the forward of the last block, unless it is NULL. */
static fsdp_tensor *run_body(fsdp_scope *s, const fsdp_module *self, fsdp_forward_fn *last)
{
    const fsdp_gpt2_body *m = self->impl;
    const bool embeds = fsdp_first_layer_embeds(m->h, m->wte);
    fsdp_tensor *x = embeds ? NULL : embed(s, self);
    const int n = fsdp_module_n_children(m->h);
    for (int i = 0; i < n; i++) {
        fsdp_tensor *before = x;
        fsdp_forward_fn *forward = i + 1 < n ? NULL : last;
        fsdp_module *block = fsdp_module_child(m->h, i);
        const fsdp_args call = {.t = {x}, .n = 1};
        fsdp_args result = x ? fsdp_module_call(s, block, forward, call)
                             : fsdp_module_call_embedding(s, block, self, embed, call);
        x = result.t[0];
        fsdp_drop(s, before);
    }
    return norm(s, m->root, x, &m->ln_f);
}

void fsdp_gpt2_body_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out)
{
    (void)in;
    *out = (fsdp_args){.t = {run_body(s, self, NULL)}, .n = 1};
}

void fsdp_gpt2_body_of_read_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in,
                                    fsdp_args *out)
{
    (void)in;
    *out = (fsdp_args){.t = {run_body(s, self, block_of_read_forward)}, .n = 1};
}
