/* The run of `fsdp evaluate`: it opens each model, computes the loss and generates texts. See Note
 * [Evaluating on several ranks] in evaluate.h. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <fsdp/train.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/clock.h"
#include "src/base/io.h"
#include "src/base/log.h"
#include "src/base/shown_text.h"
#include "src/base/str.h"
#include "src/comm/agree.h"
#include "src/comm/comm.h"
#include "src/data/datasets/dataset.h"
#include "src/data/files/output_name.h"
#include "src/data/left_out.h"
#include "src/data/rows/rows_form.h"
#include "src/evaluate/evaluate_internal.h"
#include "src/generate/generate.h"
#include "src/hf/hf_dir.h"
#include "src/pretrained/model_tokenizer.h"
#include "src/report/human.h"
#include "src/tensor/cards.h"
#include "src/text/chars/utf8.h"
#include "src/train/not_finite.h"
#include "src/train/step.h"
#include "src/train_config/config.h"
#include "src/train_config/config_paths.h"

/* The state of the run. `model` and the members below it belong to the model that is being
 * evaluated. */
typedef struct evaluator {
    const fsdp_evaluate_config *config;
    fsdp_group *group;
    fsdp_device *device;
    fsdp_evaluations *all;
    bool show_progress; /* true on rank 0, unless --json is given */
    fsdp_model *model;
    fsdp_model_tokenizer tokenizer;
    fsdp_dataset *set;
    /* settings for generating texts; zero if the run generates no texts */
    fsdp_generation_config generation;
} evaluator;

static bool is_first(const evaluator *v)
{
    return fsdp_group_rank(v->group) == 0;
}

/* --- reading texts, and gathering those of all ranks --- */

static void free_texts(fsdp_text_rows *rows)
{
    for (size_t i = 0; i < rows->n; i++)
        fsdp_free(rows->items[i]);
    fsdp_free(rows->items);
    *rows = (fsdp_text_rows){0};
}

/* Set *rows to one text per row of the dataset. If `sources` is true, this is the source text with
 * its prefix; otherwise, it is the target text. */
static fsdp_status read_texts(const fsdp_dataset *set, bool sources, fsdp_text_rows *rows)
{
    fsdp_status status = FSDP_OK;
    int64_t n = fsdp_dataset_len(set);
    rows->items = fsdp_calloc((size_t)n, sizeof *rows->items);
    if (!rows->items)
        return FSDP_ERR_NOMEM;
    for (int64_t i = 0; i < n && status == FSDP_OK; i++, rows->n++) {
        char *text;
        status = fsdp_dataset_texts(set, i, sources ? &text : NULL, sources ? NULL : &text);
        if (status != FSDP_OK)
            break;
        rows->items[i] = fsdp_strdup(text);
        fsdp_text_free(text);
        if (!rows->items[i])
            status = FSDP_ERR_NOMEM;
    }
    if (status != FSDP_OK)
        free_texts(rows);
    return status;
}

/* Return the rank that processes row `row` (Note [Evaluating on several ranks] in evaluate.h). */
static int rank_of_row(const evaluator *v, size_t row)
{
    return (int)(row / (size_t)v->config->batch_size % (size_t)fsdp_group_world_size(v->group));
}

/* Append the texts that were generated for the rows of this rank to `packed`, each with its NUL. */
static fsdp_status pack_texts(const evaluator *v, const fsdp_text_rows *mine, fsdp_str *packed)
{
    for (size_t i = 0; i < mine->n; i++)
        if (rank_of_row(v, i) == fsdp_group_rank(v->group))
            fsdp_str_append(packed, mine->items[i], strlen(mine->items[i]) + 1);
    return packed->failed ? fsdp_error_nomem() : FSDP_OK;
}

static fsdp_status unpack_texts(const evaluator *v, const char *all, size_t stride,
                                fsdp_text_rows *rows)
{
    for (int r = 0; r < fsdp_group_world_size(v->group); r++) {
        const char *text = all + (size_t)r * stride;
        for (size_t i = 0; i < rows->n; i++) {
            if (rank_of_row(v, i) != r)
                continue;
            if (!rows->items[i])
                rows->items[i] = fsdp_strdup(text);
            if (!rows->items[i])
                return FSDP_ERR_NOMEM;
            text += strlen(text) + 1;
        }
    }
    return FSDP_OK;
}

