/* See generate.h. The model reads each prompt only once, and stores the prompt's keys and values in
 * the cache. All sequences that are generated for a prompt (beams or samples) start with these keys
 * and values. Sequences that have ended are removed from the cache, so later steps do less work. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/comm/agree.h"
#include "src/generate/beam_search.h"
#include "src/generate/generate.h"
#include "src/generate/guidance.h"
#include "src/generate/logits_process.h"
#include "src/generate/sampling.h"
#include "src/generate/stop_strings.h"
#include "src/models/model_type.h"
#include "src/report/human.h"

/* The score of an output for which beam search has no finished beam, because fewer beams have
 * finished than there are outputs. transformers uses the same number. */
#define UNFINISHED_SCORE (-1e9)

/* One row of the batch: a prompt and the sequences that are generated for it. A sequence that has
 * not ended is called a running sequence. Each running sequence has a row in the cache. */
typedef struct prompt {
    /* [num_return_sequences]; points into generation.outputs. The ids of each output begin with the
     * prompt. */
    fsdp_generated *outputs;
    int64_t max_new;
    int32_t n_live;
    /* [num_return_sequences]; not used in beam search. Running sequence i, for i < n_live, is
     * outputs[live[i]]. */
    int32_t *live;
    fsdp_beam_search *beams; /* NULL: greedy search or sampling */
    fsdp_source_ids source;  /* points into the batch */
} prompt;

typedef struct generation {
    const fsdp_model *model;
    const fsdp_decoder *decoder;
    fsdp_device *device;
    fsdp_generation_config config;
    const fsdp_generate_options *options;
    fsdp_stop_strings stop;
    fsdp_decode_cache *cache;
    prompt *prompts; /* [n_prompts] */
    int32_t n_prompts;
    fsdp_generated *outputs;
    size_t n_outputs;
    int32_t *live; /* [n_outputs]: memory for the arrays `live` of all prompts */
    int32_t rows;  /* number of rows in the cache */
    /* [largest number of rows]: the cache rows of the sequences that continue after this step */
    int32_t *from;
    int32_t *ids;     /* [largest number of rows]: the next id of each row in `from` */
    int32_t going_on; /* number of elements of `from` and `ids` so far */
    int64_t step, vocab;
    float *scores;              /* [vocab] scores of the current row */
    fsdp_candidate *candidates; /* [vocab]: scratch for sampling */
    /* [length of the longest sequence or source]: scratch for the repetition penalties */
    float *penalized;
    fsdp_guidance *guidance; /* NULL: guidance_scale is 1 */
    double began;            /* fsdp_clock_s() at the beginning, for max_time */
} generation;

void fsdp_generated_free(fsdp_generated *outputs, size_t n)
{
    for (size_t i = 0; outputs && i < n; i++)
        fsdp_token_list_fini(&outputs[i].ids);
    fsdp_free(outputs);
}

/* --- settings --- */

fsdp_status fsdp_model_generation_config(const fsdp_model *model, fsdp_generation_config *config)
{
    const fsdp_generation_config own = fsdp_generation_config_of(&model->info);
    fsdp_generation_config c = own;
    if (model->dir) {
        FSDP_TRY(fsdp_generation_config_read(model->dir, &c));
        if (c.decoder_start_token_id < 0)
            c.decoder_start_token_id = own.decoder_start_token_id;
        /* The settings have no eos_token_id. If the settings come from a config.json, use the
         * model's default. If the settings come from a generation_config.json, no id ends a
         * sequence. */
        if (c.n_eos == 0 && c.from_config_json) {
            c.eos_token_ids[0] = own.eos_token_ids[0];
            c.n_eos = own.n_eos;
        }
    }
    *config = c;
    return FSDP_OK;
}

fsdp_setting_flag fsdp_generation_settings_first(const fsdp_generation_settings *settings)
{
    fsdp_setting_flag flag = {""};
    const char *first = NULL;
#define FSDP_FIRST(name)                                                                           \
    if (!first && settings->asked_for.name)                                                        \
        first = #name;
    FSDP_GENERATION_SETTINGS(FSDP_FIRST)
#undef FSDP_FIRST
    if (first)
        snprintf(flag.text, sizeof flag.text, "--%s", first);
    for (char *c = flag.text; *c; c++)
        *c = *c == '_' ? '-' : *c;
    return flag;
}

