/* See t5_decode.h. Modules are called as in training, so that hooks run; only the forwards of the
 * decoder's root, blocks and attention layers differ.
 *
 * Cached rows are packed sequence by sequence, as attention reads them. Appending a token therefore
 * copies them, once a step: no more bytes than the attention of the same step reads. */
#include <string.h>

#include "src/base/alloc.h"
#include "src/models/t5.h"
#include "src/models/t5_decode.h"

typedef struct layer_cache {
    fsdp_tensor *self_k, *self_v;   /* [rows * length, H * K]; NULL before the first step */
    fsdp_tensor *cross_k, *cross_v; /* [source tokens, H * K] */
} layer_cache;

struct fsdp_t5_cache {
    int32_t rows, length;    /* sequences; tokens that each has been fed */
    int32_t *source_offsets; /* [rows + 1] */
    int32_t *step_offsets;   /* [rows + 1]: 0, 1, 2, ...: one query a sequence */
    int32_t *self_offsets;   /* [rows + 1]: of the keys, of the step under way */
    const int32_t *ids;      /* of the step under way */
    fsdp_tensor *encoded;    /* until the first step has made cross keys and values of it */
    int64_t n_layers;
    layer_cache layers[];
};

fsdp_status fsdp_t5_cache_create(const fsdp_module *model, fsdp_t5_cache **cache)
{
    const fsdp_t5 *t5 = model->impl;
    size_t n = (size_t)t5->config.num_decoder_layers;
    fsdp_t5_cache *c = fsdp_calloc(1, sizeof *c + n * sizeof *c->layers);
    if (!c)
        return FSDP_ERR_NOMEM;
    c->n_layers = (int64_t)n;
    *cache = c;
    return FSDP_OK;
}

void fsdp_t5_cache_destroy(fsdp_t5_cache *c)
{
    if (!c)
        return;
    for (int64_t i = 0; i < c->n_layers; i++) {
        fsdp_tensor_release(c->layers[i].self_k);
        fsdp_tensor_release(c->layers[i].self_v);
        fsdp_tensor_release(c->layers[i].cross_k);
        fsdp_tensor_release(c->layers[i].cross_v);
    }
    fsdp_tensor_release(c->encoded);
    fsdp_free(c->source_offsets);
    fsdp_free(c->step_offsets);
    fsdp_free(c->self_offsets);
    fsdp_free(c);
}

int32_t fsdp_t5_cache_rows(const fsdp_t5_cache *c)
{
    return c->rows;
}

/* --- moving rows --- */

static void hold(fsdp_tensor **slot, fsdp_tensor *t)
{
    fsdp_tensor_retain(t);
    fsdp_tensor_release(*slot);
    *slot = t;
}

static void copy_rows(fsdp_scope *s, fsdp_tensor *dst, int64_t dst_row, const fsdp_tensor *src,
                      int64_t src_row, int64_t n)
{
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    size_t row_bytes = (size_t)fsdp_tensor_row_numel(dst) * fsdp_dtype_size(dst->dtype);
    if (k && n)
        k->copy(fsdp_scope_context(s), (char *)fsdp_tensor_ptr(dst) + (size_t)dst_row * row_bytes,
                (const char *)fsdp_tensor_ptr(src) + (size_t)src_row * row_bytes,
                (size_t)n * row_bytes);
}

/* One more token for each sequence: fresh [rows, H * K]. */
static void append(fsdp_scope *s, const fsdp_t5_cache *c, fsdp_tensor **cached, fsdp_tensor *fresh)
{
    if (!fsdp_scope_ok(s))
        return;
    if (!*cached) {
        hold(cached, fresh);
        return;
    }
    const int64_t length = c->length, shape[2] = {c->rows * (length + 1), fresh->shape[1]};
    fsdp_tensor *longer = fsdp_new(s, fresh->dtype, 2, shape);
    if (!longer)
        return;
    for (int64_t row = 0; row < c->rows; row++) {
        copy_rows(s, longer, row * (length + 1), *cached, row * length, length);
        copy_rows(s, longer, row * (length + 1) + length, fresh, row, 1);
    }
    hold(cached, longer);
    fsdp_drop(s, longer);
}