/* On rank 0, add the texts that the other ranks have generated to `rows`. On the other ranks,
 * `rows` does not change. Collective. */
static fsdp_status gather_texts(const evaluator *v, fsdp_text_rows *rows)
{
    int world_size = fsdp_group_world_size(v->group);
    fsdp_str packed = {0};
    char *send = NULL, *all = NULL;
    fsdp_status status = fsdp_agree(v->group, pack_texts(v, rows, &packed));
    int64_t most = (int64_t)packed.len;
    if (status == FSDP_OK)
        status = fsdp_all_reduce(v->group, &most, 1, FSDP_DTYPE_I64, FSDP_REDUCE_MAX);
    if (status == FSDP_OK && most > 0) {
        send = fsdp_calloc(1, (size_t)most);
        all = fsdp_calloc((size_t)world_size, (size_t)most);
        status = fsdp_agree(v->group, send && all ? FSDP_OK : FSDP_ERR_NOMEM);
    }
    if (status == FSDP_OK && most > 0) {
        memcpy(send, packed.data ? packed.data : "", packed.len);
        status = fsdp_all_gather(v->group, send, (size_t)most, all);
    }
    if (status == FSDP_OK && most > 0 && is_first(v))
        status = unpack_texts(v, all, (size_t)most, rows);
    fsdp_str_fini(&packed);
    fsdp_free(send);
    fsdp_free(all);
    return status;
}

/* --- opening models and data --- */

static fsdp_status open_device(evaluator *v)
{
    fsdp_device_options options = {
        .name = v->config->device, .threads = v->config->threads_per_rank, .isa = v->config->isa};
    if (options.threads == 0)
        FSDP_TRY(fsdp_default_threads(v->group, &options.threads));
    fsdp_group_set_threads(v->group, options.threads);
    return fsdp_rank_device_create(v->group, &options, &v->device);
}

static void print_device(const evaluator *v, FILE *out)
{
    char device[256];
    if (!is_first(v) || v->config->json)
        return;
    fsdp_device_describe(v->device, device);
    fprintf(out, "device: %s\n", device);
}

static fsdp_status open_model(evaluator *v, const char *name, bool random)
{
    if (v->config->adapter && v->config->models.count > 1)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--adapter %s: is for one model, and --model names %zu; name the folder "
                          "of the adapter in --model instead",
                          v->config->adapter, v->config->models.count);
    fsdp_quantize_options quantize;
    fsdp_model_options options = {
        .name = name,
        .quantize = fsdp_quantize_flags_options(&v->config->quantize, &quantize),
        .adapter = random ? NULL : v->config->adapter,
        .from_config = random,
        .seed = (uint64_t)v->config->seed,
        .keep_lm_head = true,
        .keeps_norms = true,
        .shard = {.mp_policy = {.param_dtype = v->config->param_dtype}},
    };
    return fsdp_model_open(&options, v->group, v->device, &v->model);
}

/* Return an error if the user gave an option that does not fit the model's task. Options for source
 * and target texts are only for seq2seq models, and --max-seq-length is only for models of other
 * tasks. */
static fsdp_status check_task_options(const evaluator *v)
{
    const fsdp_evaluate_config *c = v->config;
    const fsdp_model_info *info = &v->model->info;
    const fsdp_task task = info->format.task;
    const fsdp_setting_flag setting = fsdp_generation_settings_first(&c->generation);
    const char *flag = c->predictions                   ? "--predictions"
                       : c->prompts                     ? "--prompts"
                       : c->baseline_data               ? "--baseline-data"
                       : c->examples > 0                ? "--examples"
                       : c->wikihow_cleaning            ? "--wikihow-cleaning"
                       : c->asked_for.generate          ? "--generate"
                       : c->asked_for.max_source_length ? "--max-source-length"
                       : c->asked_for.max_target_length ? "--max-target-length"
                       : *setting.text                  ? setting.text
                                                        : NULL;
    if (task != FSDP_TASK_SEQ2SEQ && flag)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "%s is for seq2seq models; a %s is for %s", flag,
                          info->class_name, fsdp_train_task_name(task));
    if (task != FSDP_TASK_MASKED_LM && c->asked_for.mlm_probability)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "--mlm-probability is for masked language models; a %s is for %s",
                          info->class_name, fsdp_train_task_name(task));
    if (task == FSDP_TASK_MASKED_LM && c->target_column)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--target-column is for pairs and prompts; a %s has one text a row",
                          info->class_name);
    if (task == FSDP_TASK_SEQ2SEQ && c->max_seq_length > 0)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--max-seq-length is for causal-lm and classification; a %s has "
                          "--max-source-length and --max-target-length",
                          info->class_name);
    return FSDP_OK;
}

