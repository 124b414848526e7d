/* Prepares a run of `fsdp generate`: opens what it needs, and reads settings and prompts. */
#include <stdio.h>
#include <string.h>

#include <fsdp/pretrained.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "src/base/shown_text.h"
#include "src/comm/agree.h"
#include "src/generate/generate_run_internal.h"
#include "src/generate/guidance.h"
#include "src/pretrained/model_tokenizer.h"
#include "src/tensor/cards.h"
#include "src/text/special_in_text.h"
#include "src/text/unknown_in_text.h"

enum {
    /* the default of max_new_tokens for answers in conversations; transformers' default, a total
     * length of 20, would be too short */
    DEFAULT_ANSWER_TOKENS = 1024
};

void fsdp_generate_note(const generate_run *g, const char *text)
{
    if (g->rank == 0 && g->note)
        g->note(text, g->arg);
}

/* Open the tokenizer that the user gave with --tokenizer, or else the model's tokenizer. The run
 * needs a tokenizer if the user gave one, or if there are prompts that are text. If the run does
 * not need a tokenizer and the model's tokenizer cannot be opened, the run continues without a
 * tokenizer. The user gets a note if the tokenizer is damaged or does not fit the model. */
static fsdp_status open_tokenizer(generate_run *g)
{
    const fsdp_generate_config *c = g->config;
    const bool needed = c->n_texts || c->input || c->tokenizer || c->chat;
    fsdp_status status =
        fsdp_tokenizer_open(c->tokenizer ? c->tokenizer : g->model->dir, &g->tokenizer);
    if (status != FSDP_OK && !c->tokenizer)
        fsdp_error_context(
            status, "texts need a tokenizer: give --tokenizer, or --input-ids instead of texts");
    if (status == FSDP_OK)
        status = fsdp_model_check_tokenizer(g->model, g->tokenizer);
    if (status == FSDP_OK || needed || status == FSDP_ERR_NOMEM)
        return status;
    if (status != FSDP_ERR_NOT_FOUND && status != FSDP_ERR_UNSUPPORTED) {
        char text[640];
        snprintf(text, sizeof text, "only ids, no texts: %.*s", (int)sizeof text - 40,
                 fsdp_last_error());
        fsdp_generate_note(g, text);
    }
    fsdp_tokenizer_close(g->tokenizer);
    g->tokenizer = NULL;
    return FSDP_OK;
}

/* If there are several ranks, return an error unless `path` is a regular file. Every rank reads the
 * whole file; if it were a pipe, each rank would get only a part of the prompts. */
static fsdp_status check_file(const generate_run *g, const char *flag, const char *path)
{
    if (!path || g->world_size == 1)
        return FSDP_OK;
    const bool is_stdin = strcmp(path, "-") == 0;
    const fsdp_status status = fsdp_path_check(path);
    if (status != FSDP_ERR_INVALID && !is_stdin)
        return status;
    return fsdp_error(FSDP_ERR_INVALID,
                      "%s %s: not a regular file; every rank reads it, which a pipe does not "
                      "allow: write it to a file, or use one rank",
                      flag, path);
}

static bool is_seq2seq(const generate_run *g)
{
    return g->model->info.format.task == FSDP_TASK_SEQ2SEQ;
}

/* Return the number of ids to which a text is cut, or 0 if texts are not cut. By default, texts for
 * T5 are cut to 512 ids, as in training. Texts that a causal model continues are not cut by
 * default, as in transformers. */
static int max_source_length(const generate_run *g)
{
    if (g->config->max_source_length_given)
        return g->config->max_source_length;
    return is_seq2seq(g) ? 512 : 0;
}

static bool has_texts(const fsdp_prompts *prompts)
{
    for (size_t i = 0; i < prompts->n; i++)
        if (prompts->items[i].text)
            return true;
    return false;
}

