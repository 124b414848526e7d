/* See causal.h. Legend: T tokens of all sequences, D model width, V vocabulary. */
#include "src/models/causal.h"

#include "src/base/alloc.h"
#include "src/base/assert.h"

fsdp_causal_input fsdp_causal_input_of(const fsdp_scope *s, const fsdp_causal_lm *lm)
{
    if (lm->decoding)
        return *lm->decoding;
    const fsdp_batch *batch = fsdp_scope_get_options(s)->batch;
    return (fsdp_causal_input){.ids = batch->input_ids,
                               .position_ids = batch->position_ids,
                               .q_offsets = batch->source_offsets,
                               .tokens = batch->source_tokens,
                               .n_sequences = batch->rows,
                               .span = batch->max_source_len};
}

fsdp_tensor *fsdp_causal_attention(fsdp_scope *s, const fsdp_causal_lm *lm, int64_t layer,
                                   fsdp_tensor *q, fsdp_tensor *k, fsdp_tensor *v,
                                   fsdp_attention_options options)
{
    const fsdp_causal_input input = fsdp_causal_input_of(s, lm);
    options.kv_offsets = input.q_offsets;
    options.n_sequences = input.n_sequences;
    options.causal = true;
    fsdp_kv kv = {.k = k, .v = v};
    if (input.cache) {
        kv = fsdp_kv_cache_append(s, input.cache, layer, k, v);
        options.kv_offsets = kv.offsets;
        options.kv_ends = kv.ends;
    }
    return fsdp_attention(s, q, kv.k, kv.v, NULL, &options);
}

/* --- finding and gathering the rows that are read --- */

/* Return the first row of sequence i that is read (Note [Rows that are read] in causal.h). This is
 * the first row with a label or, if `labels` is NULL, the last row of the sequence. If no row of
 * the sequence has a label, return the end of the sequence. */
static int32_t first_read(const fsdp_causal_input *input, const int32_t *labels, int32_t i)
{
    const int32_t end = input->q_offsets[i + 1];
    if (!labels)
        return end - 1;
    int32_t row = input->q_offsets[i];
    while (row < end && labels[row] < 0)
        row++;
    return row;
}

/* Set *rows to the rows of last_hidden that the loss reads (Note [Rows that are read] in causal.h).
 * The arrays of *rows are in `memory`, which has 2 * tokens + n_sequences + 1 elements. */
static void fill_rows(const fsdp_causal_input *input, const int32_t *labels, int32_t *memory,
                      fsdp_causal_rows *rows)
{
    int32_t *row = memory, *position = row + input->tokens, *offset = position + input->tokens;
    *rows = (fsdp_causal_rows){
        .rows = row, .position_ids = position, .q_offsets = offset, .memory = memory};
    offset[0] = 0;
    for (int32_t i = 0; i < input->n_sequences; i++) {
        for (int32_t at = first_read(input, labels, i); at < input->q_offsets[i + 1]; at++) {
            row[rows->n] = at;
            position[rows->n++] = input->position_ids[at];
        }
        offset[i + 1] = rows->n;
    }
}

fsdp_causal_rows fsdp_causal_rows_find(fsdp_scope *s, const fsdp_causal_lm *lm, bool read)
{
    const fsdp_causal_input input = fsdp_causal_input_of(s, lm);
    const int32_t *labels = lm->decoding ? NULL : fsdp_scope_get_options(s)->batch->labels;
    fsdp_causal_rows rows = {
        .n = input.tokens, .position_ids = input.position_ids, .q_offsets = input.q_offsets};
    if (!read)
        return rows;
    const size_t numel = 2 * (size_t)input.tokens + (size_t)input.n_sequences + 1;
    int32_t *memory = fsdp_calloc(numel, sizeof *memory);
    if (memory)
        fill_rows(&input, labels, memory, &rows);
    else
        fsdp_scope_fail(s, FSDP_ERR_NOMEM);
    return rows;
}