/* Check that the model has the same task as the first model, and that the options fit the task. */
static fsdp_status check_task(const evaluator *v)
{
    const fsdp_model_info *info = &v->model->info;
    const fsdp_task task = info->format.task;
    if (task != v->all->task)
        return fsdp_error(FSDP_ERR_INVALID,
                          "%s is for %s, the first model for %s: figures of different tasks cannot "
                          "be compared",
                          info->class_name, fsdp_train_task_name(task),
                          fsdp_train_task_name(v->all->task));
    if (info->format.problem_type != v->all->problem_type)
        return fsdp_error(FSDP_ERR_INVALID,
                          "%s: its problem type is not that of the first model: their figures "
                          "cannot be compared",
                          v->model->dir);
    if (task == FSDP_TASK_CLASSIFICATION && info->num_labels == 0)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "a %s has no head, so it cannot be evaluated",
                          info->class_name);
    return check_task_options(v);
}

/* Return the prefix that is put before each source text for the current model. */
static const char *source_prefix(const evaluator *v)
{
    const fsdp_evaluate_config *c = v->config;
    return c->task_prefix          ? c->task_prefix
           : v->model->text_prefix ? v->model->text_prefix
           : c->form.source_lang   ? ""
                                   : fsdp_train_task_prefix(v->model->info.format.task);
}

/* On rank 0, log which prefix is put before the source texts, unless the user gave it. */
static void note_prefix(const evaluator *v)
{
    const char *prefix = source_prefix(v);
    if (v->config->task_prefix || !prefix || !*prefix || !is_first(v) ||
        !(fsdp_dataset_uses(v->set) & FSDP_USES_SOURCE_PREFIX))
        return;
    const fsdp_shown_text shown = fsdp_show_text(prefix);
    if (v->model->text_prefix)
        fsdp_log("data", FSDP_LOG_WARN, -1, 1,
                 "config.json of %s: '%s' is put before each source text; --task-prefix '' puts "
                 "nothing there",
                 v->model->dir, shown.text);
    else
        fsdp_log("data", FSDP_LOG_WARN, -1, 1,
                 "'%s' is put before each source text, the default of seq2seq; --task-prefix '' "
                 "puts nothing there",
                 shown.text);
}

static fsdp_status open_dataset(const evaluator *v, const char *path, int64_t max_samples,
                                fsdp_dataset **set)
{
    const fsdp_evaluate_config *c = v->config;
    const fsdp_task task = v->model->info.format.task;
    const fsdp_masking masking = {.mlm_probability = c->mlm_probability};
    fsdp_dataset_options options = {
        .task = task,
        .source_prefix = source_prefix(v),
        .source_column = c->text_column,
        .target_column = c->target_column,
        .cleaning = c->wikihow_cleaning ? FSDP_CLEANING_WIKIHOW : FSDP_CLEANING_NONE,
        /* If the user gave no length, pass 0. The dataset then cuts texts to the default length,
         * and does not cut rows of token ids. */
        .max_source_length = c->cut_sources ? c->max_source_length : 0,
        .max_target_length = c->cut_targets ? c->max_target_length : 0,
        .max_length = c->max_seq_length,
        .max_samples = max_samples,
        .validation = true,
        .masking = &masking};
    fsdp_chat_row_options_apply(&c->chat, &options.chat);
    fsdp_form_options_apply(&c->form, &options);
    return fsdp_model_dataset_open(v->model, &v->tokenizer, path, &options, set);
}

/* Log up to three warnings about --data: if rows were cut or left out, if texts contain special
 * tokens, and if texts contain unknown characters. */
