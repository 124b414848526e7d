/* See t5_decode.h. Modules are called as in training, so their hooks run. Most modules run the same
 * forwards as in training. The root, the decoder, the decoder's blocks and its attention layers
 * have forwards of their own for decoding.
 *
 * Keys and values of a source are stored once per prompt, not once per sequence, because all
 * sequences of a prompt attend to the same source. */
#include "src/models/t5_decode.h"

#include "src/base/alloc.h"
#include "src/models/kv_cache.h"
#include "src/models/layers.h"
#include "src/models/t5.h"

/* A growable array of int32_t on the host. */
typedef struct ints {
    int32_t *items;
    size_t cap;
} ints;

struct fsdp_decode_cache {
    /* keys and values of all target tokens so far; one cache sequence for each sequence */
    fsdp_kv_cache *self;
    fsdp_kv_cache *cross; /* keys and values of the sources; one cache sequence for each prompt */
    /* prompts: number of prompts. rows: number of sequences of all prompts. length: number of
     * tokens so far, which is the same for all sequences. */
    int32_t prompts, rows, length;
    ints prompt_offsets; /* [prompts + 1]: index of the first sequence of each prompt */
    ints step_offsets;   /* [rows + 1]: 0, 1, 2, ..., because each sequence has one query */
    /* Temporary arrays. start: [rows], the start id of each sequence. kept_prompts: indices of the
     * prompts that continue. */
    ints start, kept_prompts;
    const int32_t *ids; /* ids of the current step */
    /* The encoder's output, from which cross-attention computes keys and values. Borrowed. NULL
     * except in the first step. */
    fsdp_tensor *encoded;
};

static void destroy(fsdp_decode_cache *c)
{
    if (!c)
        return;
    fsdp_kv_cache_destroy(c->self);
    fsdp_kv_cache_destroy(c->cross);
    fsdp_free(c->prompt_offsets.items);
    fsdp_free(c->step_offsets.items);
    fsdp_free(c->start.items);
    fsdp_free(c->kept_prompts.items);
    fsdp_free(c);
}

static fsdp_status create(const fsdp_module *model, fsdp_decode_cache **cache)
{
    const fsdp_t5 *t5 = model->impl;
    fsdp_decode_cache *c = fsdp_calloc(1, sizeof *c);
    if (!c)
        return FSDP_ERR_NOMEM;
    fsdp_status status = fsdp_kv_cache_create(t5->config.num_decoder_layers, &c->self);
    if (status == FSDP_OK)
        status = fsdp_kv_cache_create(t5->config.num_decoder_layers, &c->cross);
    if (status == FSDP_OK)
        *cache = c;
    else
        destroy(c);
    return status;
}

static bool resize(fsdp_scope *s, ints *list, int32_t n)
{
    if (!FSDP_GROW(list->items, list->cap, (size_t)n))
        fsdp_scope_fail(s, FSDP_ERR_NOMEM);
    return fsdp_scope_ok(s);
}

/* Set *offsets to the numbers 0, 1, 2, ..., n. */
static bool count_up(fsdp_scope *s, ints *offsets, int32_t n)
{
    if (!resize(s, offsets, n + 1))
        return false;
    for (int32_t i = 0; i <= n; i++)
        offsets->items[i] = i;
    return true;
}

/* --- choosing sequences --- */

/* `rows` [n] contains the old indices of the sequences that continue, in their new order. A prompt
 * is kept if at least one of its sequences continues. Store the old indices of the kept prompts in
 * kept_prompts, and return the number of kept prompts. For each kept prompt, store the new index of
 * its first sequence in prompt_offsets. */
static int32_t regroup(fsdp_decode_cache *c, const int32_t *rows, int32_t n)
{
    int32_t *offsets = c->prompt_offsets.items, prompt = 0, kept = 0;
    /* `end` is the index after the last old sequence of the prompt with index `prompt`. */
    int32_t end = c->prompts ? offsets[1] : 0;
    for (int32_t i = 0; i < n; i++) {
        while (rows[i] >= end)
            end = offsets[++prompt + 1];
        if (kept == 0 || c->kept_prompts.items[kept - 1] != prompt) {
            c->kept_prompts.items[kept] = prompt;
            offsets[kept++] = i;
        }
    }
    offsets[kept] = n;
    return kept;
}