void fsdp_causal_rows_fini(fsdp_causal_rows *rows)
{
    fsdp_free(rows->memory);
    *rows = (fsdp_causal_rows){0};
}

fsdp_tensor *fsdp_causal_rows_of(fsdp_scope *s, const fsdp_causal_rows *rows, fsdp_tensor *x)
{
    return rows->rows ? fsdp_gather_rows(s, x, rows->rows, rows->n) : x;
}

void fsdp_causal_rows_drop(fsdp_scope *s, const fsdp_causal_rows *rows, fsdp_tensor *of_x)
{
    if (rows->rows)
        fsdp_drop(s, of_x);
}

/* The batch has `tokens` rows, of which only `rows` are needed. Return true if these are few: at
 * least one, and at most 3/4 of all rows. Computing only these then saves more time and memory
 * than gathering them costs. */
static bool are_few(const fsdp_causal_rows *rows, int32_t tokens)
{
    return rows->n > 0 && 4 * (int64_t)rows->n <= 3 * (int64_t)tokens;
}

/* --- embedding and head --- */

typedef struct embedding {
    const fsdp_causal_lm *lm;
    fsdp_parameter *weight;
    int32_t padding_idx; /* row of the weight that has no gradient; -1: none */
} embedding;

static void embedding_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out)
{
    (void)in;
    const embedding *e = self->impl;
    const fsdp_causal_input input = fsdp_causal_input_of(s, e->lm);
    fsdp_tensor *x =
        fsdp_embedding(s, input.ids, input.tokens, fsdp_read(s, e->weight), e->padding_idx);
    *out = (fsdp_args){.t = {x}, .n = 1};
}

fsdp_module *fsdp_causal_build_embedding(fsdp_builder *b, fsdp_module *body, const char *name,
                                         fsdp_causal_lm *lm, int64_t rows, int64_t width,
                                         fsdp_init init)
{
    fsdp_parameter *weight = fsdp_build_embedding(b, body, name, rows, width, init);
    fsdp_module *m = weight ? fsdp_module_find(body, name) : NULL;
    embedding *e = fsdp_build_impl(b, m, embedding_forward, sizeof *e);
    if (!e)
        return NULL;
    *e = (embedding){
        .lm = lm, .weight = weight, .padding_idx = init.has_zero_row ? (int32_t)init.zero_row : -1};
    lm->head = weight;
    return m;
}

/* Compute logits [T, V] from hidden states [T, D]. */
static void head_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out)
{
    const fsdp_causal_lm *lm = self->impl;
    *out = (fsdp_args){.t = {fsdp_linear(s, in->t[0], fsdp_read(s, lm->head), NULL)}, .n = 1};
}

static fsdp_args head_loss(fsdp_scope *s, const fsdp_causal_lm *lm, fsdp_tensor *hidden,
                           const int32_t *labels)
{
    fsdp_tensor *w = fsdp_read(s, lm->head);
    fsdp_tensor *loss = fsdp_linear_cross_entropy_(s, hidden, w, labels, s->run->loss_factor);
    return (fsdp_args){.t = {loss}, .n = 1};
}

static void head_loss_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out)
{
    *out = head_loss(s, self->impl, in->t[0], fsdp_scope_get_options(s)->batch->labels);
}

/* Compute the loss from hidden states [n, D], which are only the rows that the loss reads (Note
 * [Rows that are read] in causal.h). */
static void head_loss_of_read_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in,
                                      fsdp_args *out)
{
    const int32_t *all = fsdp_scope_get_options(s)->batch->labels;
    fsdp_causal_rows read = fsdp_causal_rows_find(s, self->impl, true);
    int32_t *labels = fsdp_calloc((size_t)read.n + 1, sizeof *labels);
    if (!labels)
        fsdp_scope_fail(s, FSDP_ERR_NOMEM);
    for (int32_t i = 0; labels && read.rows && i < read.n; i++)
        labels[i] = all[read.rows[i]];
    if (fsdp_scope_ok(s)) {
        FSDP_ASSERT(in->t[0]->shape[0] == read.n);
        *out = head_loss(s, self->impl, in->t[0], labels);
    }
    fsdp_free(labels);
    fsdp_causal_rows_fini(&read);
}