static fsdp_status warn_of_left_out(const evaluator *v)
{
    fsdp_left_out out;
    char text[1200];
    FSDP_TRY(fsdp_dataset_left_out(v->set, FSDP_LEFT_OUT_ROWS, &out));
    fsdp_left_out_text(&out, fsdp_dataset_len(v->set), v->config->data, text, sizeof text);
    if (*text)
        fsdp_log("data", FSDP_LOG_WARN, -1, 1, "%s", text);
    fsdp_special_rows_text(&out, fsdp_dataset_len(v->set), v->config->data, text, sizeof text);
    if (*text)
        fsdp_log("data", FSDP_LOG_WARN, -1, 1, "%s", text);
    fsdp_unknown_rows_text(&out, fsdp_dataset_len(v->set), v->config->data, text, sizeof text);
    if (*text)
        fsdp_log("data", FSDP_LOG_WARN, -1, 1, "%s", text);
    return FSDP_OK;
}

/* Return an error if the user gave an option that had no effect on the rows of --data. */
static fsdp_status check_uses(const evaluator *v)
{
    const fsdp_evaluate_config *c = v->config;
    const unsigned uses = fsdp_dataset_uses(v->set);
    const struct {
        bool asked_for;
        unsigned use;
        const char *flag, *texts;
    } options[] = {
        {c->asked_for.task_prefix, FSDP_USES_SOURCE_PREFIX, "task-prefix", "source texts"},
        {c->asked_for.text_column, FSDP_USES_SOURCE_COLUMN, "text-column", "texts with names"},
        {c->asked_for.target_column, FSDP_USES_TARGET_COLUMN, "target-column", "target texts"}};
    for (size_t i = 0; i < FSDP_LENGTH(options); i++) {
        if (!options[i].asked_for || uses & options[i].use)
            continue;
        if (!(uses & FSDP_USES_TEXTS))
            return fsdp_error(FSDP_ERR_INVALID,
                              "--%s is for rows that are texts; those of %s are ids",
                              options[i].flag, c->data);
        return fsdp_error(FSDP_ERR_INVALID, "--%s is for %s; a %s reads none from %s",
                          options[i].flag, options[i].texts, v->model->info.class_name, c->data);
    }
    FSDP_TRY(fsdp_chat_row_options_check_uses(&c->chat, uses, c->data));
    return fsdp_form_options_check_uses(&c->form, uses, c->data);
}

/* Open --data for the current model. The dataset's note is printed only for the first model. */
static fsdp_status open_data(evaluator *v, bool first_model)
{
    const fsdp_evaluate_config *c = v->config;
    FSDP_TRY(open_dataset(v, c->data, c->max_samples, &v->set));
    note_prefix(v);
    if (first_model && is_first(v) && fsdp_dataset_note(v->set))
        fsdp_log("data", FSDP_LOG_WARN, -1, 1, "%s", fsdp_dataset_note(v->set));
    if (first_model && is_first(v))
        FSDP_TRY(warn_of_left_out(v));
    return check_uses(v);
}

/* Read the texts that are the same for all models: the references, the sources for --prompts,
 * and the candidates for the best constant sentence. The caller has opened the first model and its
 * data. If the rows are token ids and there is no tokenizer, the references cannot be read as text.
 * In that case, no texts are generated, and only the loss is computed. Only rank 0 uses the
 * references, but every rank reads them to find out whether they are text. */
static fsdp_status open_texts(evaluator *v)
{
    fsdp_evaluations *all = v->all;
    if (!v->config->generate || all->task != FSDP_TASK_SEQ2SEQ)
        return FSDP_OK;
    fsdp_status status = read_texts(v->set, false, &all->references);
    const char *needs_texts = v->config->predictions ? "--predictions"
                              : v->config->prompts   ? "--prompts"
                                                     : NULL;
    if (status == FSDP_ERR_UNSUPPORTED && needs_texts)
        return fsdp_error(status, "%s: %s", needs_texts, fsdp_last_error());
    if (status == FSDP_ERR_UNSUPPORTED) {
        snprintf(all->no_texts, sizeof all->no_texts, "%.*s", (int)sizeof all->no_texts - 1,
                 fsdp_last_error());
        return FSDP_OK;
    }
    all->have_texts = status == FSDP_OK;
    if (status == FSDP_OK && v->config->prompts && is_first(v))
        status = read_texts(v->set, true, &all->prompts);
    if (status != FSDP_OK || !v->config->baseline_data || !is_first(v))
        return status;
    fsdp_dataset *baseline;
    FSDP_TRY(open_dataset(v, v->config->baseline_data, 0, &baseline));
    status = read_texts(baseline, false, &all->candidates);
    fsdp_dataset_close(baseline);
    return status;
}