static fsdp_status check_beam_settings(const fsdp_generation_settings *s,
                                       const fsdp_generation_config *c)
{
    const bool penalty = s->asked_for.length_penalty && c->length_penalty != 1;
    const bool stops = s->asked_for.early_stopping && c->early_stopping;
    const bool again = s->asked_for.renormalize_logits && c->renormalize_logits;
    if (c->num_beams > 1 || (!penalty && !stops && !again))
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID, "--%s needs --num-beams above 1",
                      penalty ? "length-penalty"
                      : stops ? "early-stopping"
                              : "renormalize-logits");
}

static fsdp_status check_sampling_settings(const fsdp_generation_settings *s,
                                           const fsdp_generation_config *c)
{
    const char *flag = s->asked_for.temperature && c->temperature != 1        ? "temperature"
                       : s->asked_for.top_k && c->top_k > 0                   ? "top-k"
                       : s->asked_for.top_p && c->top_p < 1                   ? "top-p"
                       : s->asked_for.min_p && c->min_p > 0                   ? "min-p"
                       : s->asked_for.top_h && c->top_h > 0                   ? "top-h"
                       : s->asked_for.typical_p && c->typical_p < 1           ? "typical-p"
                       : s->asked_for.epsilon_cutoff && c->epsilon_cutoff > 0 ? "epsilon-cutoff"
                       : s->asked_for.eta_cutoff && c->eta_cutoff > 0         ? "eta-cutoff"
                                                                              : NULL;
    if (c->do_sample || !flag)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID,
                      "--%s needs --do-sample: without it the most likely token is chosen", flag);
}

fsdp_status fsdp_generation_settings_check(const fsdp_generation_settings *s,
                                           const fsdp_generation_config *c)
{
    if (s->asked_for.max_length && s->asked_for.max_new_tokens)
        return fsdp_error(FSDP_ERR_INVALID, "--max-length contradicts --max-new-tokens, which is "
                                            "the same limit without the prompt");
    if (s->asked_for.min_length && s->asked_for.min_new_tokens)
        return fsdp_error(FSDP_ERR_INVALID, "--min-length contradicts --min-new-tokens, which is "
                                            "the same limit without the prompt");
    if (s->asked_for.negative_prompt_ids && !fsdp_guidance_is_on(c))
        return fsdp_error(FSDP_ERR_INVALID,
                          "--negative-prompt-ids needs --guidance-scale other than 1, which leads "
                          "away from this prompt");
    FSDP_TRY(check_beam_settings(s, c));
    return check_sampling_settings(s, c);
}

void fsdp_generate_warn(const fsdp_generation_config *config)
{
    if (*config->unsupported)
        fsdp_log("generate", FSDP_LOG_WARN, -1, 1,
                 "generation_config.json sets %s, which is not supported", config->unsupported);
    if (config->n_eos == 0 && !config->from_config_json)
        fsdp_log("generate", FSDP_LOG_WARN, -1, 1, FSDP_GENERATES_WITHOUT_EOS);
}

int64_t fsdp_generate_max_new(const fsdp_model *model, const fsdp_generation_config *config,
                              int64_t prompt_length)
{
    int64_t max_new = fsdp_generation_config_max_new(config, prompt_length);
    /* The last new id is never an input of the model, so it needs no position. This is the reason
     * for + 1. */
    const int64_t negative =
        fsdp_guidance_is_on(config) ? (int64_t)config->negative_prompt_ids.n : 0;
    const int64_t longest = negative > prompt_length ? negative : prompt_length;
    const int64_t room = model->info.max_positions - longest + 1;
    return model->info.max_positions > 0 && room < max_new ? room : max_new;
}

/* Check that the ids in the settings are ids of the model. */
static fsdp_status check_rules(const fsdp_generation_config *c, int64_t vocab_size)
{
    const struct {
        const char *key;
        const int32_t *ids;
        int32_t n;
    } lists[] = {
        {"bad_words_ids", c->bad_words_ids.ids, c->bad_words_ids.n},
        {"suppress_tokens", c->suppress_tokens.ids, c->suppress_tokens.n},
        {"begin_suppress_tokens", c->begin_suppress_tokens.ids, c->begin_suppress_tokens.n},
        {"forced_bos_token_id", c->forced_bos_token_id.ids, c->forced_bos_token_id.n},
        {"forced_eos_token_id", c->forced_eos_token_id.ids, c->forced_eos_token_id.n},
        {"sequence_bias", c->sequence_bias.words.ids, c->sequence_bias.words.n},
        {"negative_prompt_ids", c->negative_prompt_ids.ids, c->negative_prompt_ids.n},
    };
    for (size_t i = 0; i < FSDP_LENGTH(lists); i++)
        FSDP_TRY(fsdp_rule_ids_check(lists[i].key, lists[i].ids, lists[i].n, vocab_size));
    return FSDP_OK;
}