/* Return an error if --task-prefix, --system or --text-column was given but has no effect. */
static fsdp_status check_texts(const generate_run *g)
{
    const fsdp_generate_config *c = g->config;
    const char *flag = c->task_prefix && *c->task_prefix ? "task-prefix"
                       : c->system                       ? "system"
                                                         : NULL;
    if (c->text_column && !c->input)
        return fsdp_error(FSDP_ERR_INVALID, "--text-column names a column of rows: it needs "
                                            "--input with a file of JSON, CSV or Arrow");
    if (!flag || has_texts(&g->prompts))
        return FSDP_OK;
    if (c->input_ids)
        return fsdp_error(FSDP_ERR_INVALID, "--%s is put before texts; --input-ids %s has only ids",
                          flag, c->input_ids);
    return fsdp_error(FSDP_ERR_INVALID,
                      "--%s is for texts; the rows of %s are conversations, with messages of their "
                      "own",
                      flag, c->messages ? c->messages : c->input);
}

/* Read the prompts that are rows of ids. A row is cut only if the user gave --max-source-length. */
static fsdp_status read_ids(generate_run *g)
{
    const fsdp_generate_config *c = g->config;
    const fsdp_prompt_ids rows = {
        .vocab_size = g->model->info.vocab_size,
        .max_length = c->max_source_length_given ? c->max_source_length : 0,
        .eos_id = is_seq2seq(g) ? (int32_t)g->model->info.eos_token_id : -1,
        .keep_ids = c->keep_ids};
    return fsdp_prompts_read_ids(&g->prompts, &rows, c->input_ids);
}

fsdp_prompt_encoding fsdp_generate_encoding(const generate_run *g)
{
    const char *given = g->config->task_prefix;
    return (fsdp_prompt_encoding){.tokenizer = g->tokenizer,
                                  .prefix = given ? given : g->model->text_prefix,
                                  .prefix_once = !given,
                                  .max_length = g->config->chat ? 0 : max_source_length(g),
                                  .to_continue = !is_seq2seq(g),
                                  .chat = g->config->chat ? &g->chat : NULL,
                                  .text_column = g->config->text_column,
                                  .keep_ids = g->config->keep_ids};
}

static fsdp_status read_prompts(generate_run *g)
{
    const fsdp_generate_config *c = g->config;
    FSDP_TRY(check_file(g, "--messages", c->messages));
    FSDP_TRY(check_file(g, "--input", c->input));
    FSDP_TRY(check_file(g, "--input-ids", c->input_ids));
    const fsdp_prompt_encoding e = fsdp_generate_encoding(g);
    for (size_t i = 0; i < c->n_texts; i++)
        FSDP_TRY(fsdp_prompts_add_text(&g->prompts, &e, c->texts[i]));
    if (c->input)
        FSDP_TRY(fsdp_prompts_read_file(&g->prompts, &e, c->input));
    if (c->messages)
        FSDP_TRY(fsdp_prompts_read_messages(&g->prompts, &e, c->messages));
    if (c->input_ids)
        FSDP_TRY(read_ids(g));
    if (g->prompts.n == 0)
        return fsdp_error(FSDP_ERR_INVALID, "there are no prompts to generate from");
    return check_texts(g);
}

/* Report the prompts that have characters or words which the tokenizer does not know. */
static void report_unknown(const generate_run *g)
{
    char text[640];
    fsdp_text t = {text, sizeof text};
    const fsdp_prompts *p = &g->prompts;
    if (!p->n_unknown)
        return;
    fsdp_text_printf(&t, "%zu of %zu prompts " FSDP_UNKNOWN_SAYS " ", p->n_unknown, p->n);
    fsdp_unknown_examples_print(&p->unknown_examples, &t);
    fsdp_text_printf(&t, "in prompt %zu; " FSDP_UNKNOWN_BECOMES, p->unknown + 1);
    fsdp_generate_note(g, text);
}

