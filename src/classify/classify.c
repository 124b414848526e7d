/* See classify.h. In each round, every rank classifies one batch: rank 0 takes the next texts, rank
 * 1 the texts after them, and so on. An all-gather then brings the logits to rank 0. */
#include "src/classify/classify.h"

#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/json.h"
#include "src/base/str.h"
#include "src/classify/class_items.h"
#include "src/classify/class_output.h"
#include "src/comm/agree.h"
#include "src/comm/comm.h"
#include "src/data/labels/class_text.h"
#include "src/models/model_type.h"
#include "src/pretrained/model_tokenizer.h"
#include "src/tensor/cards.h"

/* The function that converts logits to scores. */
typedef enum score_function {
    SCORE_SOFTMAX,
    SCORE_SIGMOID,
    SCORE_NONE
} score_function;

typedef struct classifier {
    const fsdp_classify_config *config;
    fsdp_group *group;
    int rank, world_size;
    fsdp_classify_note_fn *note;
    fsdp_device *device;
    fsdp_model *model;
    fsdp_model_tokenizer tokenizer;
    fsdp_dataset_options encoding; /* how texts become ids */
    fsdp_class_items items;
    fsdp_class_output *output; /* rank 0 */
    score_function function;
    char **labels; /* [n_labels]; owned */
    size_t n_labels, batch_size;
    int64_t n_cut;  /* number of texts that this rank has cut to the maximum length */
    double *scores; /* [n_labels] */
} classifier;

static FSDP_PRINTF(2, 3) void show_note(const classifier *c, const char *format, ...)
{
    char text[700];
    va_list arguments;
    if (c->rank != 0)
        return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    c->note(text);
}

/* ---- the model ---- */

static fsdp_status check_model(const classifier *c)
{
    const fsdp_model *model = c->model;
    const fsdp_model_info *info = &model->info;
    if (model->config.type->decoder)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "a %s has no classes: it writes texts, and 'fsdp generate' prints them",
                          info->class_name);
    if (info->format.task != FSDP_TASK_CLASSIFICATION || info->num_labels < 1)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "a %s has no classes: 'fsdp train --task classification' makes a "
                          "classifier of it",
                          info->class_name);
    if (model->report.n_fresh)
        return fsdp_error(FSDP_ERR_INVALID,
                          "there are no weights for %s, so it was not trained to classify: "
                          "'fsdp train --task classification' does that",
                          model->report.fresh[0]);
    return FSDP_OK;
}

/* Choose the score function as transformers' pipeline does. If config.json has no problem_type and
 * the model has one label, the pipeline uses a sigmoid, although training treats such a model as a
 * regression. */
static fsdp_status choose_function(classifier *c)
{
    const char *type;
    fsdp_json *doc;
    char *path = fsdp_path_join(c->model->dir, "config.json");
    fsdp_status status = path ? fsdp_json_read(path, &doc) : FSDP_ERR_NOMEM;
    fsdp_free(path);
    FSDP_TRY(status);
    status = fsdp_json_opt_str(fsdp_json_root(doc), "problem_type", "", &type);
    if (status == FSDP_OK)
        c->function = strcmp(type, "regression") == 0 ? SCORE_NONE
                      : strcmp(type, "multi_label_classification") == 0 || c->n_labels == 1
                          ? SCORE_SIGMOID
                          : SCORE_SOFTMAX;
    fsdp_json_destroy(doc);
    return status;
}

/* Copy the names of the classes. A class without a name is LABEL_<number>, as in transformers. */
static fsdp_status name_labels(classifier *c)
{
    const fsdp_model *model = c->model;
    if (!(c->labels = fsdp_calloc(c->n_labels, sizeof *c->labels)))
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < c->n_labels; i++) {
        const char *name =
            model->label_names && (int64_t)i < model->n_label_names ? model->label_names[i] : NULL;
        c->labels[i] = name ? fsdp_strdup(name) : fsdp_strdup_printf("LABEL_%zu", i);
        if (!c->labels[i])
            return FSDP_ERR_NOMEM;
    }
    return FSDP_OK;
}

