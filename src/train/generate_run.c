/* See generate_run.h. In each round, rank r takes the r-th batch of the next world_size; results
 * are gathered at fixed size, so that rank 0 reports them in order. */
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "src/comm/agree.h"
#include "src/train/generate.h"
#include "src/train/generate_run.h"
#include "src/train/prompts.h"
#include "src/train/threads.h"

typedef struct generate_run {
    const fsdp_generate_config *config;
    fsdp_group *group;
    int rank, world_size;
    fsdp_device *device;
    fsdp_model *model;
    fsdp_tokenizer *tokenizer; /* NULL: ids only */
    fsdp_generation_config generation;
    fsdp_prompts prompts;
    size_t batch_size;
    size_t row_ids; /* int32s of a gathered row: its length, then at most that many ids */
    fsdp_generate_report_fn *report;
    fsdp_generate_note_fn *note;
    void *arg;
} generate_run;

static void note(const generate_run *g, const char *text)
{
    if (g->rank == 0 && g->note)
        g->note(text, g->arg);
}

/* --- getting ready --- */

static fsdp_status open_tokenizer(generate_run *g)
{
    const fsdp_generate_config *c = g->config;
    char *own = fsdp_path_join(g->model->dir, "spiece.model");
    bool needed = c->n_texts || c->input;
    fsdp_status status = own ? FSDP_OK : FSDP_ERR_NOMEM;
    if (own && c->tokenizer)
        status = fsdp_tokenizer_open(c->tokenizer, &g->tokenizer);
    else if (own && (needed || fsdp_path_is_file(own)))
        status = fsdp_tokenizer_open(g->model->dir, &g->tokenizer);
    if (status == FSDP_ERR_NOT_FOUND && needed && !c->tokenizer)
        fsdp_error_context(status, "texts need a tokenizer (--tokenizer, or --input-ids without)");
    fsdp_free(own);
    FSDP_TRY(status);
    if (g->tokenizer && fsdp_tokenizer_vocab_size(g->tokenizer) > g->model->config.vocab_size)
        return fsdp_error(FSDP_ERR_INVALID,
                          "%s has %d pieces, the model's vocabulary only %lld: they do not belong "
                          "together",
                          fsdp_tokenizer_path(g->tokenizer),
                          (int)fsdp_tokenizer_vocab_size(g->tokenizer),
                          (long long)g->model->config.vocab_size);
    return FSDP_OK;
}

static fsdp_status read_prompts(generate_run *g)
{
    const fsdp_generate_config *c = g->config;
    const fsdp_prompt_encoding e = {
        .tokenizer = g->tokenizer, .prefix = c->task_prefix, .max_length = c->max_source_length};
    for (size_t i = 0; i < c->n_texts; i++)
        FSDP_TRY(fsdp_prompts_add_text(&g->prompts, &e, c->texts[i]));
    if (c->input)
        FSDP_TRY(fsdp_prompts_read_texts(&g->prompts, &e, c->input));
    if (c->input_ids)
        FSDP_TRY(fsdp_prompts_read_ids(&g->prompts, c->input_ids, g->model->config.vocab_size));
    if (g->prompts.n == 0)
        return fsdp_error(FSDP_ERR_INVALID, "there is nothing to generate from");
    return FSDP_OK;
}

static void tell_notes(const generate_run *g)
{
    char text[256];
    const fsdp_generation_config *c = &g->generation;
    if (g->model->report.n_unexpected) {
        snprintf(text, sizeof text, "%zu tensors of the file are not the model's, e.g. '%s'",
                 g->model->report.n_unexpected, g->model->report.unexpected[0]);
        note(g, text);
    }
    if (c->num_beams > 1 || c->do_sample ||
        (c->repetition_penalty > 0 && c->repetition_penalty != 1) || c->no_repeat_ngram_size > 0 ||
        c->min_length > 0)
        note(g, "generation_config.json asks for more than greedy search (beams, sampling, "
                "penalties or a least length), which this version does not do");
}

static fsdp_status prepare(generate_run *g)
{
    const fsdp_generate_config *c = g->config;
    fsdp_device_options device = {.threads = c->threads_per_rank, .isa = c->isa};
    if (device.threads == 0)
        FSDP_TRY(fsdp_default_threads(g->group, &device.threads));
    FSDP_TRY(fsdp_agree(g->group, fsdp_device_create(&device, &g->device)));
    fsdp_model_options model = {.name = c->model, .shard.mp_policy.param_dtype = c->param_dtype};
    FSDP_TRY(fsdp_model_open(&model, g->group, g->device, &g->model));
    fsdp_status status = open_tokenizer(g);
    if (status == FSDP_OK)
        status = fsdp_model_generation_config(g->model, &g->generation);
    if (status == FSDP_OK)
        status = read_prompts(g);
    FSDP_TRY(fsdp_agree(g->group, status));
    int64_t steps = fsdp_generate_max_steps(c->max_new_tokens, &g->generation);
    g->row_ids = (size_t)steps + 2;
    g->batch_size = c->batch_size > 0 ? (size_t)c->batch_size : 8;
    tell_notes(g);
    return FSDP_OK;
}

/* --- one round --- */

