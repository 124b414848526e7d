/* Opens a file of CSV or JSON lines, or a folder with WikiHow's files, and selects the rows of a
 * split. */
#include <string.h>
#include <strings.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/data/dataset.h"
#include "src/data/input.h"
#include "src/data/json_rows.h"
#include "src/data/titles.h"

/* Set *file to `path` or, if `path` is a folder, to the path of the WikiHow file in it. The caller
 * owns *file. */
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

/* Does the name of the file end with `ending`, before an ending .gz or .zst? */
static bool ends_with(const char *path, const char *ending)
{
    const size_t length = fsdp_input_name_length(path), n = strlen(ending);
    return length >= n && strncasecmp(path + length - n, ending, n) == 0;
}

bool fsdp_is_csv_path(const char *path)
{
    return ends_with(path, ".csv") || ends_with(path, ".tsv") || ends_with(path, ".tab");
}

/* Return the index of the first byte of text[n] from `at` on that is not white space. */
static size_t skip_space(const char *text, size_t n, size_t at)
{
    while (at < n && strchr(" \t\n\r", text[at]) && text[at])
        at++;
    return at;
}

/* Return true if a text begins like JSON. A row of JSON begins with a brace and the quote of a key,
 * and an array of rows with a bracket and a brace. A brace alone is not enough, because a text may
 * begin with "{{". White space and a byte order mark are skipped. */
static bool begins_like_json(const char *text, size_t n)
{
    size_t at = n >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
    at = skip_space(text, n, at);
    if (at < n && text[at] == '[') {
        at = skip_space(text, n, at + 1);
        return at < n && text[at] == '{';
    }
    if (at == n || text[at] != '{')
        return false;
    at = skip_space(text, n, at + 1);
    return at < n && text[at] == '"';
}

fsdp_status fsdp_is_jsonl_path(const char *path, bool *jsonl)
{
    char text[4096];
    size_t n;
    fsdp_input *input;
    *jsonl = ends_with(path, ".jsonl") || ends_with(path, ".json") || ends_with(path, ".ndjson");
    if (*jsonl || fsdp_is_csv_path(path))
        return FSDP_OK;
    FSDP_TRY(fsdp_input_open(path, &input));
    fsdp_status status = fsdp_input_read(input, text, sizeof text, &n);
    fsdp_input_close(input);
    *jsonl = status == FSDP_OK && begins_like_json(text, n);
    return status;
}

/* Return true if a value of `row` is a text, or an object of texts under "translation". */
static bool has_any_text(fsdp_json_node row)
{
    for (fsdp_json_node v = fsdp_json_first(row); v.value; v = fsdp_json_next(v))
        if (fsdp_json_kind_of(v) == FSDP_JSON_STRING ||
            (fsdp_json_kind_of(v) == FSDP_JSON_OBJECT && strcmp(v.key, "translation") == 0))
            return true;
    return false;
}

static fsdp_status read_first_row(fsdp_json_rows *rows, const char *path, bool *ids, bool *texts)
{
    fsdp_json_row row;
    fsdp_json *doc;
    FSDP_TRY(fsdp_json_rows_next(rows, &row));
    if (!row.text)
        return FSDP_OK;
    FSDP_TRY(fsdp_json_row_parse(path, &row, &doc));
    *ids = fsdp_json_has(fsdp_json_root(doc), "input_ids");
    *texts = !*ids && has_any_text(fsdp_json_root(doc));
    fsdp_json_destroy(doc);
    return FSDP_OK;
}

fsdp_status fsdp_first_row_kind(const char *path, const char *json_field, bool *ids, bool *texts)
{
    fsdp_input *input;
    fsdp_json_rows *rows;
    *ids = *texts = false;
    FSDP_TRY(fsdp_input_open(path, &input));
    fsdp_status status = fsdp_json_rows_open(input, path, json_field, &rows);
    if (status == FSDP_OK) {
        status = read_first_row(rows, path, ids, texts);
        fsdp_json_rows_close(rows);
    }
    fsdp_input_close(input);
    return status;
}

/* Restrict the dataset to the rows of options->split: the last sixth of the rows is for validation,
 * and the rest is for training. Called only if there are no lists of titles. */
static fsdp_status take_share(fsdp_dataset *dataset, const char *path,
                              const fsdp_dataset_options *options)
{
    const int64_t rows = fsdp_dataset_len(dataset), held_back = rows / 6 + (rows % 6 != 0);
    const int64_t train = rows - held_back;
    if (train < 1)
        return fsdp_error(FSDP_ERR_INVALID,
                          "%s: 1 row, which cannot be split into training and validation", path);
    const bool validation = options->split == FSDP_SPLIT_VALIDATION;
    const int64_t len = validation ? held_back : train;
    fsdp_dataset_narrow(dataset, validation ? train : 0,
                        len < options->max_samples ? len : options->max_samples);
    return FSDP_OK;
}

/* How a file of texts is opened. */
typedef struct text_file {
    const char *path,
        *titles; /* titles: the path of the split's list of titles; NULL: there is none */
    bool json;
    bool ids; /* JSON: opened as rows of ids, which for CAUSAL_LM may also be texts */
} text_file;

static fsdp_status open_texts(const text_file *file, const fsdp_dataset_options *options,
                              fsdp_dataset **out)
{
    const bool share = options->split != FSDP_SPLIT_ALL && !file->titles;
    fsdp_dataset_options all = *options;
    fsdp_dataset *dataset;
    if (share)
        all.max_samples = INT64_MAX;
    if (!file->ids)
        fsdp_dataset_complete_lengths(&all);
    FSDP_TRY(file->ids
                 ? fsdp_jsonl_dataset_open(file->path, &all, &dataset)
                 : fsdp_pair_dataset_open(file->path, file->json, file->titles, &all, &dataset));
    fsdp_status status = share ? take_share(dataset, file->path, options) : FSDP_OK;
    if (status == FSDP_OK)
        *out = dataset;
    else
        fsdp_dataset_close(dataset);
    return status;
}

/* Find out how the file is opened. The caller owns *titles. */
static fsdp_status examine(const char *path, const fsdp_dataset_options *options, text_file *file,
                           char **titles)
{
    bool ids, texts = false;
    file->path = path;
    FSDP_TRY(fsdp_is_jsonl_path(path, &file->json));
    if (file->json && options->task == FSDP_TASK_SEQ2SEQ)
        FSDP_TRY(fsdp_first_row_kind(path, options->json_field, &ids, &texts));
    file->ids = file->json && !texts;
    if (!file->json && options->task == FSDP_TASK_CLASSIFICATION)
        return fsdp_error(FSDP_ERR_INVALID,
                          "%s: classification takes JSON lines of ids; texts would need BERT's "
                          "tokenizer, which is not here",
                          path);
    if (file->ids) {
        fsdp_status status = fsdp_dataset_check_has_pairs(options, false);
        fsdp_error_context(status, "%s", path);
        return status;
    }
    if (file->json)
        return FSDP_OK;
    FSDP_TRY(fsdp_titles_find(path, options->split, titles));
    file->titles = *titles;
    return FSDP_OK;
}

fsdp_status fsdp_text_dataset_open(const char *path, const fsdp_dataset_options *options,
                                   fsdp_dataset **out)
{
    char *found = NULL, *titles = NULL;
    text_file file = {0};
    FSDP_TRY(find_file(path, &found));
    fsdp_status status = examine(found, options, &file, &titles);
    if (status == FSDP_OK)
        status = open_texts(&file, options, out);
    fsdp_free(titles);
    fsdp_free(found);
    return status;
}