/* Sequences rows[0 .. n) of a packed tensor. */
static void keep_sequences(fsdp_scope *s, fsdp_tensor **cached, const int32_t *offsets,
                           const int32_t *rows, int32_t n)
{
    int64_t total = 0, at = 0;
    if (!*cached || !fsdp_scope_ok(s))
        return;
    for (int32_t i = 0; i < n; i++)
        total += offsets[rows[i] + 1] - offsets[rows[i]];
    const int64_t shape[2] = {total, (*cached)->shape[1]};
    fsdp_tensor *kept = fsdp_new(s, (*cached)->dtype, 2, shape);
    if (!kept)
        return;
    for (int32_t i = 0; i < n; i++) {
        int64_t length = offsets[rows[i] + 1] - offsets[rows[i]];
        copy_rows(s, kept, at, *cached, offsets[rows[i]], length);
        at += length;
    }
    hold(cached, kept);
    fsdp_drop(s, kept);
}

static void even_offsets(int32_t *offsets, int32_t rows, int32_t length)
{
    for (int32_t i = 0; i <= rows; i++)
        offsets[i] = i * length;
}

void fsdp_t5_cache_keep(fsdp_scope *s, fsdp_t5_cache *c, const int32_t *rows, int32_t n)
{
    even_offsets(c->self_offsets, c->rows, c->length);
    for (int64_t i = 0; i < c->n_layers; i++) {
        keep_sequences(s, &c->layers[i].self_k, c->self_offsets, rows, n);
        keep_sequences(s, &c->layers[i].self_v, c->self_offsets, rows, n);
        keep_sequences(s, &c->layers[i].cross_k, c->source_offsets, rows, n);
        keep_sequences(s, &c->layers[i].cross_v, c->source_offsets, rows, n);
    }
    int32_t at = 0;
    for (int32_t i = 0; i < n; i++) {
        /* rows rise, so that offsets not yet read are not overwritten */
        int32_t length = c->source_offsets[rows[i] + 1] - c->source_offsets[rows[i]];
        c->source_offsets[i] = at;
        at += length;
    }
    c->source_offsets[n] = at;
    c->rows = n;
}

/* --- forwards --- */

/* In: x [rows, D], position_bias or NULL. Out: both. */
static void decode_self_attention(fsdp_scope *s, fsdp_module *self, const fsdp_args *in,
                                  fsdp_args *out)
{
    const fsdp_t5_layer *layer = self->impl;
    const fsdp_t5 *t5 = layer->root;
    fsdp_t5_cache *c = t5->cache;
    layer_cache *cached = &c->layers[layer->block];
    fsdp_tensor *x = in->t[0], *position_bias = in->t[1];
    if (!position_bias)
        position_bias = fsdp_t5_position_bias(s, layer, c->length + 1);
    fsdp_tensor *normed = fsdp_t5_norm(s, t5, x, layer->layer_norm);
    fsdp_tensor *q = fsdp_t5_project(s, normed, layer->q);
    append(s, c, &cached->self_k, fsdp_t5_project(s, normed, layer->k));
    append(s, c, &cached->self_v, fsdp_t5_project(s, normed, layer->v));
    fsdp_attention_options options = {.heads = t5->config.num_heads,
                                      .q_offsets = c->step_offsets,
                                      .kv_offsets = c->self_offsets,
                                      .n_sequences = c->rows,
                                      .causal = true, /* the query is the last token */
                                      .scale = 1.0f};
    fsdp_tensor *mixed =
        fsdp_attention(s, q, cached->self_k, cached->self_v, position_bias, &options);
    fsdp_tensor *y = fsdp_t5_project(s, mixed, layer->o);
    *out = (fsdp_args){.t = {fsdp_t5_residual(s, t5, x, y), position_bias}, .n = 2};
}