static fsdp_status set_encoding(classifier *c)
{
    const fsdp_model_info *info = &c->model->info;
    const int64_t wanted = c->config->max_seq_length;
    if (!c->tokenizer.tokenizer)
        return fsdp_error(FSDP_ERR_NOT_FOUND, "texts need a tokenizer; --tokenizer names one (%s)",
                          c->tokenizer.why_none);
    FSDP_TRY(fsdp_model_check_tokenizer(c->model, c->tokenizer.tokenizer));
    if (wanted > info->max_positions && info->max_positions > 0)
        return fsdp_error(FSDP_ERR_INVALID, "--max-seq-length %lld: the model takes up to %lld",
                          (long long)wanted, (long long)info->max_positions);
    c->encoding =
        (fsdp_dataset_options){.task = FSDP_TASK_CLASSIFICATION,
                               .tokenizer = c->tokenizer.tokenizer,
                               .max_length = wanted                    ? wanted
                                             : info->max_positions > 0 ? info->max_positions
                                                                       : INT_MAX,
                               .type_vocab_size = info->type_vocab_size};
    return FSDP_OK;
}

static fsdp_status open_classifier(classifier *c)
{
    FSDP_TRY(check_model(c));
    c->n_labels = (size_t)c->model->info.num_labels;
    FSDP_TRY(name_labels(c));
    FSDP_TRY(choose_function(c));
    FSDP_TRY(fsdp_model_tokenizer_open(c->model, c->config->tokenizer, &c->tokenizer));
    FSDP_TRY(set_encoding(c));
    c->scores = fsdp_calloc(c->n_labels, sizeof *c->scores);
    return c->scores ? FSDP_OK : FSDP_ERR_NOMEM;
}

static fsdp_status open_model(classifier *c)
{
    const fsdp_classify_config *config = c->config;
    char description[256];
    const fsdp_device_options device = {
        .name = config->device, .threads = config->threads_per_rank, .isa = config->isa};
    FSDP_TRY(fsdp_rank_device_create(c->group, &device, &c->device));
    fsdp_device_describe(c->device, description);
    if (c->device->ops != &fsdp_device_cpu)
        show_note(c, "device: %s", description);
    const fsdp_model_options options = {.name = config->model,
                                        .adapter = config->adapter,
                                        .keep_lm_head = true,
                                        .keeps_norms = true,
                                        .shard.mp_policy.param_dtype = config->param_dtype};
    FSDP_TRY(fsdp_model_open(&options, c->group, c->device, &c->model));
    const fsdp_status status = open_classifier(c);
    fsdp_error_context(status, "%s", config->model);
    return fsdp_agree(c->group, status);
}

/* ---- texts ---- */

/* Return an error if there are several ranks and the input may be a pipe, because every rank reads
 * the whole input. */
static fsdp_status check_input(const classifier *c)
{
    const char *input = c->config->input;
    if (!input || c->world_size == 1)
        return FSDP_OK;
    if (strcmp(input, "-") != 0 && fsdp_path_check(input) != FSDP_ERR_INVALID)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID,
                      "--input %s: not a regular file; every rank reads it, which a pipe does not "
                      "allow: write it to a file, or use one rank",
                      input);
}

static fsdp_status open_items(classifier *c)
{
    fsdp_status status = check_input(c);
    if (status == FSDP_OK)
        status = fsdp_class_items_read(c->config, &c->items);
    return fsdp_agree(c->group, status);
}