static void select_sequences(fsdp_scope *s, fsdp_decode_cache *c, const int32_t *rows, int32_t n)
{
    if (!resize(s, &c->kept_prompts, c->prompts))
        return;
    const int32_t prompts = regroup(c, rows, n);
    if (prompts < c->prompts)
        fsdp_kv_cache_select(s, c->cross, c->kept_prompts.items, prompts);
    fsdp_kv_cache_select(s, c->self, rows, n);
    c->prompts = prompts;
    c->rows = n;
}

/* --- forwards --- */

/* Run self-attention for the new token of each sequence. The arguments are x [rows, D] and
 * position_bias; if position_bias is NULL, it is computed. The results are x and position_bias. */
static void decode_self_attention(fsdp_scope *s, fsdp_module *self, const fsdp_args *in,
                                  fsdp_args *out)
{
    const fsdp_t5_layer *layer = self->impl;
    const fsdp_t5 *t5 = layer->root;
    fsdp_decode_cache *c = t5->cache;
    fsdp_tensor *x = in->t[0], *position_bias = in->t[1];
    if (!position_bias)
        position_bias = fsdp_t5_position_bias(s, layer, c->length + 1);
    fsdp_tensor *normed = fsdp_t5_norm(s, t5, x, layer->layer_norm);
    fsdp_tensor *q = fsdp_apply_linear(s, normed, &layer->q);
    fsdp_kv kv =
        fsdp_kv_cache_append(s, c->self, layer->block, fsdp_apply_linear(s, normed, &layer->k),
                             fsdp_apply_linear(s, normed, &layer->v));
    fsdp_attention_options options = {.heads = t5->config.num_heads,
                                      .q_offsets = c->step_offsets.items,
                                      .kv_offsets = kv.offsets,
                                      .kv_ends = kv.ends,
                                      .n_sequences = c->rows,
                                      .causal = true, /* the last token sees all tokens */
                                      .scale = 1.0f};
    fsdp_tensor *mixed = fsdp_attention(s, q, kv.k, kv.v, position_bias, &options);
    fsdp_tensor *y = fsdp_apply_linear(s, mixed, &layer->o);
    *out = fsdp_t5_attended(s, layer, fsdp_t5_residual(s, t5, x, y), position_bias);
}

/* Run cross-attention for the new token of each sequence. The argument and the result are [rows,
 * D]. */
static void decode_cross_attention(fsdp_scope *s, fsdp_module *self, const fsdp_args *in,
                                   fsdp_args *out)
{
    const fsdp_t5_layer *layer = self->impl;
    const fsdp_t5 *t5 = layer->root;
    fsdp_decode_cache *c = t5->cache;
    fsdp_kv kv;
    if (c->encoded)
        kv = fsdp_kv_cache_append(s, c->cross, layer->block,
                                  fsdp_apply_linear(s, c->encoded, &layer->k),
                                  fsdp_apply_linear(s, c->encoded, &layer->v));
    else
        kv = fsdp_kv_cache_get(c->cross, layer->block);
    fsdp_tensor *x = in->t[0], *normed = fsdp_t5_norm(s, t5, x, layer->layer_norm);
    fsdp_attention_options options = {.heads = t5->config.num_heads,
                                      .q_offsets = c->prompt_offsets.items,
                                      .kv_offsets = kv.offsets,
                                      .kv_ends = kv.ends,
                                      .n_sequences = c->prompts,
                                      .scale = 1.0f};
    fsdp_tensor *q = fsdp_apply_linear(s, normed, &layer->q);
    fsdp_tensor *mixed = fsdp_attention(s, q, kv.k, kv.v, NULL, &options);
    fsdp_tensor *y = fsdp_apply_linear(s, mixed, &layer->o);
    *out = (fsdp_args){.t = {fsdp_t5_residual(s, t5, x, y)}, .n = 1};
}