fsdp_status fsdp_generate_check(const fsdp_model *model, const fsdp_generation_config *config)
{
    const fsdp_model_info *info = &model->info;
    if (!model->config.type->decoder)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "a %s does not generate%s", info->class_name,
                          info->format.task == FSDP_TASK_CLASSIFICATION && info->num_labels > 0
                              ? ": 'fsdp classify' prints the labels that it gives to texts"
                          : info->format.task == FSDP_TASK_MASKED_LM
                              ? ": it is for masked-lm; 'fsdp evaluate' measures it"
                              : "");
    if (info->format.task == FSDP_TASK_SEQ2SEQ &&
        config->decoder_start_token_id != info->format.decoder_start_token_id)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "the generation's decoder_start_token_id is %lld, the model's is %d",
                          (long long)config->decoder_start_token_id,
                          (int)info->format.decoder_start_token_id);
    FSDP_TRY(check_rules(config, info->vocab_size));
    FSDP_TRY(fsdp_guidance_check(model, config));
    return fsdp_generation_config_check(config);
}

/* --- one row of the logits, and one row of the cache --- */

/* Copy row `row` of the logits to g->scores. Returns FSDP_ERR_NUMERIC if one of the scores is NaN,
 * unless remove_invalid_values is set. */
static fsdp_status read_scores(generation *g, fsdp_tensor *logits, int32_t row)
{
    fsdp_tensor *view;
    FSDP_TRY(fsdp_tensor_narrow(logits, row, row + 1, &view));
    fsdp_status status = fsdp_tensor_to_floats(view, g->scores);
    fsdp_tensor_release(view);
    for (int64_t i = 0; i < g->vocab && status == FSDP_OK && !g->config.remove_invalid_values; i++)
        if (isnan(g->scores[i]))
            status = fsdp_error(FSDP_ERR_NUMERIC, "the logits are NaN: %s",
                                fsdp_human_not_finite_advice(fsdp_tensor_dtype(logits)));
    return status;
}

static void process_scores(generation *g, const prompt *p, const fsdp_token_list *ids)
{
    fsdp_logits_process(&g->config, ids, (int64_t)p->outputs->prompt_length, &p->source, g->scores,
                        g->vocab, g->penalized);
}

/* Convert g->scores from logits to log-probabilities. If a logit is NaN or infinite, return
 * FSDP_ERR_NUMERIC with `message`. But if remove_invalid_values is set, return FSDP_OK, and all
 * results are NaN. */
static fsdp_status normalize_scores(generation *g, const char *message)
{
    if (fsdp_log_softmax(g->scores, g->vocab))
        return FSDP_OK;
    if (!g->config.remove_invalid_values)
        return fsdp_error(FSDP_ERR_NUMERIC, "%s", message);
    for (int64_t i = 0; i < g->vocab; i++)
        g->scores[i] = (float)NAN;
    return FSDP_OK;
}

static void continue_row(generation *g, int32_t row, int32_t id)
{
    g->from[g->going_on] = row;
    g->ids[g->going_on++] = id;
}

/* --- greedy search and sampling --- */

static fsdp_status choose_id(generation *g, const fsdp_generated *output, int32_t *id)
{
    const fsdp_draw draw = {.seed = g->options->seed,
                            .row = (uint64_t)g->options->first_row *
                                       (uint64_t)g->config.num_return_sequences +
                                   (uint64_t)(output - g->outputs),
                            .step = (uint64_t)g->step};
    *id = g->config.do_sample ? fsdp_sample(&g->config, g->scores, g->vocab, &draw, g->candidates)
                              : fsdp_argmax(g->scores, g->vocab);
    return *id >= 0 ? FSDP_OK : fsdp_error(FSDP_ERR_NUMERIC, "no id is left to draw");
}

static fsdp_status append_id(fsdp_token_list *list, int32_t id)
{
    if (!FSDP_GROW(list->ids, list->cap, list->len + 1))
        return FSDP_ERR_NOMEM;
    list->ids[list->len++] = id;
    return FSDP_OK;
}

