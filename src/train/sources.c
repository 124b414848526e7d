/* See sources.h. */
#include "src/train/sources.h"

#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/base/log.h"
#include "src/data/arrow/folder.h"
#include "src/data/datasets/dataset.h"
#include "src/data/left_out.h"
#include "src/data/rows/rows_form.h"
#include "src/train_config/config_sources.h"

/* Set *cleaning to how the texts of a source are cleaned. --cleaning wikihow applies only to
 * sources of text pairs; other sources are not cleaned. */
static fsdp_status choose_cleaning(const fsdp_train_config *c, const fsdp_train_source *source,
                                   bool training, fsdp_cleaning *cleaning)
{
    bool ids = false, texts = true;
    *cleaning = FSDP_CLEANING_NONE;
    if (!c->wikihow_cleaning || source->task == FSDP_TRAIN_SPAN_CORRUPTION)
        return FSDP_OK;
    if (!fsdp_path_is_directory(source->path) || fsdp_is_arrow_path(source->path))
        FSDP_TRY(fsdp_first_row_kind(source->path, c->form.json_field, !training, &ids, &texts));
    if (texts)
        *cleaning = FSDP_CLEANING_WIKIHOW;
    return FSDP_OK;
}

/* Print up to three lines about a source. They are about rows and tokens that training does not use
 * or has cut, about special tokens in the texts, and about unknown characters in the texts. */
static fsdp_status print_left_out(const fsdp_trainer *t, const char *path, const fsdp_dataset *set)
{
    fsdp_left_out out;
    char text[1200];
    if (!t->out)
        return FSDP_OK;
    FSDP_TRY(fsdp_dataset_left_out(set, FSDP_LEFT_OUT_ROWS, &out));
    fsdp_left_out_text(&out, fsdp_dataset_len(set), path, text, sizeof text);
    if (*text)
        fprintf(t->out, "%s\n", text);
    fsdp_special_rows_text(&out, fsdp_dataset_len(set), path, text, sizeof text);
    if (*text)
        fprintf(t->out, "%s\n", text);
    fsdp_unknown_rows_text(&out, fsdp_dataset_len(set), path, text, sizeof text);
    if (*text)
        fprintf(t->out, "%s\n", text);
    return FSDP_OK;
}

/* Return true if `set` has a note that the training data does not have. Validation rows that are a
 * part of the training file usually have the same note, such as which columns are not used. */
static bool has_new_note(const fsdp_trainer *t, const fsdp_dataset *set)
{
    const char *note = fsdp_dataset_note(set);
    const char *before = t->train_set ? fsdp_dataset_note(t->train_set) : NULL;
    return note && !(before && strcmp(note, before) == 0);
}

static fsdp_status open_source(const fsdp_trainer *t, const fsdp_train_source *source,
                               bool training, fsdp_dataset **set)
{
    const fsdp_train_config *c = t->config;
    const fsdp_span_corruption noise = fsdp_train_span_corruption(c);
    const fsdp_masking masking = {.mlm_probability = c->noise_density};
    /* True if the rows are in the training data. This includes validation rows that
     * --validation-split-percentage takes from there. */
    const bool of_training = training || c->splits_data;
    fsdp_cleaning cleaning;
    FSDP_TRY(choose_cleaning(c, source, of_training, &cleaning));
    fsdp_dataset_options options = {
        .task = t->task,
        .source_prefix = c->task_prefix,
        .source_column = c->text_column,
        .target_column = c->target_column,
        .cleaning = cleaning,
        /* If --max-source-length or --max-target-length is not given, pass 0. Texts are then cut to
         * the dataset's default length, but rows of token ids are not cut. */
        .max_source_length = c->cut_sources ? c->max_source_length : 0,
        .max_target_length = !training && c->val_max_target_length ? c->val_max_target_length
                             : c->cut_targets                      ? c->max_target_length
                                                                   : 0,
        .max_length = c->max_seq_length,
        .max_samples = training ? c->max_train_samples : c->max_validation_samples,
        .validation = !of_training,
        .split = !c->splits_data ? FSDP_SPLIT_ALL
                 : training      ? FSDP_SPLIT_TRAIN
                                 : FSDP_SPLIT_VALIDATION,
        .validation_percent = c->splits_data ? c->validation_split_percentage : 0,
        .split_documents = c->document_token >= 0,
        .document_token = (int32_t)c->document_token,
        .class_hint = "--num-labels N or --class-names A,B,... changes that, and without either, a "
                      "new classifier has the classes that the rows name; rows with several "
                      "labels need --problem-type multi_label_classification",
        .span_corruption = source->task == FSDP_TRAIN_SPAN_CORRUPTION ? &noise : NULL,
        .masking = &masking};
    fsdp_chat_row_options_apply(&c->chat, &options.chat);
    fsdp_form_options_apply(&c->form, &options);
    if (source->task == FSDP_TRAIN_SPAN_CORRUPTION)
        options.source_lang = options.target_lang = NULL;
    fsdp_dataset *opened;
    FSDP_TRY(fsdp_model_dataset_open(t->model, &t->tokenizer, source->path, &options, &opened));
    if (fsdp_trainer_is_first(t) && has_new_note(t, opened))
        fsdp_log("data", FSDP_LOG_WARN, -1, 1, "%s", fsdp_dataset_note(opened));
    const fsdp_status status = print_left_out(t, source->path, opened);
    if (status == FSDP_OK)
        *set = opened;
    else
        fsdp_dataset_close(opened);
    return status;
}

