/* See generate_run.h. The prompts are divided into batches. In each round, every rank generates for
 * one batch: rank 0 takes the next batch, rank 1 the batch after it, and so on. An all-gather then
 * brings the results to rank 0, which reports them in the order of prompts. For the all-gather, the
 * results of all sequences are padded to the same size. */
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/str.h"
#include "src/comm/agree.h"
#include "src/generate/chat.h"
#include "src/generate/generate_run_internal.h"
#include "src/generate/text_stream.h"

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
    fsdp_chat_stream stream;
    fsdp_generated *outputs = NULL;
    const bool streams = g->config->part && n;
    if (streams)
        fsdp_chat_stream_init(&stream, g);
    if (streams && g->config->continue_final_message)
        stream.follows = &g->prompts.items[first].ids;
    fsdp_status status =
        fsdp_generate_batch(g, first, n, streams ? fsdp_chat_stream_id : NULL, &stream, &outputs);
    /* fsdp_generate_batch() fails alike on all ranks. The end of the stream, which writes to the
     * terminal, may fail on rank 0 alone. */
    const bool agrees = status == FSDP_OK;
    if (streams)
        status = fsdp_chat_stream_end(&stream, status);
    if (agrees)
        status = fsdp_agree(g->group, status);
    for (size_t i = 0; status == FSDP_OK && i < n * g->per_prompt; i++)
        pack_row(&outputs[i], row_at(g, rows, i));
    fsdp_generated_free(outputs, n * g->per_prompt);
    return status;
}

static fsdp_status append_text(void *arg, const char *text, size_t bytes)
{
    fsdp_str_append(arg, text, bytes);
    return FSDP_OK;
}

/* For --continue-final-message: decode the new ids of a sequence as the continuation of its
 * prompt's last message, so that a space at the beginning is kept. The caller frees *text with
 * fsdp_free(). */
static fsdp_status decode_continuation(const generate_run *g, const gathered_row *row, char **text)
{
    fsdp_text_stream stream;
    fsdp_str all = {0};
    fsdp_text_stream_init(&stream, g->tokenizer);
    fsdp_status status = fsdp_text_stream_follow(&stream, row->ids, (size_t)row->prompt_length);
    for (int64_t i = row->prompt_length; status == FSDP_OK && i < row->n; i++)
        status = fsdp_text_stream_add(&stream, row->ids[i], append_text, &all);
    if (status == FSDP_OK)
        status = fsdp_text_stream_end(&stream, append_text, &all);
    fsdp_text_stream_fini(&stream);
    if (status == FSDP_OK)
        *text = fsdp_str_take(&all);
    else
        fsdp_str_fini(&all);
    return status == FSDP_OK && !*text ? FSDP_ERR_NOMEM : status;
}

/* Decode the new ids of a sequence. If there is no tokenizer, *text is NULL. The caller frees *text
 * with fsdp_free(). */
static fsdp_status decode_row(const generate_run *g, const gathered_row *row, char **text)
{
    *text = NULL;
    if (!g->tokenizer)
        return FSDP_OK;
    if (g->config->continue_final_message)
        return decode_continuation(g, row, text);
    return fsdp_tokenizer_decode(g->tokenizer, row->ids + row->prompt_length,
                                 (size_t)(row->n - row->prompt_length), FSDP_DECODE_TEXT, text);
}

/* Call g->report with sequence `i` of a round. `first` is the index of the round's first prompt. */
static fsdp_status report_row(const generate_run *g, size_t first, size_t i,
                              const gathered_row *row)
{
    const size_t index = first + i / g->per_prompt;
    const fsdp_prompt *prompt = &g->prompts.items[index];
    fsdp_generate_result result = {.index = index,
                                   .sequence = i % g->per_prompt,
                                   .id = prompt->id,
                                   .prompt = prompt->text,
                                   .conversation = prompt->conversation,
                                   .chat = &g->chat,
                                   .input_ids = prompt->ids.ids,
                                   .n_input_ids = prompt->ids.len,
                                   .ids = row->ids,
                                   .n_ids = (size_t)row->n,
                                   .prompt_length = (size_t)row->prompt_length,
                                   .has_score = g->generation.num_beams > 1,
                                   .score = row->score};
    char *text;
    FSDP_TRY(decode_row(g, row, &text));
    result.text = text;
    g->report(&result, g->arg);
    fsdp_free(text);
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
    fsdp_status status = fsdp_generate_prepare(&g, !config->read_line);
    if (status == FSDP_OK)
        status = config->read_line ? fsdp_chat_run(&g) : run_all(&g);
    fsdp_generate_run_fini(&g);
    return status;
}