static fsdp_status open_output(classifier *c, FILE *out)
{
    fsdp_status status = FSDP_OK;
    if (c->rank == 0)
        status =
            fsdp_class_output_open(c->config, &c->items, c->labels, c->n_labels, out, &c->output);
    status = fsdp_agree(c->group, status);
    if (status != FSDP_OK || c->rank != 0)
        return status;
    if (c->items.note)
        show_note(c, "%s", c->items.note);
    if (fsdp_class_output_renamed(c->output))
        show_note(c, "rows have a label or a score of their own: the results are %s",
                  fsdp_class_output_renamed(c->output));
    return FSDP_OK;
}

/* ---- classifying ---- */

/* Encode items [first, first + n) as `rows` [n]. The rows point into `examples` [n]. */
static fsdp_status encode(classifier *c, size_t first, size_t n, fsdp_example *examples,
                          fsdp_batch_row *rows)
{
    for (size_t i = 0; i < n; i++) {
        const fsdp_class_item *item = &c->items.items[first + i];
        fsdp_example *e = &examples[i];
        int64_t cut = 0;
        const fsdp_status status =
            fsdp_class_text_encode(&c->encoding, item->text, item->pair, e, &cut);
        fsdp_error_context(status, "text %zu", first + i + 1);
        FSDP_TRY(status);
        c->n_cut += cut > 0;
        rows[i] = (fsdp_batch_row){.source = e->source.ids,
                                   .source_len = (int32_t)e->source.len,
                                   .token_type_ids =
                                       e->token_type_ids.len ? e->token_type_ids.ids : NULL};
    }
    return FSDP_OK;
}

static fsdp_status make_batch(classifier *c, size_t first, size_t n, fsdp_batch **batch)
{
    fsdp_example *examples = fsdp_calloc(n, sizeof *examples);
    fsdp_batch_row *rows = fsdp_calloc(n, sizeof *rows);
    fsdp_status status = examples && rows ? FSDP_OK : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status = encode(c, first, n, examples, rows);
    if (status == FSDP_OK)
        status = fsdp_batch_create(rows, (int32_t)n, &c->model->info.format, batch);
    for (size_t i = 0; examples && i < n; i++)
        fsdp_example_fini(&examples[i]);
    fsdp_free(examples);
    fsdp_free(rows);
    return status;
}

/* Run the model on `batch` and set `logits` [batch->rows, n_labels]. Collective. */
static fsdp_status compute(const classifier *c, const fsdp_batch *batch, float *logits)
{
    const fsdp_scope_options options = {.batch = batch};
    fsdp_scope *s;
    FSDP_TRY(fsdp_scope_open(c->device, NULL, &options, &s));
    const fsdp_tensor *result = fsdp_model_logits(s, c->model->module).logits;
    fsdp_status status = fsdp_scope_status(s);
    if (status == FSDP_OK && batch->rows)
        status = fsdp_tensor_to_floats(result, logits);
    fsdp_scope_close(s);
    return status;
}

static void set_scores(const classifier *c, const float *logits)
{
    double sum = 0, largest = (double)logits[0];
    for (size_t i = 1; i < c->n_labels; i++)
        largest = fmax(largest, (double)logits[i]);
    for (size_t i = 0; i < c->n_labels; i++) {
        const double x = (double)logits[i];
        c->scores[i] = c->function == SCORE_NONE      ? x
                       : c->function == SCORE_SIGMOID ? 1 / (1 + exp(-x))
                                                      : exp(x - largest);
        sum += c->scores[i];
    }
    for (size_t i = 0; c->function == SCORE_SOFTMAX && i < c->n_labels; i++)
        c->scores[i] /= sum;
}

/* Write the result for item `index`, whose logits are `logits` [n_labels]. */
static fsdp_status report(const classifier *c, size_t index, const float *logits)
{
    for (size_t i = 0; i < c->n_labels; i++)
        if (!isfinite(logits[i]))
            return fsdp_error(FSDP_ERR_NUMERIC,
                              "text %zu: the model's output for %s is not a finite number: are its "
                              "weights finite?",
                              index + 1, c->labels[i]);
    set_scores(c, logits);
    return fsdp_class_output_write(c->output, c->scores);
}