static void decode_block(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out)
{
    const fsdp_t5_block *block = self->impl;
    fsdp_args attended = fsdp_module_call(s, block->layers[0], decode_self_attention, *in);
    fsdp_args crossed = fsdp_module_call(s, block->layers[1], decode_cross_attention,
                                         (fsdp_args){.t = {attended.t[0]}, .n = 1});
    fsdp_tensor *x = fsdp_module_call1(s, block->layers[2], crossed.t[0]);
    *out = (fsdp_args){.t = {x, attended.t[1]}, .n = attended.n};
}

static void decode_stack(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out)
{
    (void)in;
    const fsdp_t5_stack *stack = self->impl;
    const fsdp_decode_cache *c = stack->root->cache;
    fsdp_args x = {
        .t = {fsdp_embedding(s, c->ids, c->rows, fsdp_read(s, stack->embed_tokens), -1), NULL},
        .n = 2};
    for (int i = 0; i < fsdp_module_n_children(stack->blocks); i++)
        x = fsdp_module_call(s, fsdp_module_child(stack->blocks, i), decode_block,
                             (fsdp_args){.t = {x.t[0], x.t[1]}, .n = 2});
    *out =
        (fsdp_args){.t = {fsdp_t5_norm(s, stack->root, x.t[0], stack->final_layer_norm)}, .n = 1};
}

static void decode_root(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out)
{
    (void)in;
    const fsdp_t5 *t5 = self->impl;
    fsdp_args none = {.n = 0};
    fsdp_args hidden = fsdp_module_call(s, t5->decoder, decode_stack, none);
    *out = (fsdp_args){.t = {fsdp_t5_head(s, t5, hidden.t[0])}, .n = 1};
}

/* Run the first step of decoding: run the encoder, then decode_root(). */
static void prompt_root(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out)
{
    const fsdp_t5 *t5 = self->impl;
    fsdp_args none = {.n = 0};
    t5->cache->encoded = fsdp_module_call(s, t5->encoder, NULL, none).t[0];
    decode_root(s, self, in, out);
    t5->cache->encoded = NULL;
}

/* --- steps --- */

/* Call the root, with `forward` instead of the root's own forward, and return the logits. `ids`
 * [rows] has the next id of each sequence. */
static fsdp_tensor *feed(fsdp_scope *s, fsdp_module *model, fsdp_decode_cache *c,
                         fsdp_forward_fn *forward, const int32_t *ids)
{
    fsdp_t5 *t5 = model->impl;
    if (!count_up(s, &c->step_offsets, c->rows))
        return NULL;
    fsdp_kv_cache_extend(s, c->self, c->step_offsets.items, c->rows);
    c->ids = ids;
    t5->cache = c;
    fsdp_tensor *logits = fsdp_module_call(s, model, forward, (fsdp_args){.n = 0}).t[0];
    t5->cache = NULL;
    c->length++;
    return logits;
}

static fsdp_tensor *prompt(fsdp_scope *s, fsdp_module *model, fsdp_decode_cache *c)
{
    const fsdp_t5 *t5 = model->impl;
    const fsdp_batch *batch = fsdp_scope_get_options(s)->batch;
    if (!fsdp_scope_ok(s))
        return NULL;
    if (!batch) {
        fsdp_scope_error(s, "prompt", "the scope's options name no batch");
        return NULL;
    }
    c->prompts = c->rows = batch->rows;
    if (!count_up(s, &c->prompt_offsets, c->prompts) || !resize(s, &c->start, c->rows))
        return NULL;
    for (int32_t i = 0; i < c->rows; i++)
        c->start.items[i] = (int32_t)t5->config.decoder_start_token_id;
    fsdp_kv_cache_extend(s, c->cross, batch->source_offsets, c->prompts);
    return feed(s, model, c, prompt_root, c->start.items);
}

static fsdp_tensor *step(fsdp_scope *s, fsdp_module *model, fsdp_decode_cache *c,
                         const int32_t *ids)
{
    return feed(s, model, c, decode_root, ids);
}

const fsdp_decoder fsdp_t5_decoder = {.create = create,
                                      .destroy = destroy,
                                      .prompt = prompt,
                                      .step = step,
                                      .select = select_sequences};
