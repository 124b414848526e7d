/* Llama (Touvron et al. 2023, arXiv 2302.13971): a decoder over packed sequences.
 *
 * This file contains no code for sharding, gathering or recording on the tape: the hooks of module
 * calls do all this. An RMS norm comes before attention, and another one before the gated
 * feed-forward. The results of attention and feed-forward are added to the residual stream. Queries
 * and keys are rotated by angles that depend on their positions. Several query heads share a
 * key/value head (Ainslie et al. 2023, arXiv 2305.13245). An intermediate tensor is dropped as soon
 * as its last reader has run. The tape keeps the tensors that backward needs.
 *
 * Legend: T tokens, D hidden_size, F intermediate_size, H heads, K head_dim. */
#include "src/models/layers.h"
#include "src/models/llama.h"

/* --- helpers --- */

static fsdp_tensor *norm(fsdp_scope *s, const fsdp_llama *llama, fsdp_tensor *x,
                         const fsdp_parameter *weight)
{
    return fsdp_rms_norm(s, x, fsdp_read(s, weight), (float)llama->config.rms_norm_eps);
}

/* Return x + y, and drop y. */
static fsdp_tensor *residual(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *y)
{
    fsdp_tensor *sum = fsdp_add_(s, y, x);
    fsdp_drop(s, y);
    return sum;
}

/* The arguments of rotated(), which computes queries or keys from x. */
typedef struct rotation {
    const fsdp_layer *layer;
    const fsdp_parameter *norm; /* weight of the RMS norm of each head; NULL: no norm */
    const int32_t *positions;
    int64_t heads;
} rotation;

/* Apply the linear layer to x, normalize each head if r->norm is not NULL, and rotate each head of
 * each row by the angles of the row's position. */
static fsdp_tensor *rotated(fsdp_scope *s, const fsdp_llama *llama, fsdp_tensor *x,
                            fsdp_tensor *table, const rotation *r)
{
    fsdp_tensor *flat = fsdp_apply_linear(s, x, r->layer);
    if (r->norm) {
        fsdp_tensor *normed = norm(s, llama, flat, r->norm);
        fsdp_drop(s, flat);
        flat = normed;
    }
    fsdp_tensor *turned = fsdp_rope(s, flat, table, r->positions, r->heads);
    fsdp_drop(s, flat);
    return turned;
}

/* --- modules --- */

static fsdp_tensor *attend(fsdp_scope *s, const fsdp_llama_attention *m, const fsdp_args *in,
                           const fsdp_causal_rows *rows)
{
    const fsdp_llama_config *c = &m->root->config;
    fsdp_tensor *x = in->t[0], *table = in->t[1];
    const int32_t *positions = fsdp_causal_input_of(s, &m->root->lm).position_ids;
    fsdp_tensor *asking = fsdp_causal_rows_of(s, rows, x);
    const rotation of_q = {&m->q_proj, m->q_norm, rows->position_ids, c->num_attention_heads};
    const rotation of_k = {&m->k_proj, m->k_norm, positions, c->num_key_value_heads};
    fsdp_tensor *q = rotated(s, m->root, asking, table, &of_q);
    fsdp_causal_rows_drop(s, rows, asking);
    fsdp_tensor *k = rotated(s, m->root, x, table, &of_k);
    fsdp_tensor *v = fsdp_apply_linear(s, x, &m->v_proj);
    const fsdp_attention_options options = {.heads = c->num_attention_heads,
                                            .kv_heads = c->num_key_value_heads,
                                            .q_offsets = rows->q_offsets,
                                            .window = m->window,
                                            .dropout_p = (float)c->attention_dropout};
    fsdp_tensor *mixed = fsdp_causal_attention(s, &m->root->lm, m->layer_idx, q, k, v, options);
    fsdp_drop(s, q);
    fsdp_drop(s, k);
    fsdp_drop(s, v);
    return fsdp_apply_linear(s, mixed, &m->o_proj);
}

static void run_attention(fsdp_scope *s, const fsdp_llama_attention *m, const fsdp_args *in,
                          bool read, fsdp_args *out)
{
    fsdp_causal_rows rows = fsdp_causal_rows_find(s, &m->root->lm, read);
    *out = (fsdp_args){.t = {attend(s, m, in, &rows)}, .n = 1};
    fsdp_causal_rows_fini(&rows);
}

