/* What is common to all datasets: finding the file and its kind, checks, dispatch. */
#include "src/data/dataset.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/data/titles.h"

enum {
    ROW_TOKENS = 1024 /* of token files: llm.c's, and GPT-2's context */
};

struct fsdp_dataset {
    const fsdp_dataset_ops *ops;
    void *self;
    int64_t first, len; /* of the rows of self */
    unsigned uses;      /* FSDP_USES_ */
    const char *note;   /* of its opener; or NULL */
};

/* ---- opening ---- */

/* `path`, or the WikiHow file in that folder; owned by the caller. */
static fsdp_status find_file(const char *path, char **file)
{
    static const char *const names[] = {"wikihowAll.csv", "wikihowSep.csv"};
    if (!fsdp_path_is_directory(path)) {
        *file = fsdp_strdup(path);
        return *file ? FSDP_OK : FSDP_ERR_NOMEM;
    }
    for (size_t i = 0; i < FSDP_LENGTH(names); i++) {
        char *candidate = fsdp_path_join(path, names[i]);
        if (!candidate)
            return FSDP_ERR_NOMEM;
        if (fsdp_path_is_file(candidate)) {
            *file = candidate;
            return FSDP_OK;
        }
        fsdp_free(candidate);
    }
    return fsdp_error(FSDP_ERR_NOT_FOUND,
                      "%s: holds neither wikihowAll.csv nor wikihowSep.csv; name a file in it",
                      path);
}

static bool ends_with(const char *text, const char *ending)
{
    size_t length = strlen(text), n = strlen(ending);
    return length >= n && strcasecmp(text + length - n, ending) == 0;
}