/* --- evaluating --- */

static fsdp_status open_progress(const evaluator *v, const char *what, int64_t total,
                                 fsdp_progress **progress)
{
    fsdp_progress_options options = {.description = what,
                                     .total = total,
                                     .color = FSDP_PROGRESS_GREEN,
                                     .style =
                                         v->show_progress ? FSDP_PROGRESS_AUTO : FSDP_PROGRESS_OFF};
    return fsdp_progress_create(&options, progress);
}

static void count_batch(void *progress)
{
    fsdp_progress_update(progress, 1, NULL);
}

/* Find the rows whose loss is not finite, and the cause. Return the error that reports them. The
 * caller has filled loop->parameters. Collective. */
static fsdp_status not_finite(const evaluator *v, const fsdp_train_loop *loop,
                              const fsdp_step_result *sum)
{
    const fsdp_dtype dtype = v->config->param_dtype;
    const int64_t first = sum->not_finite.first, last = first + sum->not_finite.n - 1;
    const fsdp_named_parameter *bad;
    char what[64];
    snprintf(what, sizeof what, "the loss of rows %lld to %lld is %s", (long long)first,
             (long long)last, fsdp_human_not_finite(sum->loss));
    FSDP_TRY(fsdp_find_not_finite(loop, &bad));
    if (bad)
        return fsdp_error(FSDP_ERR_NUMERIC, "%s: %s: parameter %s has values that are not finite",
                          v->config->data, what, bad->name);
    return fsdp_error(FSDP_ERR_NUMERIC, "%s: %s in %s%s%s", v->config->data, what,
                      fsdp_dtype_name(dtype), dtype == FSDP_DTYPE_F16 ? ": " : "",
                      dtype == FSDP_DTYPE_F16 ? fsdp_human_not_finite_advice(dtype) : "");
}

/* If the loss in `sum` is not finite, return an error that says why. Collective. */
static fsdp_status check_loss(const evaluator *v, const char *name, fsdp_train_loop *loop,
                              const fsdp_step_result *sum)
{
    if (isfinite(sum->loss))
        return FSDP_OK;
    FSDP_TRY(fsdp_module_parameters(loop->module, false, &loop->parameters));
    fsdp_status status = not_finite(v, loop, sum);
    fsdp_error_context(status, "%s", name);
    fsdp_parameter_list_free(&loop->parameters);
    return status;
}

static fsdp_status measure_loss(evaluator *v, const char *name, fsdp_evaluation *result)
{
    fsdp_loader_options options = {.sampler = {.batch_size = v->config->batch_size,
                                               .rank = fsdp_group_rank(v->group),
                                               .world_size = fsdp_group_world_size(v->group),
                                               .no_shuffle = true,
                                               .seed = (uint64_t)v->config->seed},
                                   .format = v->model->info.format};
    fsdp_loader *loader;
    fsdp_progress *progress = NULL;
    fsdp_step_result sum;
    double begin = fsdp_clock_s();
    FSDP_TRY(fsdp_loader_create(v->set, &options, &loader));
    fsdp_train_loop loop = {.group = v->group,
                            .device = v->device,
                            .module = v->model->module,
                            .num_labels = v->model->info.num_labels,
                            .problem_type = v->model->info.format.problem_type,
                            .micro_steps = 1};
    fsdp_status status = open_progress(v, "loss", fsdp_loader_steps(loader), &progress);
    if (status == FSDP_OK)
        status = fsdp_validate(&loop, loader, count_batch, progress, &sum);
    fsdp_progress_destroy(progress);
    fsdp_loader_destroy(loader);
    FSDP_TRY(status);
    FSDP_TRY(fsdp_check_any_label(v->config->data, sum.labels));
    FSDP_TRY(check_loss(v, name, &loop, &sum));
    result->loss = sum.loss;
    result->measures = sum.measures;
    result->labels = sum.labels;
    result->rows = sum.rows;
    result->loss_s = fsdp_clock_s() - begin;
    return FSDP_OK;
}

