/* See generate.h. Sequences that have ended leave the cache, so that the work shrinks with them. */
#include <math.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "src/models/t5_decode.h"
#include "src/train/generate.h"

typedef struct generation {
    const fsdp_model *model;
    fsdp_device *device;
    fsdp_generation_config config;
    fsdp_t5_cache *cache;
    fsdp_token_list *outputs;
    int32_t live;      /* sequences that have not ended, */
    int32_t *row_of;   /* [live] their rows of the batch, rising */
    int32_t *ids;      /* [live] the last id of each */
    int32_t *kept;     /* [live] scratch: which of them go on */
    int64_t max_steps; /* new tokens at most */
} generation;

static fsdp_generation_config of_model(const fsdp_t5_config *c)
{
    return (fsdp_generation_config){.decoder_start_token_id = c->decoder_start_token_id,
                                    .pad_token_id = c->pad_token_id,
                                    .eos_token_ids = {c->eos_token_id},
                                    .n_eos = 1,
                                    .max_length = 20};
}

fsdp_status fsdp_model_generation_config(const fsdp_model *model, fsdp_generation_config *config)
{
    fsdp_generation_config c = of_model(&model->config);
    if (model->dir) {
        FSDP_TRY(fsdp_generation_config_read(model->dir, &c));
        if (c.decoder_start_token_id < 0)
            c.decoder_start_token_id = model->config.decoder_start_token_id;
        if (c.n_eos == 0) {
            c.eos_token_ids[0] = model->config.eos_token_id;
            c.n_eos = 1;
        }
    }
    *config = c;
    return FSDP_OK;
}

static bool is_end(const generation *g, int32_t id)
{
    for (int i = 0; i < g->config.n_eos; i++)
        if (g->config.eos_token_ids[i] == id)
            return true;
    return false;
}

static fsdp_status append(fsdp_token_list *list, int32_t id)
{
    if (!FSDP_GROW(list->ids, list->cap, list->len + 1))
        return FSDP_ERR_NOMEM;
    list->ids[list->len++] = id;
    return FSDP_OK;
}

/* The first of the largest, as torch.argmax. -1 if one is NaN. */
static int32_t argmax(const float *logits, int64_t n)
{
    int32_t best = 0;
    for (int64_t i = 0; i < n; i++) {
        if (isnan(logits[i]))
            return -1;
        if (logits[i] > logits[best])
            best = (int32_t)i;
    }
    return best;
}

/* Append each sequence's next id, and let go of those that end. */
static fsdp_status take_next(generation *g, fsdp_scope *s, fsdp_tensor *logits)
{
    const int64_t vocab = fsdp_tensor_size(logits, 1);
    float *values = fsdp_calloc((size_t)(g->live * vocab), sizeof *values);
    if (!values)
        return FSDP_ERR_NOMEM;
    int32_t kept = 0;
    fsdp_status status = fsdp_tensor_to_floats(logits, values);
    for (int32_t i = 0; i < g->live && status == FSDP_OK; i++) {
        int32_t id = argmax(values + i * vocab, vocab), row = g->row_of[i];
        status = id >= 0 ? append(&g->outputs[row], id)
                         : fsdp_error(FSDP_ERR_NUMERIC, "generate: the logits of row %d are NaN",
                                      (int)row);
        if (is_end(g, id))
            continue;
        g->ids[kept] = id;
        g->row_of[kept] = row;
        g->kept[kept++] = i;
    }
    fsdp_free(values);
    if (status == FSDP_OK && kept < g->live) {
        fsdp_t5_cache_keep(s, g->cache, g->kept, kept);
        g->live = kept;
    }
    return status;
}

/* How many sequences go on, over all ranks. */
static fsdp_status count_live(const generation *g, int64_t *live)
{
    *live = g->live;
    if (!g->model->group || fsdp_group_world_size(g->model->group) == 1)
        return FSDP_OK;
    return fsdp_all_reduce(g->model->group, live, 1, FSDP_DTYPE_I64, FSDP_REDUCE_SUM);
}