static void report_notes(const generate_run *g)
{
    char text[640];
    if (*g->generation.unsupported) {
        snprintf(text, sizeof text, "generation_config.json sets %s, which is not supported",
                 g->generation.unsupported);
        fsdp_generate_note(g, text);
    }
    if (g->generation.n_eos == 0 && !g->generation.from_config_json)
        fsdp_generate_note(g, FSDP_GENERATES_WITHOUT_EOS);
    if (g->prompts.note)
        fsdp_generate_note(g, g->prompts.note);
    if (g->prompts.n_special) {
        snprintf(text, sizeof text,
                 "special tokens are in the texts of %zu of %zu prompts, first '%.80s' in prompt "
                 "%zu; " FSDP_SPECIAL_BECOMES_ID,
                 g->prompts.n_special, g->prompts.n, g->prompts.special_token,
                 g->prompts.special + 1);
        fsdp_generate_note(g, text);
    }
    report_unknown(g);
    if (g->prompts.n_prefixed && !g->config->task_prefix) {
        snprintf(text, sizeof text,
                 "config.json of %.260s: '%s' is put before each text, as in training; "
                 "--task-prefix '' puts nothing there",
                 g->config->model, fsdp_show_text(g->model->text_prefix).text);
        fsdp_generate_note(g, text);
    }
    if (g->n_short) {
        snprintf(text, sizeof text,
                 "the model has %lld positions: for %zu of %zu prompts they end before the limit "
                 "of new tokens",
                 (long long)g->model->info.max_positions, g->n_short, g->prompts.n);
        fsdp_generate_note(g, text);
    }
    if (g->prompts.n_cut) {
        snprintf(text, sizeof text,
                 "--max-source-length: %zu of %zu prompts cut to their first %d tokens",
                 g->prompts.n_cut, g->prompts.n, max_source_length(g));
        fsdp_generate_note(g, text);
    }
}

/* Return the error for prompt `i`, which has `n` ids and is so long that no new id is possible. */
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

/* Check that every prompt is short enough for at least one new id. Then set row_bytes to the size
 * of a gathered_row that can hold the longest possible sequence. */
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

/* Inform the user which device is used, unless it is the CPU. If the user gave no device, it was
 * chosen by default. */
static void note_device(const generate_run *g)
{
    char device[256], note[300];
    if (g->device->ops == &fsdp_device_cpu)
        return;
    fsdp_device_describe(g->device, device);
    snprintf(note, sizeof note, "device: %s", device);
    fsdp_generate_note(g, note);
}

/* Open the chat template. If the template ends a turn with a special token, add this token to the
 * end-of-sequence ids, so that an answer ends with it. */
static fsdp_status open_chat(generate_run *g)
{
    const fsdp_generate_config *c = g->config;
    fsdp_model_tokenizer t = {0};
    if (is_seq2seq(g))
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "a conversation needs a causal model; a %s gets texts without --chat",
                          g->model->info.class_name);
    FSDP_TRY(fsdp_model_chat_open(g->model, c->tokenizer, c->chat_template, &t));
    g->chat_template = t.chat_template;
    memcpy(g->why_no_chat, t.why_no_chat, sizeof g->why_no_chat);
    g->chat = (fsdp_chat_prompts){.chat_template = g->chat_template,
                                  .why_none = *g->why_no_chat ? g->why_no_chat : NULL,
                                  .kwargs = c->chat_template_kwargs,
                                  .system = c->system,
                                  .continue_final_message = c->continue_final_message};
    if (!g->chat_template)
        return fsdp_error(FSDP_ERR_NOT_FOUND,
                          "a conversation needs a chat template; --chat-template takes one (%s)",
                          g->why_no_chat);
    return fsdp_chat_add_end_of_turn(&g->chat, g->tokenizer, &g->generation);
}

/* Encode --negative-prompt, as a prompt that is a text. */
static fsdp_status set_negative_prompt(generate_run *g)
{
    const fsdp_generate_config *c = g->config;
    const fsdp_prompt_encoding e = {.tokenizer = g->tokenizer, .to_continue = !is_seq2seq(g)};
    fsdp_rule_ids *ids = &g->generation.negative_prompt_ids;
    fsdp_prompts prompts = {0};
    if (c->generation.given.negative_prompt_ids)
        return fsdp_error(FSDP_ERR_INVALID, "--negative-prompt and --negative-prompt-ids both give "
                                            "the negative prompt; leave one out");
    if (!fsdp_guidance_is_on(&g->generation))
        return fsdp_error(FSDP_ERR_INVALID, "--negative-prompt needs --guidance-scale other than "
                                            "1, which leads away from this prompt");
    if (!g->tokenizer)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--negative-prompt needs a tokenizer: give --tokenizer");
    fsdp_status status = fsdp_prompts_add_text(&prompts, &e, c->negative_prompt);
    const fsdp_token_list *found = prompts.n ? &prompts.items[0].ids : NULL;
    if (status == FSDP_OK && (found->len == 0 || found->len > FSDP_MAX_RULE_IDS))
        status = fsdp_error(FSDP_ERR_INVALID, "--negative-prompt has %zu ids; it takes 1 to %d",
                            found->len, FSDP_MAX_RULE_IDS);
    if (status == FSDP_OK) {
        memcpy(ids->ids, found->ids, found->len * sizeof *ids->ids);
        ids->n = (int32_t)found->len;
    }
    fsdp_prompts_free(&prompts);
    return status;
}