/* Set texts[n] to the texts of outputs[n]. The caller owns them. */
static fsdp_status decode_outputs(const evaluator *v, const fsdp_generated *outputs, size_t n,
                                  char **texts)
{
    for (size_t i = 0; i < n; i++) {
        const fsdp_generated *o = &outputs[i];
        char *text;
        FSDP_TRY(fsdp_tokenizer_decode(v->tokenizer.tokenizer, o->ids.ids + o->prompt_length,
                                       o->ids.len - o->prompt_length, FSDP_DECODE_TEXT, &text));
        texts[i] = fsdp_strdup(text);
        fsdp_text_free(text);
        if (!texts[i])
            return FSDP_ERR_NOMEM;
    }
    return FSDP_OK;
}

/* Generate a text for each row of `batch`. The text of row i of the batch is written to
 * rows->items[first + i]. */
static fsdp_status write_block(const evaluator *v, const fsdp_batch *batch, size_t first,
                               fsdp_text_rows *rows)
{
    const fsdp_generate_options options = {.config = &v->generation,
                                           .seed = (uint64_t)v->config->seed,
                                           .first_row = (int64_t)first,
                                           .tokenizer = v->tokenizer.tokenizer};
    fsdp_generated *outputs;
    FSDP_TRY(fsdp_generate(v->model, v->device, batch, &options, &outputs));
    const fsdp_status status =
        fsdp_agree(v->group, decode_outputs(v, outputs, (size_t)batch->rows, rows->items + first));
    fsdp_generated_free(outputs, (size_t)batch->rows);
    return status;
}

/* Set *config to the settings for generating texts: those of the model, overridden by those that
 * the user gave. One text is generated for each row. If the user gave neither --max-new-tokens nor
 * --max-length, at most max_target_length new tokens are generated. */
static fsdp_status generation_config(const evaluator *v, fsdp_generation_config *config)
{
    const fsdp_generation_settings *s = &v->config->generation;
    FSDP_TRY(fsdp_model_generation_config(v->model, config));
    if (is_first(v))
        fsdp_generate_warn(config);
    fsdp_generation_config_set(config, s);
    if (!s->given.max_new_tokens && !s->given.max_length)
        config->max_new_tokens = v->config->max_target_length;
    config->num_return_sequences = 1;
    FSDP_TRY(fsdp_generate_check(v->model, config));
    FSDP_TRY(fsdp_generation_settings_check(s, config));
    if (fsdp_generate_max_new(v->model, config, 1) < 1)
        return fsdp_error(
            FSDP_ERR_INVALID,
            "max_length %lld includes the start token, which leaves no room for new ones",
            (long long)config->max_length);
    return FSDP_OK;
}

/* Set v->generation, and check that the model can generate texts with these settings. This is done
 * before the loss is computed, so that errors are reported early. */
static fsdp_status prepare_texts(evaluator *v, const char *name)
{
    if (!v->all->have_texts)
        return FSDP_OK;
    if (!v->tokenizer.tokenizer)
        return fsdp_error(FSDP_ERR_NOT_FOUND, "%s: no tokenizer to decode texts with: %s", name,
                          v->tokenizer.why_none);
    fsdp_status status = generation_config(v, &v->generation);
    /* an FSDP_ERR_FORMAT message already contains the name of a file */
    if (status != FSDP_ERR_FORMAT)
        fsdp_error_context(status, "%s", name);
    return fsdp_agree(v->group, status);
}

/* Return an error if the user gave --seed although nothing is random: the models have their
 * stored weights, no texts are sampled, and no rows are masked. */
static fsdp_status check_seed(const evaluator *v)
{
    const fsdp_evaluate_config *c = v->config;
    const bool draws_texts = v->all->have_texts && v->generation.do_sample;
    const bool masks = v->all->task == FSDP_TASK_MASKED_LM;
    if (!c->asked_for.seed || c->untrained || c->from_config || draws_texts || masks)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID,
                      "--seed needs --do-sample, --untrained or --from-config: nothing is drawn");
}