void fsdp_causal_build_head(fsdp_builder *b, fsdp_module *root, fsdp_causal_lm *lm, bool tied,
                            int64_t rows, int64_t width, double std)
{
    if (tied)
        fsdp_build_tied(b, root, "lm_head", "Linear", lm->head);
    else
        lm->head = fsdp_build_linear(b, root, "lm_head", width, rows, false, std).weight;
    if (b->status != FSDP_OK)
        return;
    FSDP_ASSERT(lm->body);
    FSDP_ASSERT(lm->read_forward);
    lm->lm_head = fsdp_module_find(root, "lm_head");
    fsdp_module_set_forward(lm->lm_head, head_forward, lm, NULL);
}

/* --- loss and logits --- */

/* Run the body. `forward` replaces the body's own forward, unless it is NULL. */
static fsdp_tensor *run_body(fsdp_scope *s, const fsdp_causal_lm *lm, fsdp_forward_fn *forward)
{
    return fsdp_module_call(s, lm->body, forward, (fsdp_args){.n = 0}).t[0];
}

static fsdp_tensor *run_head(fsdp_scope *s, const fsdp_causal_lm *lm, fsdp_tensor *hidden)
{
    return fsdp_module_call1(s, lm->lm_head, hidden);
}

static void loss_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out)
{
    (void)in;
    const fsdp_causal_lm *lm = self->impl;
    fsdp_causal_rows read = fsdp_causal_rows_find(s, lm, true);
    const bool few = are_few(&read, fsdp_scope_get_options(s)->batch->source_tokens);
    fsdp_causal_rows_fini(&read);
    fsdp_tensor *hidden = run_body(s, lm, few ? lm->read_forward : NULL);
    *out = fsdp_module_call(s, lm->lm_head, few ? head_loss_of_read_forward : head_loss_forward,
                            (fsdp_args){.t = {hidden}, .n = 1});
}

static void logits_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out)
{
    (void)in;
    const fsdp_causal_lm *lm = self->impl;
    fsdp_tensor *hidden = run_body(s, lm, NULL);
    *out = (fsdp_args){.t = {run_head(s, lm, hidden), hidden}, .n = 2};
}

fsdp_tensor *fsdp_causal_loss(fsdp_scope *s, fsdp_module *model, float factor)
{
    s->run->loss_factor = factor;
    return fsdp_module_call(s, model, loss_forward, (fsdp_args){.n = 0}).t[0];
}

fsdp_model_outputs fsdp_causal_logits(fsdp_scope *s, fsdp_module *model)
{
    fsdp_args out = fsdp_module_call(s, model, logits_forward, (fsdp_args){.n = 0});
    return (fsdp_model_outputs){.logits = out.t[0], .last_hidden = out.t[1]};
}

/* --- decoding --- */

struct fsdp_decode_cache {
    fsdp_kv_cache *kv;
    int32_t *position_ids; /* [sequences]: the position of the next token of each sequence */
    int32_t *q_offsets;    /* [sequences + 1]: 0, 1, 2, ..., because each sequence has one query */
    size_t cap_position_ids, cap_q_offsets;
};

static fsdp_status cache_create(const fsdp_module *model, fsdp_decode_cache **cache)
{
    const fsdp_causal_lm *lm = model->impl;
    fsdp_decode_cache *c = fsdp_calloc(1, sizeof *c);
    if (!c)
        return FSDP_ERR_NOMEM;
    fsdp_status status = fsdp_kv_cache_create(lm->n_layers, &c->kv);
    if (status == FSDP_OK)
        *cache = c;
    else
        fsdp_free(c);
    return status;
}