static int next_visible(FILE *file)
{
    int byte = fgetc(file);
    while (byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r')
        byte = fgetc(file);
    return byte;
}

/* By name, else by the first bytes that are no white space nor byte order mark: JSON lines begin
 * with a brace and the quote of a key; a text may begin with "{{". */
fsdp_status fsdp_is_jsonl_path(const char *path, bool *jsonl)
{
    *jsonl = ends_with(path, ".jsonl") || ends_with(path, ".json") || ends_with(path, ".ndjson");
    if (*jsonl || ends_with(path, ".csv"))
        return FSDP_OK;
    FILE *file = fopen(path, "rb");
    if (!file)
        return fsdp_error(errno == ENOENT ? FSDP_ERR_NOT_FOUND : FSDP_ERR_IO, "%s: %s", path,
                          strerror(errno));
    int byte = next_visible(file);
    if (byte == 0xEF && fgetc(file) == 0xBB && fgetc(file) == 0xBF)
        byte = next_visible(file); /* behind a byte order mark */
    *jsonl = byte == '{' && next_visible(file) == '"';
    fclose(file);
    return FSDP_OK;
}

/* Data are opened by every rank, and looked at before they are read. */
static fsdp_status check_is_kept(const char *path)
{
    const fsdp_status status = fsdp_path_check(path);
    if (status != FSDP_ERR_INVALID)
        return status;
    return fsdp_error(status,
                      "%s: neither a regular file nor a directory; data are read more than once, "
                      "and by every rank, which a pipe does not allow: write them to a file",
                      path);
}

/* The two options of WikiHow's scripts change texts of pairs, and nothing else has those. */
static fsdp_status check_has_pairs(const fsdp_dataset_options *o, bool pairs)
{
    if (pairs || (o->cleaning == FSDP_CLEANING_NONE && !o->skip_long_summaries))
        return FSDP_OK;
    return fsdp_error(
        FSDP_ERR_INVALID, "%s is for pairs of texts in CSV, for sequence to sequence models",
        o->cleaning == FSDP_CLEANING_NONE ? "leaving out long summaries" : "WikiHow's cleaning");
}

static fsdp_status check_options(const fsdp_dataset_options *o)
{
    if (o->max_source_length < 0 || o->max_target_length < 0 || o->max_length < 0 ||
        o->max_positions < 0 || o->max_samples < 0 || o->vocab_size < 0 || o->type_vocab_size < 0 ||
        o->num_classes < 0)
        return fsdp_error(
            FSDP_ERR_INVALID,
            "dataset: negative option (max source length %d, max target length %d, "
            "max length %" PRId64 ", max positions %" PRId64 ", max samples %" PRId64
            ", vocab size %" PRId64 ", type vocab size %" PRId64 ", classes %" PRId64 ")",
            o->max_source_length, o->max_target_length, o->max_length, o->max_positions,
            o->max_samples, o->vocab_size, o->type_vocab_size, o->num_classes);
    if (o->span_corruption && o->task != FSDP_TASK_SEQ2SEQ)
        return fsdp_error(FSDP_ERR_INVALID, "dataset: span corruption is for sequence to sequence "
                                            "models");
    FSDP_TRY(check_has_pairs(o, o->task == FSDP_TASK_SEQ2SEQ && !o->span_corruption));
    if (o->max_positions && o->max_length > o->max_positions)
        return fsdp_error(FSDP_ERR_INVALID,
                          "dataset: rows of up to %" PRId64
                          " tokens, but the model has positions for %" PRId64,
                          o->max_length, o->max_positions);
    if (o->task != FSDP_TASK_SEQ2SEQ && o->target_column && !o->source_column)
        return fsdp_error(FSDP_ERR_INVALID,
                          "dataset: target column '%s' without a source column: a completion needs "
                          "a prompt",
                          o->target_column);
    return FSDP_OK;
}

static void complete_columns(fsdp_dataset_options *o)
{
    if (!o->source_prefix)
        o->source_prefix = "";
    if (o->task != FSDP_TASK_SEQ2SEQ)
        return;
    if (!o->source_column)
        o->source_column = "text";
    if (!o->target_column)
        o->target_column = "headline";
}

/* What is read as text or drawn has a length; ids are as long as they are unless one is given. */
static void complete_lengths(fsdp_dataset_options *o)
{
    if (!o->max_source_length)
        o->max_source_length = 512;
    if (!o->max_target_length)
        o->max_target_length = 150;
}

static fsdp_status complete_options(const fsdp_dataset_options *given, fsdp_dataset_options *full)
{
    fsdp_dataset_options o = given ? *given : (fsdp_dataset_options){0};
    FSDP_TRY(check_options(&o));
    if (!o.max_positions)
        o.max_positions = INT64_MAX;
    if (!o.max_samples)
        o.max_samples = INT64_MAX;
    if (!o.vocab_size)
        o.vocab_size = o.tokenizer ? fsdp_tokenizer_vocab_size(o.tokenizer) : INT32_MAX;
    if (!o.type_vocab_size)
        o.type_vocab_size = INT32_MAX;
    if (!o.num_classes)
        o.num_classes = INT32_MAX;
    complete_columns(&o);
    *full = o;
    return FSDP_OK;
}

/* Of all rows those that the split has where no list says so. */
static fsdp_status take_share(fsdp_dataset *dataset, const char *path,
                              const fsdp_dataset_options *options)
{
    const int64_t held_back = dataset->len / 6 + (dataset->len % 6 != 0);
    const int64_t train = dataset->len - held_back;
    if (train < 1)
        return fsdp_error(FSDP_ERR_INVALID,
                          "%s: 1 row, which cannot be split into training and validation", path);
    const bool validation = options->split == FSDP_SPLIT_VALIDATION;
    dataset->first = validation ? train : 0;
    dataset->len = validation ? held_back : train;
    if (dataset->len > options->max_samples)
        dataset->len = options->max_samples;
    return FSDP_OK;
}

/* titles: the list of those that are wanted, or NULL. */
static fsdp_status open_texts(const char *file, bool jsonl, const char *titles,
                              const fsdp_dataset_options *options, fsdp_dataset **out)
{
    const bool share = options->split != FSDP_SPLIT_ALL && !titles;
    fsdp_dataset_options all = *options;
    fsdp_dataset *dataset;
    if (share)
        all.max_samples = INT64_MAX;
    if (!jsonl)
        complete_lengths(&all);
    FSDP_TRY(jsonl ? fsdp_jsonl_dataset_open(file, &all, &dataset)
                   : fsdp_csv_dataset_open(file, titles, &all, &dataset));
    fsdp_status status = share ? take_share(dataset, file, options) : FSDP_OK;
    if (status == FSDP_OK)
        *out = dataset;
    else
        fsdp_dataset_close(dataset);
    return status;
}

/* A file of texts, or a folder of WikiHow's. */
static fsdp_status open_rows(const char *path, const fsdp_dataset_options *options,
                             fsdp_dataset **out)
{
    char *file = NULL, *titles = NULL;
    FSDP_TRY(find_file(path, &file));
    bool jsonl = false;
    fsdp_status status = fsdp_is_jsonl_path(file, &jsonl);
    if (status == FSDP_OK && !jsonl && options->task == FSDP_TASK_CLASSIFICATION)
        status = fsdp_error(FSDP_ERR_INVALID,
                            "%s: classification takes JSON lines of ids; texts would need BERT's "
                            "tokenizer, which is not here",
                            file);
    if (status == FSDP_OK && jsonl) {
        status = check_has_pairs(options, false);
        fsdp_error_context(status, "%s", file);
    }
    if (status == FSDP_OK && !jsonl)
        status = fsdp_titles_find(file, options->split, &titles);
    if (status == FSDP_OK)
        status = open_texts(file, jsonl, titles, options, out);
    fsdp_free(titles);
    fsdp_free(file);
    return status;
}

fsdp_status fsdp_dataset_open(const char *path, const fsdp_dataset_options *options,
                              fsdp_dataset **out)
{
    fsdp_dataset_options full;
    FSDP_TRY(complete_options(options, &full));
    FSDP_TRY(check_is_kept(path));
    bool tokens = false;
    FSDP_TRY(fsdp_is_token_path(path, &tokens));
    if (!full.max_length)
        full.max_length =
            tokens && full.max_positions > ROW_TOKENS ? ROW_TOKENS : full.max_positions;
    if (!tokens && full.split_documents && !full.validation)
        return fsdp_error(FSDP_ERR_INVALID,
                          "%s: documents are split at token %" PRId32
                          " (--document-token) in token files (.bin) only",
                          path, full.document_token);
    if (full.span_corruption) {
        complete_lengths(&full);
        return fsdp_span_dataset_open(path, tokens, &full, out);
    }
    if (!tokens)
        return open_rows(path, &full, out);
    if (full.split != FSDP_SPLIT_ALL)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "%s: a folder of token files has files for validation, not a split",
                          path);
    if (full.task != FSDP_TASK_CAUSAL_LM)
        return fsdp_error(
            FSDP_ERR_INVALID, "%s: token files are for causal language modeling%s", path,
            full.task == FSDP_TASK_SEQ2SEQ ? " and span corruption; pairs come as JSON lines or CSV"
                                           : "; other tasks take JSON lines");
    return fsdp_token_dataset_open(path, &full, out);
}