/* In and out: x [rows, D]. */
static void decode_cross_attention(fsdp_scope *s, fsdp_module *self, const fsdp_args *in,
                                   fsdp_args *out)
{
    const fsdp_t5_layer *layer = self->impl;
    const fsdp_t5 *t5 = layer->root;
    fsdp_t5_cache *c = t5->cache;
    layer_cache *cached = &c->layers[layer->block];
    if (!cached->cross_k) {
        hold(&cached->cross_k, fsdp_t5_project(s, c->encoded, layer->k));
        hold(&cached->cross_v, fsdp_t5_project(s, c->encoded, layer->v));
    }
    fsdp_tensor *x = in->t[0], *normed = fsdp_t5_norm(s, t5, x, layer->layer_norm);
    fsdp_attention_options options = {.heads = t5->config.num_heads,
                                      .q_offsets = c->step_offsets,
                                      .kv_offsets = c->source_offsets,
                                      .n_sequences = c->rows,
                                      .scale = 1.0f};
    fsdp_tensor *q = fsdp_t5_project(s, normed, layer->q);
    fsdp_tensor *mixed = fsdp_attention(s, q, cached->cross_k, cached->cross_v, NULL, &options);
    fsdp_tensor *y = fsdp_t5_project(s, mixed, layer->o);
    *out = (fsdp_args){.t = {fsdp_t5_residual(s, t5, x, y)}, .n = 1};
}

static void decode_block(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out)
{
    const fsdp_t5_block *block = self->impl;
    fsdp_args attended = fsdp_module_call(s, block->layers[0], decode_self_attention, *in);
    fsdp_args crossed = fsdp_module_call(s, block->layers[1], decode_cross_attention,
                                         (fsdp_args){.t = {attended.t[0]}, .n = 1});
    fsdp_tensor *x = fsdp_module_call1(s, block->layers[2], crossed.t[0]);
    *out = (fsdp_args){.t = {x, attended.t[1]}, .n = 2};
}

static void decode_stack(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out)
{
    (void)in;
    const fsdp_t5_stack *stack = self->impl;
    const fsdp_t5_cache *c = stack->root->cache;
    fsdp_args x = {
        .t = {fsdp_embedding(s, c->ids, c->rows, fsdp_read(s, stack->embed_tokens)), NULL}, .n = 2};
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

static void encode_root(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out)
{
    (void)in;
    const fsdp_t5 *t5 = self->impl;
    *out = fsdp_module_call(s, t5->encoder, NULL, (fsdp_args){.n = 0});
}

/* --- calls --- */

static void begin(fsdp_scope *s, fsdp_t5_cache *c, const fsdp_batch *batch)
{
    size_t n = (size_t)batch->rows + 1;
    c->rows = batch->rows;
    c->source_offsets = fsdp_calloc(n, sizeof *c->source_offsets);
    c->step_offsets = fsdp_calloc(n, sizeof *c->step_offsets);
    c->self_offsets = fsdp_calloc(n, sizeof *c->self_offsets);
    if (!c->source_offsets || !c->step_offsets || !c->self_offsets) {
        fsdp_scope_fail(s, FSDP_ERR_NOMEM);
        return;
    }
    memcpy(c->source_offsets, batch->source_offsets, n * sizeof *c->source_offsets);
    even_offsets(c->step_offsets, c->rows, 1);
}

void fsdp_t5_encode(fsdp_scope *s, fsdp_module *model, fsdp_t5_cache *c)
{
    const fsdp_batch *batch = fsdp_scope_get_options(s)->batch;
    if (!fsdp_scope_ok(s))
        return;
    if (!batch) {
        fsdp_scope_error(s, "T5", "the scope's options name no batch");
        return;
    }
    begin(s, c, batch);
    hold(&c->encoded, fsdp_module_call(s, model, encode_root, (fsdp_args){.n = 0}).t[0]);
}

fsdp_tensor *fsdp_t5_decode(fsdp_scope *s, fsdp_module *model, fsdp_t5_cache *c, const int32_t *ids)
{
    fsdp_t5 *t5 = model->impl;
    if (!fsdp_scope_ok(s))
        return NULL;
    even_offsets(c->self_offsets, c->rows, c->length + 1);
    c->ids = ids;
    t5->cache = c;
    fsdp_tensor *logits = fsdp_module_call(s, model, decode_root, (fsdp_args){.n = 0}).t[0];
    t5->cache = NULL;
    c->length++;
    hold(&c->encoded, NULL);
    return logits;
}