/* Collate `count` rows, beginning with row `first`. */
static fsdp_status collate_rows(const evaluator *v, size_t first, size_t count, fsdp_batch **batch)
{
    int64_t *indices = fsdp_calloc(count, sizeof *indices);
    if (!indices)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < count; i++)
        indices[i] = (int64_t)(first + i);
    const fsdp_status status =
        fsdp_collate(v->set, indices, (int32_t)count, &v->model->info.format, batch);
    fsdp_free(indices);
    return status;
}

/* Generate texts for block m of the rows (Note [Evaluating on several ranks] in evaluate.h). If
 * block m is beyond the last row, the batch is empty, but this rank must still take part in the
 * collective operations of the other ranks. */
static fsdp_status generate_block(const evaluator *v, size_t m, fsdp_text_rows *rows)
{
    size_t batch_size = (size_t)v->config->batch_size, first = m * batch_size;
    size_t count = first >= rows->n ? 0 : rows->n - first;
    if (count > batch_size)
        count = batch_size;
    fsdp_batch *batch = NULL;
    fsdp_status status = fsdp_agree(v->group, collate_rows(v, first, count, &batch));
    if (status == FSDP_OK)
        status = write_block(v, batch, first, rows);
    fsdp_batch_release(batch);
    return status;
}

static fsdp_status generate_rows(const evaluator *v, fsdp_text_rows *rows)
{
    size_t world_size = (size_t)fsdp_group_world_size(v->group);
    size_t batch_size = (size_t)v->config->batch_size;
    size_t rounds = (rows->n + batch_size * world_size - 1) / (batch_size * world_size);
    fsdp_progress *progress;
    FSDP_TRY(open_progress(v, "texts", (int64_t)rounds, &progress));
    fsdp_status status = FSDP_OK;
    for (size_t k = 0; k < rounds && status == FSDP_OK; k++) {
        status = generate_block(v, k * world_size + (size_t)fsdp_group_rank(v->group), rows);
        fsdp_progress_update(progress, 1, NULL);
    }
    fsdp_progress_destroy(progress);
    FSDP_TRY(status);
    return gather_texts(v, rows);
}

static fsdp_status measure_texts(evaluator *v, fsdp_evaluation *result)
{
    double begin = fsdp_clock_s();
    result->texts.items = fsdp_calloc((size_t)result->rows, sizeof *result->texts.items);
    if (!result->texts.items)
        return FSDP_ERR_NOMEM;
    result->texts.n = (size_t)result->rows;
    FSDP_TRY(generate_rows(v, &result->texts));
    result->generate_s = fsdp_clock_s() - begin;
    return FSDP_OK;
}

static fsdp_status measure(evaluator *v, const char *name, bool random, fsdp_evaluation *result)
{
    FSDP_TRY(open_model(v, name, random));
    if (result == v->all->items) {
        v->all->task = v->model->info.format.task;
        v->all->problem_type = v->model->info.format.problem_type;
    }
    fsdp_status status = check_task(v);
    fsdp_error_context(status, "%s", name);
    FSDP_TRY(status);
    FSDP_TRY(fsdp_model_tokenizer_open(v->model, v->config->tokenizer, &v->tokenizer));
    FSDP_TRY(fsdp_model_chat_open(v->model, v->config->tokenizer, v->config->chat.chat_template,
                                  &v->tokenizer));
    FSDP_TRY(open_data(v, result == v->all->items));
    if (result == v->all->items)
        FSDP_TRY(fsdp_agree(v->group, open_texts(v)));
    FSDP_TRY(prepare_texts(v, name));
    FSDP_TRY(check_seed(v));
    FSDP_TRY(measure_loss(v, name, result));
    return v->all->have_texts ? measure_texts(v, result) : FSDP_OK;
}

static void close_model(evaluator *v)
{
    fsdp_dataset_close(v->set);
    fsdp_model_tokenizer_close(&v->tokenizer);
    fsdp_model_close(v->model);
    v->set = NULL;
    v->model = NULL;
}

/* Check that all models exist, and that their names can be printed, before any model is evaluated.
 */