/* Run one round. `first` is the index of the round's first item. `mine` [batch_size, n_labels] is
 * memory for the logits of this rank, and `all` is memory for the logits of all ranks. */
static fsdp_status run_round(classifier *c, size_t first, float *mine, float *all)
{
    const size_t left = c->items.n - first, begin = (size_t)c->rank * c->batch_size;
    const size_t of_mine = begin >= left ? 0 : left - begin;
    const size_t n = of_mine < c->batch_size ? of_mine : c->batch_size;
    const size_t round = c->batch_size * (size_t)c->world_size;
    fsdp_batch *batch = NULL;
    FSDP_TRY(fsdp_agree(c->group, make_batch(c, first + (n ? begin : 0), n, &batch)));
    fsdp_status status = fsdp_agree(c->group, compute(c, batch, mine));
    fsdp_batch_release(batch);
    FSDP_TRY(status);
    if (c->world_size > 1)
        FSDP_TRY(fsdp_all_gather(c->group, mine, c->batch_size * c->n_labels * sizeof *mine, all));
    const float *logits = c->world_size > 1 ? all : mine;
    for (size_t i = 0; c->rank == 0 && status == FSDP_OK && i < round && i < left; i++)
        status = report(c, first + i, logits + i * c->n_labels);
    return fsdp_agree(c->group, status);
}

static fsdp_status run_all(classifier *c)
{
    const size_t world_size = (size_t)c->world_size;
    c->batch_size = (size_t)c->config->batch_size;
    if (c->batch_size > c->items.n)
        c->batch_size = c->items.n;
    const size_t size = c->batch_size * c->n_labels;
    float *mine = fsdp_calloc(size, sizeof *mine);
    float *all = fsdp_calloc(size * world_size, sizeof *all);
    fsdp_status status = fsdp_agree(c->group, mine && all ? FSDP_OK : FSDP_ERR_NOMEM);
    for (size_t first = 0; first < c->items.n && status == FSDP_OK;
         first += c->batch_size * world_size)
        status = run_round(c, first, mine, all);
    fsdp_free(mine);
    fsdp_free(all);
    if (status == FSDP_OK)
        status = fsdp_all_reduce(c->group, &c->n_cut, 1, FSDP_DTYPE_I64, FSDP_REDUCE_SUM);
    return status;
}

static void report_cut(const classifier *c)
{
    if (c->n_cut)
        show_note(c, "%lld of %zu texts cut to %lld tokens, %s", (long long)c->n_cut, c->items.n,
                  (long long)c->encoding.max_length,
                  c->config->max_seq_length ? "as --max-seq-length says"
                                            : "the longest that the model "
                                              "takes");
}

fsdp_status fsdp_classify_run(const fsdp_classify_config *config, fsdp_group *group, FILE *out,
                              fsdp_classify_note_fn *note)
{
    classifier c = {.config = config,
                    .group = group,
                    .rank = fsdp_group_rank(group),
                    .world_size = fsdp_group_world_size(group),
                    .note = note};
    fsdp_status status = open_model(&c);
    if (status == FSDP_OK)
        status = open_items(&c);
    if (status == FSDP_OK)
        status = open_output(&c, out);
    if (status == FSDP_OK)
        status = run_all(&c);
    status = fsdp_agree(group, fsdp_class_output_close(c.output, status));
    if (status == FSDP_OK)
        report_cut(&c);
    for (size_t i = 0; c.labels && i < c.n_labels; i++)
        fsdp_free(c.labels[i]);
    fsdp_free(c.labels);
    fsdp_free(c.scores);
    fsdp_class_items_fini(&c.items);
    fsdp_model_tokenizer_close(&c.tokenizer);
    fsdp_model_close(c.model);
    fsdp_device_destroy(c.device);
    return status;
}