/* Append an id to each running sequence of a prompt. In the first step, all sequences of the prompt
 * use row `first` of `logits`. In later steps, the logits of running sequence i are in row first +
 * i. */
static fsdp_status extend_sequences(generation *g, prompt *p, fsdp_tensor *logits, int32_t first)
{
    int32_t n = p->n_live;
    p->n_live = 0;
    for (int32_t i = 0; i < n; i++) {
        const int32_t row = g->step == 0 ? first : first + i, which = p->live[i];
        fsdp_generated *output = &p->outputs[which];
        int32_t id;
        FSDP_TRY(read_scores(g, logits, row));
        if (g->guidance)
            FSDP_TRY(fsdp_guidance_apply(g->guidance, row, g->scores));
        process_scores(g, p, &output->ids);
        FSDP_TRY(choose_id(g, output, &id));
        bool stops;
        FSDP_TRY(fsdp_stop_strings_check(&g->stop, output->ids.ids, output->ids.len, id, &stops));
        FSDP_TRY(append_id(&output->ids, id));
        if (g->options->on_id)
            FSDP_TRY(g->options->on_id(g->options->arg, (int32_t)(p - g->prompts), which, id));
        if (stops || fsdp_is_end_of_sequence(&g->config, id) || g->step + 1 == p->max_new)
            continue;
        p->live[p->n_live++] = which;
        continue_row(g, row, id);
    }
    return FSDP_OK;
}

/* --- beam search --- */

static fsdp_status take_beams(const generation *g, prompt *p)
{
    const fsdp_beam_search *b = p->beams;
    for (int32_t i = 0; i < g->config.num_return_sequences; i++) {
        fsdp_generated *output = &p->outputs[i];
        output->score = UNFINISHED_SCORE;
        if (i >= b->n_finished)
            continue;
        output->score = (double)b->finished[i].score;
        FSDP_TRY(fsdp_token_list_set(&output->ids, b->finished[i].ids.ids, b->finished[i].ids.len));
    }
    return FSDP_OK;
}

/* Run a step of a prompt's beam search. The logits of its running beams begin at row `first`. */
static fsdp_status step_beams(generation *g, prompt *p, fsdp_tensor *logits, int32_t first)
{
    fsdp_beam_search *b = p->beams;
    for (int32_t i = 0; i < b->n_running; i++) {
        FSDP_TRY(read_scores(g, logits, first + i));
        FSDP_TRY(normalize_scores(g, "the logits are infinite"));
        if (g->guidance)
            FSDP_TRY(fsdp_guidance_apply(g->guidance, first + i, g->scores));
        process_scores(g, p, &b->running[i].ids);
        if (g->config.renormalize_logits)
            FSDP_TRY(normalize_scores(g, "no id is left to choose"));
        fsdp_beam_search_offer(b, i, g->scores, g->vocab);
    }
    FSDP_TRY(fsdp_beam_search_advance(b));
    p->n_live = b->done ? 0 : b->n_running;
    for (int32_t i = 0; i < p->n_live; i++)
        continue_row(g, first + b->running[i].parent,
                     b->running[i].ids.ids[b->running[i].ids.len - 1]);
    return b->done ? take_beams(g, p) : FSDP_OK;
}

/* --- steps --- */

static bool all_go_on(const generation *g)
{
    if (g->going_on != g->rows)
        return false;
    for (int32_t i = 0; i < g->rows; i++)
        if (g->from[i] != i)
            return false;
    return true;
}

/* If the batch has taken more than max_time, let each sequence end with its next id. */
static void end_if_late(const generation *g, prompt *p)
{
    if (g->config.max_time == 0 || fsdp_clock_s() - g->began <= g->config.max_time)
        return;
    if (p->max_new > g->step + 1)
        p->max_new = g->step + 1;
    if (p->beams)
        p->beams->max_new = p->max_new;
}

/* Choose the next id of each running sequence. Then remove the rows of sequences that have ended
 * from the cache. */
static fsdp_status choose_next_ids(generation *g, fsdp_scope *s, fsdp_tensor *logits)
{
    int32_t first = 0;
    g->going_on = 0;
    for (int32_t i = 0; i < g->n_prompts; i++) {
        prompt *p = &g->prompts[i];
        const int32_t rows = g->step == 0 ? 1 : p->n_live;
        if (rows == 0)
            continue;
        end_if_late(g, p);
        fsdp_status status =
            p->beams ? step_beams(g, p, logits, first) : extend_sequences(g, p, logits, first);
        fsdp_error_context(status, "generate: row %lld", (long long)(g->options->first_row + i));
        FSDP_TRY(status);
        first += rows;
    }
    if (!all_go_on(g)) {
        g->decoder->select(s, g->cache, g->from, g->going_on);
        if (g->guidance)
            fsdp_guidance_select(g->guidance, s, g->from, g->going_on);
    }
    g->rows = g->going_on;
    return fsdp_scope_status(s);
}

