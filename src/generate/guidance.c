/* See guidance.h. The unconditional sequences have a batch and a cache of their own. */
#include "src/generate/guidance.h"

#include "src/base/alloc.h"
#include "src/generate/beam_search.h"
#include "src/models/model_type.h"

struct fsdp_guidance {
    const fsdp_model *model;
    const fsdp_decoder *decoder;
    float scale;
    fsdp_batch *batch; /* the beginnings of the unconditional sequences */
    fsdp_decode_cache *cache;
    int64_t vocab;
    float *scores; /* [rows, vocab]: log-probabilities of the current step */
};

bool fsdp_guidance_is_on(const fsdp_generation_config *config)
{
    return config->guidance_scale != 1.0;
}

fsdp_status fsdp_guidance_check(const fsdp_model *model, const fsdp_generation_config *config)
{
    const int64_t positions = model->info.max_positions;
    if (!fsdp_guidance_is_on(config))
        return FSDP_OK;
    if (model->info.format.task == FSDP_TASK_SEQ2SEQ)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "guidance_scale %g: classifier-free guidance is for causal models, as in "
                          "transformers; a %s has no sequence without a source",
                          config->guidance_scale, model->info.class_name);
    if (positions > 0 && config->negative_prompt_ids.n > positions)
        return fsdp_error(FSDP_ERR_INVALID,
                          "the negative prompt has %d ids, but the model has %lld positions",
                          (int)config->negative_prompt_ids.n, (long long)positions);
    return FSDP_OK;
}

/* Make the batch of the beginnings of the unconditional sequences. */
static fsdp_status make_batch(fsdp_guidance *g, const fsdp_generation_config *config,
                              const fsdp_batch *batch)
{
    const fsdp_rule_ids *negative = &config->negative_prompt_ids;
    fsdp_batch_row *rows = fsdp_calloc((size_t)batch->rows, sizeof *rows);
    if (!rows)
        return FSDP_ERR_NOMEM;
    for (int32_t i = 0; i < batch->rows; i++) {
        const int32_t end = batch->source_offsets[i + 1];
        rows[i] = (fsdp_batch_row){.source = batch->input_ids + end - 1, .source_len = 1};
        if (negative->n > 0)
            rows[i] = (fsdp_batch_row){.source = negative->ids, .source_len = negative->n};
    }
    const fsdp_status status =
        fsdp_batch_create(rows, batch->rows, &g->model->info.format, &g->batch);
    fsdp_free(rows);
    return status;
}

fsdp_status fsdp_guidance_create(const fsdp_model *model, const fsdp_generation_config *config,
                                 const fsdp_batch *batch, size_t most_rows, fsdp_guidance **out)
{
    fsdp_guidance *g = fsdp_calloc(1, sizeof *g);
    if (!g)
        return FSDP_ERR_NOMEM;
    g->model = model;
    g->decoder = model->config.type->decoder;
    g->scale = (float)config->guidance_scale;
    g->vocab = model->info.vocab_size;
    g->scores = fsdp_calloc(most_rows * (size_t)g->vocab, sizeof *g->scores);
    fsdp_status status = g->scores ? make_batch(g, config, batch) : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status = g->decoder->create(model->module, &g->cache);
    if (status == FSDP_OK)
        *out = g;
    else
        fsdp_guidance_destroy(g);
    return status;
}

void fsdp_guidance_destroy(fsdp_guidance *g)
{
    if (!g)
        return;
    if (g->cache)
        g->decoder->destroy(g->cache);
    fsdp_batch_release(g->batch);
    fsdp_free(g->scores);
    fsdp_free(g);
}

/* Convert the logits to log-probabilities in g->scores. */
static fsdp_status keep_scores(fsdp_guidance *g, fsdp_tensor *logits)
{
    const int64_t rows = fsdp_tensor_size(logits, 0);
    FSDP_TRY(fsdp_tensor_to_floats(logits, g->scores));
    for (int64_t i = 0; i < rows; i++)
        if (!fsdp_log_softmax(g->scores + i * g->vocab, g->vocab))
            return fsdp_error(FSDP_ERR_NUMERIC,
                              "guidance_scale: the logits of the unconditional sequence are NaN or "
                              "infinite");
    return FSDP_OK;
}

fsdp_status fsdp_guidance_step(fsdp_guidance *g, fsdp_device *device, const int32_t *ids)
{
    fsdp_scope *s;
    const fsdp_scope_options options = {.batch = g->batch};
    FSDP_TRY(fsdp_scope_open(device, NULL, &options, &s));
    fsdp_tensor *logits = ids ? g->decoder->step(s, g->model->module, g->cache, ids)
                              : g->decoder->prompt(s, g->model->module, g->cache);
    fsdp_status status = fsdp_scope_status(s);
    if (status == FSDP_OK)
        status = keep_scores(g, logits);
    fsdp_scope_close(s);
    return status;
}

fsdp_status fsdp_guidance_apply(const fsdp_guidance *g, int32_t row, float *logits)
{
    const float *free_scores = g->scores + row * g->vocab;
    if (!fsdp_log_softmax(logits, g->vocab))
        return fsdp_error(FSDP_ERR_NUMERIC, "the logits are infinite");
    for (int64_t i = 0; i < g->vocab; i++)
        logits[i] = g->scale * (logits[i] - free_scores[i]) + free_scores[i];
    return FSDP_OK;
}

void fsdp_guidance_select(fsdp_guidance *g, fsdp_scope *s, const int32_t *rows, int32_t n)
{
    g->decoder->select(s, g->cache, rows, n);
}