void fsdp_llama_attention_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in,
                                  fsdp_args *out)
{
    run_attention(s, self->impl, in, false, out);
}

/* Compute attention for x [T, D]. The result is [n, D], only the n rows that are read (Note [Rows
 * that are read] in causal.h). */
static void attention_of_read_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in,
                                      fsdp_args *out)
{
    run_attention(s, self->impl, in, true, out);
}

void fsdp_llama_mlp_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out)
{
    const fsdp_llama_mlp *m = self->impl;
    fsdp_tensor *gate = fsdp_apply_linear(s, in->t[0], &m->gate_proj);
    fsdp_tensor *up = fsdp_apply_linear(s, in->t[0], &m->up_proj);
    *out = (fsdp_args){
        .t = {fsdp_apply_activated_linear(s, FSDP_ACTIVATION_SILU, gate, up, &m->down_proj)},
        .n = 1};
    fsdp_drop(s, gate);
    fsdp_drop(s, up);
}

static fsdp_tensor *run_rows(fsdp_scope *s, const fsdp_llama_layer *m, const fsdp_args *in,
                             const fsdp_causal_rows *rows)
{
    fsdp_tensor *x = in->t[0], *table = in->t[1];
    fsdp_tensor *normed = norm(s, m->root, x, m->input_layernorm);
    fsdp_args attended =
        fsdp_module_call(s, m->self_attn, rows->rows ? attention_of_read_forward : NULL,
                         (fsdp_args){.t = {normed, table}, .n = 2});
    fsdp_drop(s, normed);
    fsdp_tensor *stream = fsdp_causal_rows_of(s, rows, x);
    fsdp_tensor *h = residual(s, stream, attended.t[0]);
    fsdp_causal_rows_drop(s, rows, stream);
    normed = norm(s, m->root, h, m->post_attention_layernorm);
    fsdp_tensor *y = fsdp_module_call1(s, m->mlp, normed);
    fsdp_drop(s, normed);
    return residual(s, h, y);
}

static void run_layer(fsdp_scope *s, const fsdp_llama_layer *m, const fsdp_args *in, bool read,
                      fsdp_args *out)
{
    fsdp_causal_rows rows = fsdp_causal_rows_find(s, &m->root->lm, read);
    *out = (fsdp_args){.t = {run_rows(s, m, in, &rows)}, .n = 1};
    fsdp_causal_rows_fini(&rows);
}

void fsdp_llama_layer_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out)
{
    run_layer(s, self->impl, in, false, out);
}

static void layer_of_read_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in,
                                  fsdp_args *out)
{
    run_layer(s, self->impl, in, true, out);
}

static fsdp_tensor *embed(fsdp_scope *s, const fsdp_module *self)
{
    const fsdp_llama_body *m = self->impl;
    return fsdp_module_call(s, m->embed_tokens, NULL, (fsdp_args){.n = 0}).t[0];
}

/* Run the body. `last` replaces the forward of the last layer, unless it is NULL. */
static fsdp_tensor *run_body(fsdp_scope *s, const fsdp_module *self, fsdp_forward_fn *last)
{
    const fsdp_llama_body *m = self->impl;
    const fsdp_causal_input input = fsdp_causal_input_of(s, &m->root->lm);
    const bool embeds = fsdp_first_layer_embeds(m->layers, m->embed_tokens);
    fsdp_tensor *x = embeds ? NULL : embed(s, self);
    fsdp_tensor *table = fsdp_rotary_table(s, m->rotary, input.span);
    const int n = fsdp_module_n_children(m->layers);
    for (int i = 0; i < n; i++) {
        fsdp_forward_fn *forward = i + 1 < n ? NULL : last;
        fsdp_module *layer = fsdp_module_child(m->layers, i);
        const fsdp_args call = {.t = {x, table}, .n = 2};
        fsdp_args result = x ? fsdp_module_call(s, layer, forward, call)
                             : fsdp_module_call_embedding(s, layer, self, embed, call);
        fsdp_drop(s, x);
        x = result.t[0];
    }
    return norm(s, m->root, x, m->norm);
}

void fsdp_llama_body_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out)
{
    (void)in;
    *out = (fsdp_args){.t = {run_body(s, self, NULL)}, .n = 1};
}

void fsdp_llama_body_of_read_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in,
                                     fsdp_args *out)
{
    (void)in;
    *out = (fsdp_args){.t = {run_body(s, self, layer_of_read_forward)}, .n = 1};
}
