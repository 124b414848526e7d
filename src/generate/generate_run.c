/* See generate_run.h. The prompts are divided into batches. In each round, every rank generates for
 * one batch: rank 0 takes the next batch, rank 1 the batch after it, and so on. An all-gather then
 * brings the results to rank 0, which reports them in the order of prompts. For the all-gather, the
 * results of all sequences are padded to the same size. */
#include <stdio.h>
#include <string.h>

#include <fsdp/pretrained.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "src/comm/agree.h"
#include "src/comm/comm.h"
#include "src/generate/generate.h"
#include "src/generate/generate_run.h"
#include "src/generate/prompts.h"
#include "src/tensor/cards.h"

/* The result for one sequence, as ranks send it to rank 0. */
typedef struct gathered_row {
    double score;
    int32_t prompt_length, n;
    int32_t ids[];
} gathered_row;

typedef struct generate_run {
    const fsdp_generate_config *config;
    fsdp_group *group;
    int rank, world_size;
    fsdp_device *device;
    fsdp_model *model;
    fsdp_tokenizer *tokenizer; /* NULL: prompts and results are ids only */
    fsdp_generation_config generation;
    fsdp_prompts prompts;
    size_t batch_size;
    size_t per_prompt; /* number of sequences per prompt */
    size_t row_bytes;  /* size of a gathered_row that can hold the longest possible sequence */
    /* number of prompts that get fewer new tokens than the settings allow, because the model has
     * too few positions */
    size_t n_short;
    fsdp_generate_report_fn *report;
    fsdp_generate_note_fn *note;
    void *arg;
} generate_run;

static void report_note(const generate_run *g, const char *text)
{
    if (g->rank == 0 && g->note)
        g->note(text, g->arg);
}

/* --- preparing --- */

static fsdp_status check_tokenizer(const generate_run *g)
{
    const int32_t pieces = fsdp_tokenizer_vocab_size(g->tokenizer);
    if (pieces <= g->model->info.vocab_size)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID,
                      "%s has %d pieces, the model's vocabulary only %lld: they do not belong "
                      "together",
                      fsdp_tokenizer_path(g->tokenizer), (int)pieces,
                      (long long)g->model->info.vocab_size);
}

/* Open the tokenizer that the user gave, or else the model's tokenizer. A run needs a tokenizer if
 * the user gave one, or if there are prompts that are text. If a run does not need a tokenizer, a
 * failure to open the model's tokenizer is not an error: the run continues without a tokenizer. If
 * the model has a tokenizer, but it is damaged or does not fit the model, a note is reported. */
static fsdp_status open_tokenizer(generate_run *g)
{
    const fsdp_generate_config *c = g->config;
    const bool needed = c->n_texts || c->input || c->tokenizer;
    fsdp_status status =
        fsdp_tokenizer_open(c->tokenizer ? c->tokenizer : g->model->dir, &g->tokenizer);
    if (status != FSDP_OK && !c->tokenizer)
        fsdp_error_context(
            status, "texts need a tokenizer: give --tokenizer, or --input-ids instead of texts");
    if (status == FSDP_OK)
        status = check_tokenizer(g);
    if (status == FSDP_OK || needed || status == FSDP_ERR_NOMEM)
        return status;
    if (status != FSDP_ERR_NOT_FOUND && status != FSDP_ERR_UNSUPPORTED) {
        char text[640];
        snprintf(text, sizeof text, "only ids, no texts: %.*s", (int)sizeof text - 40,
                 fsdp_last_error());
        report_note(g, text);
    }
    fsdp_tokenizer_close(g->tokenizer);
    g->tokenizer = NULL;
    return FSDP_OK;
}

/* If there are several ranks, check that `path` is a regular file. Every rank reads the file. From
 * a pipe, each rank would get only a part of the prompts. */