static fsdp_status make_batch(const generate_run *g, size_t first, size_t n, fsdp_batch **batch)
{
    fsdp_batch_row *rows = fsdp_calloc(n, sizeof *rows);
    if (!rows)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < n; i++)
        rows[i] = (fsdp_batch_row){.source = g->prompts.items[first + i].ids.ids,
                                   .source_len = (int32_t)g->prompts.items[first + i].ids.len};
    fsdp_status status = fsdp_batch_create(rows, (int32_t)n,
                                           (int32_t)g->generation.decoder_start_token_id, 0, batch);
    fsdp_free(rows);
    return status;
}

/* Generate for prompts [first, first + n) into rows [n, row_ids]. */
static fsdp_status run_batch(const generate_run *g, size_t first, size_t n, int32_t *rows)
{
    fsdp_batch *batch = NULL;
    fsdp_token_list *lists = fsdp_calloc(n, sizeof *lists);
    fsdp_status status = lists ? make_batch(g, first, n, &batch) : FSDP_ERR_NOMEM;
    status = fsdp_agree(g->group, status);
    const fsdp_generate_options options = {.max_new_tokens = g->config->max_new_tokens,
                                           .config = &g->generation,
                                           .reshard_each_step = g->config->reshard_each_step};
    if (status == FSDP_OK)
        status = fsdp_generate_greedy(g->model, g->device, batch, &options, lists);
    for (size_t i = 0; i < n && status == FSDP_OK; i++) {
        int32_t *row = rows + i * g->row_ids;
        row[0] = (int32_t)lists[i].len;
        memcpy(row + 1, lists[i].ids, lists[i].len * sizeof *row);
    }
    for (size_t i = 0; lists && i < n; i++)
        fsdp_token_list_fini(&lists[i]);
    fsdp_free(lists);
    fsdp_batch_release(batch);
    return status;
}

static fsdp_status report_row(const generate_run *g, size_t index, const int32_t *row)
{
    const fsdp_prompt *prompt = &g->prompts.items[index];
    fsdp_generate_result result = {.index = index,
                                   .prompt = prompt->text,
                                   .input_ids = prompt->ids.ids,
                                   .n_input_ids = prompt->ids.len,
                                   .ids = row + 1,
                                   .n_ids = (size_t)row[0]};
    char *text = NULL;
    if (g->tokenizer)
        FSDP_TRY(fsdp_tokenizer_decode(g->tokenizer, result.ids, result.n_ids,
                                       FSDP_DECODE_SKIP_SPECIAL | FSDP_DECODE_SKIP_UNKNOWN, &text));
    result.text = text;
    g->report(&result, g->arg);
    fsdp_text_free(text);
    return FSDP_OK;
}

/* Prompts [first, ...) of one round: batch_size for each rank, as far as they go. */
static fsdp_status run_round(const generate_run *g, size_t first, int32_t *mine, int32_t *all)
{
    size_t block = g->batch_size * g->row_ids, total = g->prompts.n - first;
    size_t begin = (size_t)g->rank * g->batch_size;
    size_t n = begin >= total ? 0 : total - begin;
    if (n > g->batch_size)
        n = g->batch_size;
    memset(mine, 0, block * sizeof *mine);
    FSDP_TRY(run_batch(g, first + (n ? begin : 0), n, mine));
    if (g->world_size > 1)
        FSDP_TRY(fsdp_all_gather(g->group, mine, block * sizeof *mine, all));
    const int32_t *rows = g->world_size > 1 ? all : mine;
    size_t shown = g->batch_size * (size_t)g->world_size;
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; g->rank == 0 && i < shown && i < total && status == FSDP_OK; i++)
        status = report_row(g, first + i, rows + i * g->row_ids);
    return fsdp_agree(g->group, status);
}

static fsdp_status run_all(generate_run *g)
{
    size_t block = g->batch_size * g->row_ids;
    int32_t *mine = fsdp_calloc(block, sizeof *mine);
    int32_t *all = fsdp_calloc(block * (size_t)g->world_size, sizeof *all);
    fsdp_status status = fsdp_agree(g->group, mine && all ? FSDP_OK : FSDP_ERR_NOMEM);
    for (size_t first = 0; first < g->prompts.n && status == FSDP_OK;
         first += g->batch_size * (size_t)g->world_size)
        status = run_round(g, first, mine, all);
    fsdp_free(mine);
    fsdp_free(all);
    return status;
}

fsdp_status fsdp_generate_run(const fsdp_generate_config *config, fsdp_group *group,
                              fsdp_generate_report_fn *report, fsdp_generate_note_fn *note_fn,
                              void *arg)
{
    generate_run g = {.config = config,
                      .group = group,
                      .rank = group ? fsdp_group_rank(group) : 0,
                      .world_size = group ? fsdp_group_world_size(group) : 1,
                      .report = report,
                      .note = note_fn,
                      .arg = arg};
    fsdp_status status = prepare(&g);
    if (status == FSDP_OK)
        status = run_all(&g);
    fsdp_prompts_free(&g.prompts);
    fsdp_tokenizer_close(g.tokenizer);
    fsdp_model_close(g.model);
    fsdp_device_destroy(g.device);
    return status;
}