static fsdp_status encode(generation *g, const fsdp_batch *batch)
{
    fsdp_scope *s;
    fsdp_scope_options options = {.batch = batch};
    FSDP_TRY(fsdp_t5_cache_create(g->model->module, &g->cache));
    FSDP_TRY(fsdp_scope_open(g->device, NULL, &options, &s));
    fsdp_t5_encode(s, g->model->module, g->cache);
    fsdp_status status = fsdp_scope_status(s);
    fsdp_scope_close(s);
    return status;
}

static fsdp_status decode_step(generation *g)
{
    fsdp_scope *s;
    FSDP_TRY(fsdp_scope_open(g->device, NULL, NULL, &s));
    fsdp_tensor *logits = fsdp_t5_decode(s, g->model->module, g->cache, g->ids);
    fsdp_status status = fsdp_scope_status(s);
    if (status == FSDP_OK)
        status = take_next(g, s, logits);
    if (status == FSDP_OK)
        status = fsdp_scope_status(s);
    fsdp_scope_close(s);
    return status;
}

static fsdp_status generate(generation *g, const fsdp_batch *batch)
{
    int64_t live;
    FSDP_TRY(count_live(g, &live));
    if (live == 0)
        return FSDP_OK;
    FSDP_TRY(encode(g, batch));
    for (int64_t step = 0; step < g->max_steps && live > 0; step++) {
        FSDP_TRY(decode_step(g));
        FSDP_TRY(count_live(g, &live));
    }
    return FSDP_OK;
}

static fsdp_status begin(generation *g, int32_t rows)
{
    size_t n = (size_t)rows;
    g->live = rows;
    g->row_of = fsdp_calloc(n, sizeof *g->row_of);
    g->ids = fsdp_calloc(n, sizeof *g->ids);
    g->kept = fsdp_calloc(n, sizeof *g->kept);
    if (!g->row_of || !g->ids || !g->kept)
        return FSDP_ERR_NOMEM;
    for (int32_t i = 0; i < rows; i++) {
        g->row_of[i] = i;
        g->ids[i] = (int32_t)g->config.decoder_start_token_id;
        g->outputs[i].len = 0;
        FSDP_TRY(append(&g->outputs[i], g->ids[i]));
    }
    return FSDP_OK;
}

int64_t fsdp_generate_max_steps(int64_t max_new_tokens, const fsdp_generation_config *c)
{
    if (max_new_tokens > 0)
        return max_new_tokens;
    return c->max_new_tokens > 0 ? c->max_new_tokens : c->max_length - 1;
}

fsdp_status fsdp_generate_greedy(const fsdp_model *model, fsdp_device *device,
                                 const fsdp_batch *batch, const fsdp_generate_options *options,
                                 fsdp_token_list *outputs)
{
    static const fsdp_generate_options defaults = {0};
    const fsdp_generate_options *o = options ? options : &defaults;
    generation g = {.model = model,
                    .device = device,
                    .config = o->config ? *o->config : of_model(&model->config),
                    .outputs = outputs};
    g.max_steps = fsdp_generate_max_steps(o->max_new_tokens, &g.config);
    fsdp_status status = begin(&g, batch->rows);
    bool holds = status == FSDP_OK && !o->reshard_each_step;
    if (holds)
        status = fsdp_model_hold_unsharded(model, true);
    if (status == FSDP_OK)
        status = generate(&g, batch);
    if (holds) {
        fsdp_status let_go = fsdp_model_hold_unsharded(model, false);
        status = status != FSDP_OK ? status : let_go;
    }
    fsdp_t5_cache_destroy(g.cache);
    fsdp_free(g.row_of);
    fsdp_free(g.ids);
    fsdp_free(g.kept);
    return status;
}