static fsdp_status check_file(const generate_run *g, const char *flag, const char *path)
{
    if (!path || g->world_size == 1)
        return FSDP_OK;
    const fsdp_status status = fsdp_path_check(path);
    if (status != FSDP_ERR_INVALID)
        return status;
    return fsdp_error(status,
                      "%s %s: not a regular file; every rank reads it, which a pipe does not "
                      "allow: write it to a file, or use one rank",
                      flag, path);
}

static bool is_seq2seq(const generate_run *g)
{
    return g->model->info.format.task == FSDP_TASK_SEQ2SEQ;
}

/* Return the number of ids to which texts are cut; 0: they are not cut. The default for T5 is 512,
 * as in training. The default for texts that a causal model continues is 0, as in transformers. */
static int max_source_length(const generate_run *g)
{
    if (g->config->max_source_length_given)
        return g->config->max_source_length;
    return is_seq2seq(g) ? 512 : 0;
}

static fsdp_status check_prefix(const generate_run *g)
{
    const fsdp_generate_config *c = g->config;
    if (!c->task_prefix || !*c->task_prefix || c->n_texts || c->input)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID,
                      "--task-prefix is put before texts; --input-ids %s has only ids",
                      c->input_ids ? c->input_ids : "");
}

/* Read the prompts that are rows of ids. A row is cut only if the user gave --max-source-length. */
static fsdp_status read_ids(generate_run *g)
{
    const fsdp_generate_config *c = g->config;
    const fsdp_prompt_ids rows = {
        .vocab_size = g->model->info.vocab_size,
        .max_length = c->max_source_length_given ? c->max_source_length : 0,
        .eos_id = is_seq2seq(g) ? (int32_t)g->model->info.eos_token_id : -1};
    return fsdp_prompts_read_ids(&g->prompts, &rows, c->input_ids);
}

static fsdp_status read_prompts(generate_run *g)
{
    const fsdp_generate_config *c = g->config;
    FSDP_TRY(check_file(g, "--input", c->input));
    FSDP_TRY(check_file(g, "--input-ids", c->input_ids));
    const fsdp_prompt_encoding e = {.tokenizer = g->tokenizer,
                                    .prefix = c->task_prefix,
                                    .max_length = max_source_length(g),
                                    .to_continue = !is_seq2seq(g)};
    for (size_t i = 0; i < c->n_texts; i++)
        FSDP_TRY(fsdp_prompts_add_text(&g->prompts, &e, c->texts[i]));
    if (c->input)
        FSDP_TRY(fsdp_prompts_read_texts(&g->prompts, &e, c->input));
    if (c->input_ids)
        FSDP_TRY(read_ids(g));
    if (g->prompts.n == 0)
        return fsdp_error(FSDP_ERR_INVALID, "there are no prompts to generate from");
    return check_prefix(g);
}

static void report_notes(const generate_run *g)
{
    char text[640];
    if (*g->generation.unsupported) {
        snprintf(text, sizeof text, "generation_config.json sets %s, which is not supported",
                 g->generation.unsupported);
        report_note(g, text);
    }
    if (g->generation.n_eos == 0 && !g->generation.from_config_json)
        report_note(g, FSDP_GENERATES_WITHOUT_EOS);
    if (g->prompts.note)
        report_note(g, g->prompts.note);
    if (g->n_short) {
        snprintf(text, sizeof text,
                 "the model has %lld positions: for %zu of %zu prompts they end before the limit "
                 "of new tokens",
                 (long long)g->model->info.max_positions, g->n_short, g->prompts.n);
        report_note(g, text);
    }
    if (g->prompts.n_cut) {
        snprintf(text, sizeof text,
                 "--max-source-length: %zu of %zu prompts cut to their first %d tokens",
                 g->prompts.n_cut, g->prompts.n, max_source_length(g));
        report_note(g, text);
    }
}