bool fsdp_train_uses_prefix(const fsdp_trainer *t)
{
    return fsdp_dataset_uses(t->train_set) & FSDP_USES_SOURCE_PREFIX;
}

fsdp_status fsdp_train_sources_check_texts(const fsdp_trainer *t)
{
    const fsdp_train_config *c = t->config;
    const struct {
        bool asked_for;
        unsigned use;
        const char *flag, *rows;
    } options[] = {
        {c->asked_for.task_prefix, FSDP_USES_SOURCE_PREFIX, "task-prefix", "texts"},
        {c->asked_for.text_column, FSDP_USES_SOURCE_COLUMN, "text-column", "texts with names"},
        {c->asked_for.target_column, FSDP_USES_TARGET_COLUMN, "target-column", "texts with names"},
        {c->wikihow_cleaning, FSDP_USES_CLEANING, "wikihow-cleaning", "pairs of texts"}};
    const unsigned uses = fsdp_dataset_uses(t->train_set) |
                          (t->validation_set ? fsdp_dataset_uses(t->validation_set) : 0);
    for (size_t i = 0; i < FSDP_LENGTH(options); i++)
        if (options[i].asked_for && !(uses & options[i].use))
            return fsdp_error(FSDP_ERR_INVALID, "--%s is for rows that are %s; those of %s are not",
                              options[i].flag, options[i].rows, c->data);
    FSDP_TRY(fsdp_chat_row_options_check_uses(&c->chat, uses, c->data));
    return fsdp_form_options_check_uses(&c->form, uses, c->data);
}

/* Print a source if the run has several sources, or if the task of this source is span corruption.
 */
static void print_source(const fsdp_trainer *t, const fsdp_train_source *s, const fsdp_dataset *set)
{
    const fsdp_train_config *c = t->config;
    const fsdp_span_corruption noise = fsdp_train_span_corruption(c);
    int64_t tokens, targets;
    const bool mixed = c->mix_data.count > 0, spans = s->task == FSDP_TRAIN_SPAN_CORRUPTION;
    if (!t->out || (!mixed && !spans))
        return;
    fprintf(t->out, "%s of %s: %lld rows",
            s->task == FSDP_TRAIN_AUTO ? fsdp_train_task_name(t->task)
                                       : fsdp_train_given_task_name(s->task),
            s->path, (long long)fsdp_dataset_len(set));
    if (spans && fsdp_span_corruption_lengths(&noise, c->max_source_length, &tokens, &targets,
                                              NULL) == FSDP_OK)
        fprintf(t->out, " of %lld tokens (inputs %d, targets %lld)", (long long)tokens,
                c->max_source_length, (long long)targets);
    if (mixed)
        fprintf(t->out, ", weight %g", s->weight);
    fputc('\n', t->out);
}

/* The rows of a dataset, for a message. */
typedef struct row_counts {
    fsdp_file_rows of_files;
    int64_t rows;     /* rows of the dataset */
    int64_t max_rows; /* --max-train-samples or --max-validation-samples; 0: no limit */
} row_counts;