fsdp_status fsdp_dataset_create(const fsdp_dataset_ops *ops, void *self, fsdp_dataset **out)
{
    fsdp_dataset *dataset = fsdp_calloc(1, sizeof *dataset);
    if (!dataset)
        return FSDP_ERR_NOMEM;
    *dataset = (fsdp_dataset){.ops = ops, .self = self, .len = ops->len(self)};
    *out = dataset;
    return FSDP_OK;
}

unsigned fsdp_dataset_uses(const fsdp_dataset *dataset)
{
    return dataset->uses;
}

void fsdp_dataset_set_uses(fsdp_dataset *dataset, unsigned uses)
{
    dataset->uses = uses;
}

const char *fsdp_dataset_note(const fsdp_dataset *dataset)
{
    return dataset->note;
}

void fsdp_dataset_set_note(fsdp_dataset *dataset, const char *note)
{
    dataset->note = note;
}

void fsdp_dataset_close(fsdp_dataset *dataset)
{
    if (!dataset)
        return;
    if (dataset->ops->close)
        dataset->ops->close(dataset->self);
    fsdp_free(dataset);
}

/* ---- examples ---- */

int64_t fsdp_dataset_len(const fsdp_dataset *dataset)
{
    return dataset->len;
}

static fsdp_status check_index(const fsdp_dataset *dataset, int64_t index)
{
    if (index >= 0 && index < dataset->len)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID, "example %" PRId64 " of a dataset of %" PRId64, index,
                      dataset->len);
}

fsdp_status fsdp_dataset_get(const fsdp_dataset *dataset, int64_t index, fsdp_example *example)
{
    return fsdp_dataset_draw(dataset, index, &(fsdp_draw){0}, example);
}

fsdp_status fsdp_dataset_draw(const fsdp_dataset *dataset, int64_t index, const fsdp_draw *draw,
                              fsdp_example *example)
{
    const fsdp_dataset_ops *ops = dataset->ops;
    FSDP_TRY(check_index(dataset, index));
    fsdp_example_empty(example);
    index += dataset->first;
    return ops->draw ? ops->draw(dataset->self, index, draw, example)
                     : ops->get(dataset->self, index, example);
}

fsdp_status fsdp_dataset_texts(const fsdp_dataset *dataset, int64_t index, char **source,
                               char **target)
{
    FSDP_TRY(check_index(dataset, index));
    if (!dataset->ops->texts)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "this dataset has ids only, no texts");
    char *texts[2] = {NULL, NULL};
    FSDP_TRY(dataset->ops->texts(dataset->self, dataset->first + index, &texts[0], &texts[1]));
    if (source)
        *source = texts[0];
    else
        fsdp_text_free(texts[0]);
    if (target)
        *target = texts[1];
    else
        fsdp_text_free(texts[1]);
    return FSDP_OK;
}

void fsdp_example_empty(fsdp_example *example)
{
    example->source.len = example->labels.len = 0;
    example->position_ids.len = example->token_type_ids.len = 0;
}

void fsdp_example_fini(fsdp_example *example)
{
    fsdp_token_list_fini(&example->source);
    fsdp_token_list_fini(&example->labels);
    fsdp_token_list_fini(&example->position_ids);
    fsdp_token_list_fini(&example->token_type_ids);
}