static fsdp_status run_step(generation *g, const fsdp_batch *batch)
{
    fsdp_scope *s;
    const fsdp_scope_options options = {.batch = batch};
    FSDP_TRY(fsdp_scope_open(g->device, NULL, &options, &s));
    fsdp_tensor *logits = g->step == 0 ? g->decoder->prompt(s, g->model->module, g->cache)
                                       : g->decoder->step(s, g->model->module, g->cache, g->ids);
    fsdp_status status = fsdp_scope_status(s);
    if (status == FSDP_OK && g->guidance)
        status = fsdp_guidance_step(g->guidance, g->device, g->step == 0 ? NULL : g->ids);
    if (status == FSDP_OK)
        status = choose_next_ids(g, s, logits);
    fsdp_scope_close(s);
    g->step++;
    return status;
}

/* Set *rows to the number of running sequences of all ranks together. `status` is the status of
 * this rank. If any rank passes an error, all ranks return an error. */
static fsdp_status count_rows(const generation *g, fsdp_status status, int64_t *rows)
{
    fsdp_group *group = g->model->group;
    int64_t sums[] = {status == FSDP_OK ? g->rows : 0, status != FSDP_OK}; /* rows, failed ranks */
    *rows = sums[0];
    if (!group || fsdp_group_world_size(group) == 1)
        return status;
    FSDP_TRY(fsdp_all_reduce(group, sums, FSDP_LENGTH(sums), FSDP_DTYPE_I64, FSDP_REDUCE_SUM));
    *rows = sums[0];
    return sums[1] ? fsdp_agree(group, status) : FSDP_OK;
}

static fsdp_status run_steps(generation *g, const fsdp_batch *batch)
{
    int64_t rows;
    fsdp_status status = g->decoder->create(g->model->module, &g->cache);
    g->began = fsdp_clock_s();
    FSDP_TRY(count_rows(g, status, &rows));
    while (rows > 0) {
        status = run_step(g, batch);
        FSDP_TRY(count_rows(g, status, &rows));
    }
    return FSDP_OK;
}

/* --- setup and cleanup --- */

/* Set *ids to the ids that generation continues: the start token for T5, the input ids of row `row`
 * for any other model. *ids points into the model or the batch, so the caller does not free it. */
static void prompt_ids(const generation *g, const fsdp_batch *batch, int32_t row,
                       const int32_t **ids, size_t *n)
{
    const fsdp_model_info *info = &g->model->info;
    *ids = &info->format.decoder_start_token_id;
    *n = 1;
    if (info->format.task != FSDP_TASK_SEQ2SEQ) {
        *ids = batch->input_ids + batch->source_offsets[row];
        *n = (size_t)(batch->source_offsets[row + 1] - batch->source_offsets[row]);
    }
}

static fsdp_status begin_prompt(generation *g, const fsdp_batch *batch, int32_t row,
                                size_t *longest)
{
    prompt *p = &g->prompts[row];
    const int32_t per_prompt = (int32_t)g->config.num_return_sequences, *ids;
    size_t n;
    prompt_ids(g, batch, row, &ids, &n);
    p->max_new = fsdp_generate_max_new(g->model, &g->config, (int64_t)n);
    if (n == 0)
        return fsdp_error(FSDP_ERR_INVALID, "the prompt is empty");
    if (p->max_new < 1)
        return fsdp_error(FSDP_ERR_INVALID, "a prompt of %zu ids leaves no room for new ones", n);
    p->outputs = g->outputs + (size_t)row * (size_t)per_prompt;
    p->live = g->live + (size_t)row * (size_t)per_prompt;
    p->n_live = per_prompt;
    for (int32_t i = 0; i < per_prompt; i++) {
        p->live[i] = i;
        p->outputs[i].prompt_length = n;
        FSDP_TRY(fsdp_token_list_set(&p->outputs[i].ids, ids, n));
    }
    p->source.ids = batch->input_ids + batch->source_offsets[row];
    p->source.n = (size_t)(batch->source_offsets[row + 1] - batch->source_offsets[row]);
    *longest = n + (size_t)p->max_new > *longest ? n + (size_t)p->max_new : *longest;
    *longest = p->source.n > *longest ? p->source.n : *longest;
    if (g->config.num_beams == 1)
        return FSDP_OK;
    FSDP_TRY(fsdp_beam_search_create(&g->config, ids, n, p->max_new, &p->beams));
    p->beams->stop = &g->stop;
    return FSDP_OK;
}