static row_counts count_rows(const fsdp_dataset *set, int64_t max_rows)
{
    return (row_counts){fsdp_dataset_file_rows(set), fsdp_dataset_len(set), max_rows};
}

/* Print "5 rows", or "3 of the 5 rows" if not all of them are used. `article` is put before the
 * number of the rows if all are used. */
static void print_count(const fsdp_trainer *t, const char *article, const row_counts *n)
{
    const fsdp_file_rows *of = &n->of_files;
    const char *unit = of->are_documents ? "document" : "row";
    if (of->count < of->in_split)
        fprintf(t->out, "%lld of the ", (long long)of->count);
    else
        fprintf(t->out, "%s", article);
    fprintf(t->out, "%lld %s%s", (long long)of->in_split, unit, of->in_split == 1 ? "" : "s");
}

/* If the rows of the files were joined, print how many rows they have become. */
static void print_joined(const fsdp_trainer *t, const row_counts *n)
{
    const bool packed = t->config->form.packing != FSDP_PACKING_NONE;
    const char *unit = n->rows == 1 ? "row" : "rows";
    if (!n->of_files.are_documents && n->rows == n->of_files.count)
        return;
    /* With packing, max_rows limits the rows before they are packed. When texts are only joined, it
     * limits the rows that result. */
    if (!packed && n->rows == n->max_rows)
        fprintf(t->out, ", joined and cut, of which the first %lld %s %s used", (long long)n->rows,
                unit, n->rows == 1 ? "is" : "are");
    else
        fprintf(t->out, ", %s into %lld %s", packed ? "packed" : "joined and cut",
                (long long)n->rows, unit);
}

/* If the user did not name the rows for validation, print where they come from. */
static void print_validation(const fsdp_trainer *t, const fsdp_dataset *set)
{
    const fsdp_train_config *c = t->config;
    const row_counts held = count_rows(set, c->max_validation_samples),
                     rest = count_rows(t->train_set, c->max_train_samples);
    if (!t->out || !(c->splits_data || c->found_validation))
        return;
    fprintf(t->out, "validation: ");
    print_count(t, "", &held);
    if (c->splits_data)
        fprintf(t->out, ", the first %d %% of %s", c->validation_split_percentage, c->data);
    else
        fprintf(t->out, " of %s", c->validation_data);
    print_joined(t, &held);
    if (c->splits_data) {
        fprintf(t->out, "; training has ");
        print_count(t, "the ", &rest);
        fprintf(t->out, " after them");
        print_joined(t, &rest);
    }
    fputc('\n', t->out);
}

/* Open all sources as `parts` [fsdp_train_sources_count()]. *n is set to the number of parts that
 * were opened, even on failure. */
static fsdp_status open_parts(const fsdp_trainer *t, fsdp_mixture_part *parts, size_t *n)
{
    for (*n = 0; *n < fsdp_train_sources_count(t->config); ++*n) {
        fsdp_train_source source;
        FSDP_TRY(fsdp_train_source_get(t->config, *n, &source));
        FSDP_TRY(open_source(t, &source, true, &parts[*n].dataset));
        parts[*n].weight = source.weight;
        print_source(t, &source, parts[*n].dataset);
    }
    return FSDP_OK;
}

static fsdp_status open_mixed(const fsdp_trainer *t, fsdp_dataset **set)
{
    size_t n = 0;
    fsdp_mixture_part *parts = fsdp_calloc(fsdp_train_sources_count(t->config), sizeof *parts);
    fsdp_status status = parts ? open_parts(t, parts, &n) : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status = fsdp_mixture_create(parts, n, !t->config->shuffle, set);
    for (size_t i = 0; status != FSDP_OK && i < n; i++)
        fsdp_dataset_close(parts[i].dataset);
    fsdp_free(parts);
    return status;
}

fsdp_status fsdp_train_sources_open(const fsdp_trainer *t, bool training, fsdp_dataset **set)
{
    fsdp_train_source source;
    if (training && t->config->mix_data.count)
        return open_mixed(t, set);
    FSDP_TRY(fsdp_train_source_get(t->config, 0, &source));
    if (!training)
        source.path = t->config->validation_data;
    FSDP_TRY(open_source(t, &source, training, set));
    if (training)
        print_source(t, &source, *set);
    else
        print_validation(t, *set);
    return FSDP_OK;
}