static fsdp_status check_models(const evaluator *v)
{
    const fsdp_evaluate_config *c = v->config;
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < (size_t)c->models.count && status == FSDP_OK; i++) {
        const char *name = c->models.items[i];
        char *dir = NULL;
        status = fsdp_hf_dir_resolve(name, &dir);
        fsdp_free(dir);
        if (status == FSDP_OK && c->json &&
            fsdp_utf8_valid_length(name, strlen(name)) < strlen(name))
            status = fsdp_error(FSDP_ERR_INVALID,
                                "--model %s: the name is not UTF-8, so --json cannot write it: "
                                "rename the folder",
                                name);
    }
    return fsdp_agree(v->group, status);
}

static fsdp_status measure_all(evaluator *v)
{
    const fsdp_evaluate_config *c = v->config;
    FSDP_TRY(check_models(v));
    size_t extra = c->untrained ? 1 : 0;
    v->all->items = fsdp_calloc(c->models.count + extra, sizeof *v->all->items);
    if (!v->all->items)
        return FSDP_ERR_NOMEM;
    v->all->n = c->models.count + extra;
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < v->all->n && status == FSDP_OK; i++) {
        fsdp_evaluation *result = &v->all->items[i];
        bool random = i < extra || c->from_config;
        const char *name = c->models.items[i < extra ? 0 : i - extra];
        result->name = fsdp_strdup_printf("%s%s", name, random ? " (random weights)" : "");
        status = result->name ? measure(v, name, random, result) : FSDP_ERR_NOMEM;
        close_model(v);
    }
    return status;
}

/* Check that an output file can be written: it is not a folder, and its parent folder exists. This
 * is done before any model is evaluated. */
static fsdp_status check_output(const char *flag, const char *path)
{
    if (!path)
        return FSDP_OK;
    if (fsdp_path_is_directory(path))
        return fsdp_error(FSDP_ERR_INVALID, "%s %s: that is a folder", flag, path);
    char *folder = fsdp_path_parent(path);
    if (!folder)
        return FSDP_ERR_NOMEM;
    fsdp_status status = FSDP_OK;
    if (!fsdp_path_is_directory(folder))
        status = fsdp_error(FSDP_ERR_NOT_FOUND, "%s %s: there is no folder %s", flag, path, folder);
    fsdp_free(folder);
    return status;
}

/* Check that the output files can be written, that no output file is also an input, and that
 * --predictions and --prompts are not the same file. */
static fsdp_status check_files(const fsdp_evaluate_config *c)
{
    const struct {
        const char *flag, *path;
    } files[] = {{"--data", c->data},
                 {"--baseline-data", c->baseline_data},
                 {"--prompts", c->prompts},
                 {"--predictions", c->predictions}};
    if (c->predictions)
        FSDP_TRY(fsdp_check_output_name("--predictions", c->predictions, FSDP_OUTPUT_LINES));
    if (c->prompts)
        FSDP_TRY(fsdp_check_output_name("--prompts", c->prompts, FSDP_OUTPUT_LINES));
    FSDP_TRY(check_output("--predictions", c->predictions));
    FSDP_TRY(check_output("--prompts", c->prompts));
    for (size_t w = 2; w < FSDP_LENGTH(files); w++)
        for (size_t i = 0; i < w && files[w].path; i++)
            if (files[i].path && fsdp_train_is_same_file(files[i].path, files[w].path))
                return fsdp_error(FSDP_ERR_INVALID, "%s %s and %s %s are the same file",
                                  files[w].flag, files[w].path, files[i].flag, files[i].path);
    return FSDP_OK;
}

fsdp_status fsdp_evaluate_run(const fsdp_evaluate_config *config, fsdp_group *group, FILE *out)
{
    fsdp_evaluations all = {.config = config};
    evaluator v = {.config = config, .group = group, .all = &all};
    v.show_progress = is_first(&v) && !config->json;
    fsdp_status status = check_files(config);
    if (status == FSDP_OK)
        status = open_device(&v);
    if (status == FSDP_OK) {
        print_device(&v, out);
        status = measure_all(&v);
    }
    if (status == FSDP_OK)
        status = fsdp_agree(group, is_first(&v) ? fsdp_evaluations_report(&all, out) : FSDP_OK);
    for (size_t i = 0; i < all.n; i++) {
        fsdp_free(all.items[i].name);
        free_texts(&all.items[i].texts);
    }
    free_texts(&all.references);
    free_texts(&all.candidates);
    free_texts(&all.prompts);
    fsdp_free(all.items);
    fsdp_device_destroy(v.device);
    return status;
}