static void cache_destroy(fsdp_decode_cache *c)
{
    if (!c)
        return;
    fsdp_kv_cache_destroy(c->kv);
    fsdp_free(c->position_ids);
    fsdp_free(c->q_offsets);
    fsdp_free(c);
}

static void cache_select(fsdp_scope *s, fsdp_decode_cache *c, const int32_t *rows, int32_t n)
{
    fsdp_kv_cache_select(s, c->kv, rows, n);
}

static void decode_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out)
{
    (void)in;
    const fsdp_causal_lm *lm = self->impl;
    const bool all = lm->decoding->tokens == lm->decoding->n_sequences;
    fsdp_tensor *last = run_body(s, lm, all ? NULL : lm->read_forward);
    *out = (fsdp_args){.t = {run_head(s, lm, last)}, .n = 1};
}

static fsdp_tensor *decode(fsdp_scope *s, fsdp_module *model, const fsdp_causal_input *input)
{
    fsdp_causal_lm *lm = model->impl;
    fsdp_kv_cache_extend(s, input->cache, input->q_offsets, input->n_sequences);
    lm->decoding = input;
    fsdp_tensor *logits = fsdp_module_call(s, model, decode_forward, (fsdp_args){.n = 0}).t[0];
    lm->decoding = NULL;
    return logits;
}

static bool has_prompts(fsdp_scope *s)
{
    const fsdp_batch *batch = fsdp_scope_get_options(s)->batch;
    if (!fsdp_scope_ok(s))
        return false;
    if (!batch)
        fsdp_scope_error(s, "prompt", "the scope's options name no batch");
    for (int32_t i = 0; batch && i < batch->rows; i++)
        if (batch->source_offsets[i] == batch->source_offsets[i + 1])
            fsdp_scope_error(s, "prompt", "row %d is empty: a prompt needs at least one token", i);
    return fsdp_scope_ok(s);
}

static fsdp_tensor *prompt(fsdp_scope *s, fsdp_module *model, fsdp_decode_cache *c)
{
    if (!has_prompts(s))
        return NULL;
    fsdp_causal_input input = fsdp_causal_input_of(s, model->impl);
    input.cache = c->kv;
    return decode(s, model, &input);
}

/* Set the positions, offsets and span of *input, for a step in which each sequence gets one new
 * token. Returns false if the scope has failed. */
static bool fill_step(fsdp_scope *s, fsdp_decode_cache *c, fsdp_causal_input *input)
{
    const int32_t n = input->n_sequences;
    if (!FSDP_GROW(c->position_ids, c->cap_position_ids, (size_t)n) ||
        !FSDP_GROW(c->q_offsets, c->cap_q_offsets, (size_t)n + 1)) {
        fsdp_scope_fail(s, FSDP_ERR_NOMEM);
        return false;
    }
    c->q_offsets[0] = 0;
    for (int32_t i = 0; i < n; i++) {
        c->position_ids[i] = fsdp_kv_cache_length(c->kv, i);
        c->q_offsets[i + 1] = i + 1;
        if (c->position_ids[i] >= input->span)
            input->span = c->position_ids[i] + 1;
    }
    input->position_ids = c->position_ids;
    input->q_offsets = c->q_offsets;
    return true;
}

static fsdp_tensor *step(fsdp_scope *s, fsdp_module *model, fsdp_decode_cache *c,
                         const int32_t *ids)
{
    const int32_t n = fsdp_kv_cache_sequences(c->kv);
    fsdp_causal_input input = {.ids = ids, .tokens = n, .n_sequences = n, .cache = c->kv};
    if (!fsdp_scope_ok(s) || !fill_step(s, c, &input))
        return NULL;
    return decode(s, model, &input);
}

const fsdp_decoder fsdp_causal_decoder = {.create = cache_create,
                                          .destroy = cache_destroy,
                                          .prompt = prompt,
                                          .step = step,
                                          .select = cache_select};