static fsdp_status set_generation(generate_run *g)
{
    const fsdp_generate_config *c = g->config;
    FSDP_TRY(fsdp_model_generation_config(g->model, &g->generation));
    if (c->chat)
        FSDP_TRY(open_chat(g));
    fsdp_generation_config_set(&g->generation, &c->generation);
    if (c->chat && !g->generation.max_new_tokens && !g->generation.max_length)
        g->generation.max_new_tokens = DEFAULT_ANSWER_TOKENS;
    if (c->negative_prompt)
        FSDP_TRY(set_negative_prompt(g));
    if (c->num_return_sequences > 0)
        g->generation.num_return_sequences = c->num_return_sequences;
    FSDP_TRY(fsdp_generate_check(g->model, &g->generation));
    FSDP_TRY(fsdp_generation_settings_check(&c->generation, &g->generation));
    if (g->generation.stop_strings.n_bytes && !g->tokenizer)
        return fsdp_error(FSDP_ERR_INVALID, "stop strings need a tokenizer: give --tokenizer");
    if (c->asks_for_seed && !g->generation.do_sample)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--seed needs --do-sample: without it the most likely token is chosen");
    return FSDP_OK;
}

/* If text is to be shown while it is generated, check that this is possible. There must be only one
 * sequence, and a tokenizer. Beam search is not possible, because it may replace ids that it has
 * chosen. */
static fsdp_status check_stream(const generate_run *g)
{
    if (!g->config->part)
        return FSDP_OK;
    if (g->generation.num_beams > 1)
        return fsdp_error(FSDP_ERR_INVALID,
                          "text cannot be shown while a beam search (num_beams %lld) goes on, "
                          "because it may choose other tokens later",
                          (long long)g->generation.num_beams);
    if (g->generation.num_return_sequences > 1)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--stream and --chat show one text, not num_return_sequences %lld",
                          (long long)g->generation.num_return_sequences);
    if (g->report && g->prompts.n > 1)
        return fsdp_error(FSDP_ERR_INVALID, "--stream is for one prompt; there are %zu",
                          g->prompts.n);
    if (!g->tokenizer)
        return fsdp_error(FSDP_ERR_INVALID, "--stream needs a tokenizer: give --tokenizer");
    return FSDP_OK;
}

fsdp_status fsdp_generate_prepare(generate_run *g, bool prompts)
{
    const fsdp_generate_config *c = g->config;
    const fsdp_device_options device = {
        .name = c->device, .threads = c->threads_per_rank, .isa = c->isa};
    FSDP_TRY(fsdp_rank_device_create(g->group, &device, &g->device));
    note_device(g);
    fsdp_quantize_options quantize;
    fsdp_model_options model = {.name = c->model,
                                .quantize = fsdp_quantize_flags_options(&c->quantize, &quantize),
                                .adapter = c->adapter,
                                .keep_lm_head = true,
                                .keeps_norms = true,
                                .shard.mp_policy.param_dtype = c->param_dtype};
    FSDP_TRY(fsdp_model_open(&model, g->group, g->device, &g->model));
    fsdp_status status = open_tokenizer(g);
    if (status == FSDP_OK)
        status = set_generation(g);
    if (status == FSDP_OK && prompts)
        status = read_prompts(g);
    if (status == FSDP_OK)
        status = check_stream(g);
    if (status == FSDP_OK)
        status = check_lengths(g);
    FSDP_TRY(fsdp_agree(g->group, status));
    g->per_prompt = (size_t)g->generation.num_return_sequences;
    g->batch_size = c->batch_size > 0 ? (size_t)c->batch_size : 8;
    report_notes(g);
    return FSDP_OK;
}

void fsdp_generate_run_fini(generate_run *g)
{
    fsdp_prompts_free(&g->prompts);
    fsdp_chat_template_close(g->chat_template);
    fsdp_tokenizer_close(g->tokenizer);
    fsdp_model_close(g->model);
    fsdp_device_destroy(g->device);
}