static fsdp_status begin_generation(generation *g, const fsdp_batch *batch)
{
    const size_t n = (size_t)batch->rows, per_prompt = (size_t)g->config.num_return_sequences;
    const size_t wide = g->config.num_beams > 1 ? (size_t)g->config.num_beams : per_prompt;
    size_t longest = 0;
    if (n * wide > INT32_MAX)
        return fsdp_error(FSDP_ERR_INVALID, "generate: %zu prompts with %zu sequences each", n,
                          wide);
    g->rows = g->n_prompts = batch->rows;
    g->n_outputs = n * per_prompt;
    g->vocab = g->model->info.vocab_size;
    g->prompts = fsdp_calloc(n, sizeof *g->prompts);
    g->outputs = fsdp_calloc(g->n_outputs, sizeof *g->outputs);
    g->live = fsdp_calloc(g->n_outputs, sizeof *g->live);
    g->from = fsdp_calloc(n, wide * sizeof *g->from);
    g->ids = fsdp_calloc(n, wide * sizeof *g->ids);
    g->scores = fsdp_calloc((size_t)g->vocab, sizeof *g->scores);
    g->candidates = fsdp_calloc(g->config.do_sample ? (size_t)g->vocab : 0, sizeof *g->candidates);
    if (!g->prompts || !g->outputs || !g->live || !g->from || !g->ids || !g->scores ||
        !g->candidates)
        return FSDP_ERR_NOMEM;
    for (int32_t i = 0; i < g->n_prompts; i++) {
        fsdp_status status = begin_prompt(g, batch, i, &longest);
        fsdp_error_context(status, "generate: row %lld", (long long)(g->options->first_row + i));
        FSDP_TRY(status);
    }
    g->penalized = fsdp_calloc(longest, sizeof *g->penalized);
    if (!g->penalized)
        return FSDP_ERR_NOMEM;
    return fsdp_guidance_is_on(&g->config)
               ? fsdp_guidance_create(g->model, &g->config, batch, n * wide, &g->guidance)
               : FSDP_OK;
}

static void end_generation(generation *g)
{
    if (g->cache)
        g->decoder->destroy(g->cache);
    fsdp_guidance_destroy(g->guidance);
    for (int32_t i = 0; g->prompts && i < g->n_prompts; i++)
        fsdp_beam_search_destroy(g->prompts[i].beams);
    fsdp_free(g->prompts);
    fsdp_generated_free(g->outputs, g->n_outputs);
    fsdp_free(g->live);
    fsdp_free(g->from);
    fsdp_free(g->ids);
    fsdp_free(g->scores);
    fsdp_free(g->candidates);
    fsdp_free(g->penalized);
}

fsdp_status fsdp_generate(const fsdp_model *model, fsdp_device *device, const fsdp_batch *batch,
                          const fsdp_generate_options *options, fsdp_generated **outputs)
{
    static const fsdp_generate_options defaults = {0};
    const fsdp_generate_options *o = options ? options : &defaults;
    generation g = {.model = model,
                    .decoder = model->config.type->decoder,
                    .device = device,
                    .config = o->config ? *o->config : fsdp_generation_config_of(&model->info),
                    .options = o};
    FSDP_TRY(fsdp_generate_check(model, &g.config));
    FSDP_TRY(fsdp_stop_strings_init(&g.stop, o->tokenizer, &g.config.stop_strings));
    fsdp_status status = fsdp_agree(model->group, begin_generation(&g, batch));
    bool holds = status == FSDP_OK && !o->reshard_each_step;
    if (holds)
        status = fsdp_model_hold_unsharded(model, true);
    if (status == FSDP_OK)
        status = run_steps(&g, batch);
    if (holds) {
        fsdp_status let_go = fsdp_model_hold_unsharded(model, false);
        status = status != FSDP_OK ? status : let_go;
    }
    if (status == FSDP_OK) {
        *outputs = g.outputs;
        g.outputs = NULL;
    }
    end_generation(&g);
    return status;
}