/* Return the error for prompt `i`, which has `n` ids and leaves no room for new ids. */
static fsdp_status no_room(const generate_run *g, size_t i, size_t n)
{
    const int64_t positions = g->model->info.max_positions;
    if (n == 0)
        return fsdp_error(FSDP_ERR_INVALID, "prompt %zu has 0 ids: there is nothing to continue",
                          i + 1);
    const bool full = positions > 0 && (int64_t)n > positions;
    return fsdp_error(FSDP_ERR_INVALID,
                      "prompt %zu has %zu ids: there is no room for new ones (%s is %lld)", i + 1,
                      n, full ? "the model's number of positions" : "max_length",
                      (long long)(full ? positions : g->generation.max_length));
}

/* Check that every prompt leaves room for new ids. Then set row_bytes to the size of a gathered_row
 * that can hold the longest possible sequence. */
static fsdp_status check_lengths(generate_run *g)
{
    size_t longest = 0;
    for (size_t i = 0; i < g->prompts.n; i++) {
        size_t n = is_seq2seq(g) ? 1 : g->prompts.items[i].ids.len;
        int64_t max_new = fsdp_generate_max_new(g->model, &g->generation, (int64_t)n);
        if (n == 0 || max_new < 1)
            return no_room(g, i, n);
        g->n_short += max_new < fsdp_generation_config_max_new(&g->generation, (int64_t)n);
        longest = n + (size_t)max_new > longest ? n + (size_t)max_new : longest;
    }
    /* round up to a multiple of 8, so that `score` of the next row is aligned */
    g->row_bytes = (sizeof(gathered_row) + longest * sizeof(int32_t) + 7) & ~(size_t)7;
    return FSDP_OK;
}

/* Report a device other than the CPU to the user, who may not have asked for it. */
static void note_device(const generate_run *g)
{
    char device[256], note[300];
    if (g->device->ops == &fsdp_device_cpu)
        return;
    fsdp_device_describe(g->device, device);
    snprintf(note, sizeof note, "device: %s", device);
    report_note(g, note);
}

static fsdp_status prepare(generate_run *g)
{
    const fsdp_generate_config *c = g->config;
    const fsdp_device_options device = {
        .name = c->device, .threads = c->threads_per_rank, .isa = c->isa};
    FSDP_TRY(fsdp_rank_device_create(g->group, &device, &g->device));
    note_device(g);
    fsdp_model_options model = {.name = c->model, .shard.mp_policy.param_dtype = c->param_dtype};
    FSDP_TRY(fsdp_model_open(&model, g->group, g->device, &g->model));
    fsdp_status status = open_tokenizer(g);
    if (status == FSDP_OK)
        status = fsdp_model_generation_config(g->model, &g->generation);
    fsdp_generation_config_set(&g->generation, &c->generation);
    if (c->num_return_sequences > 0)
        g->generation.num_return_sequences = c->num_return_sequences;
    if (status == FSDP_OK)
        status = fsdp_generate_check(g->model, &g->generation);
    if (status == FSDP_OK)
        status = fsdp_generation_settings_check(&c->generation, &g->generation);
    if (status == FSDP_OK && c->asks_for_seed && !g->generation.do_sample)
        status = fsdp_error(FSDP_ERR_INVALID,
                            "--seed needs --do-sample: without it the most likely token is chosen");
    if (status == FSDP_OK)
        status = read_prompts(g);
    if (status == FSDP_OK)
        status = check_lengths(g);
    FSDP_TRY(fsdp_agree(g->group, status));
    g->per_prompt = (size_t)g->generation.num_return_sequences;
    g->batch_size = c->batch_size > 0 ? (size_t)c->batch_size : 8;
    report_notes(g);
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
    fsdp_status status = fsdp_batch_create(rows, (int32_t)n, &g->model->info.format, batch);
    fsdp_free(rows);
    return status;
}

static gathered_row *row_at(const generate_run *g, char *rows, size_t i)
{
    return (gathered_row *)(void *)(rows + i * g->row_bytes);
}

static void pack_row(const fsdp_generated *output, gathered_row *row)
{
    row->score = output->score;
    row->prompt_length = (int32_t)output->prompt_length;
    row->n = (int32_t)output->ids.len;
    memcpy(row->ids, output->ids.ids, output->ids.len * sizeof *row->ids);
}

/* Generate for prompts [first, first + n), and write per_prompt rows for each prompt to `rows`. */
static fsdp_status run_batch(const generate_run *g, size_t first, size_t n, char *rows)
{
    fsdp_batch *batch = NULL;
    fsdp_generated *outputs = NULL;
    fsdp_status status = fsdp_agree(g->group, make_batch(g, first, n, &batch));
    const fsdp_generate_options options = {.config = &g->generation,
                                           .reshard_each_step = g->config->reshard_each_step,
                                           .seed = g->config->seed,
                                           .first_row = (int64_t)first};
    if (status == FSDP_OK)
        status = fsdp_generate(g->model, g->device, batch, &options, &outputs);
    for (size_t i = 0; outputs && i < n * g->per_prompt; i++)
        pack_row(&outputs[i], row_at(g, rows, i));
    fsdp_generated_free(outputs, n * g->per_prompt);
    fsdp_batch_release(batch);
    return status;
}

/* Report sequence `i` of a round to the caller. `first` is the index of the round's first
 * prompt. */
static fsdp_status report_row(const generate_run *g, size_t first, size_t i,
                              const gathered_row *row)
{
    const size_t index = first + i / g->per_prompt;
    const fsdp_prompt *prompt = &g->prompts.items[index];
    fsdp_generate_result result = {.index = index,
                                   .sequence = i % g->per_prompt,
                                   .prompt = prompt->text,
                                   .input_ids = prompt->ids.ids,
                                   .n_input_ids = prompt->ids.len,
                                   .ids = row->ids,
                                   .n_ids = (size_t)row->n,
                                   .prompt_length = (size_t)row->prompt_length,
                                   .has_score = g->generation.num_beams > 1,
                                   .score = row->score};
    char *text = NULL;
    if (g->tokenizer)
        FSDP_TRY(fsdp_tokenizer_decode(g->tokenizer, row->ids + row->prompt_length,
                                       (size_t)(row->n - row->prompt_length),
                                       FSDP_DECODE_SKIP_SPECIAL | FSDP_DECODE_SKIP_UNKNOWN, &text));
    result.text = text;
    g->report(&result, g->arg);
    fsdp_text_free(text);
    return FSDP_OK;
}

/* Run one round. `first` is the index of the round's first prompt. The first batch_size prompts of
 * the round are for rank 0, the next batch_size prompts are for rank 1, and so on. In the last
 * round, a rank may get fewer prompts or none. `mine` is memory for the results of this rank, and
 * `all` is memory for the results of all ranks. */
static fsdp_status run_round(const generate_run *g, size_t first, char *mine, char *all)
{
    size_t bytes = g->batch_size * g->per_prompt * g->row_bytes, total = g->prompts.n - first;
    size_t begin = (size_t)g->rank * g->batch_size;
    size_t n = begin >= total ? 0 : total - begin;
    if (n > g->batch_size)
        n = g->batch_size;
    memset(mine, 0, bytes);
    FSDP_TRY(run_batch(g, first + (n ? begin : 0), n, mine));
    if (g->world_size > 1)
        FSDP_TRY(fsdp_all_gather(g->group, mine, bytes, all));
    size_t shown = g->batch_size * (size_t)g->world_size;
    shown = (shown < total ? shown : total) * g->per_prompt;
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; g->rank == 0 && i < shown && status == FSDP_OK; i++)
        status = report_row(g, first, i, row_at(g, g->world_size > 1 ? all : mine, i));
    return fsdp_agree(g->group, status);
}

static fsdp_status run_all(generate_run *g)
{
    if (g->batch_size > g->prompts.n) /* do not use more memory than the prompts need */
        g->batch_size = g->prompts.n ? g->prompts.n : 1;
    size_t rows = g->batch_size * g->per_prompt;
    char *mine = fsdp_calloc(rows, g->row_bytes);
    char *all = fsdp_calloc(rows * (size_t)g->world_size, g->row_bytes);
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
                      .rank = fsdp_group_rank(group),
                      .world_size = fsdp_group_world_size(group),
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
