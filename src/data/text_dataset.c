/* Opens a file of CSV or JSON lines, an Arrow file or folder, or a folder with WikiHow's files, and
 * selects the rows of a split. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/data/arrow/table.h"
#include "src/data/dataset.h"
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

static bool ends_with(const char *text, const char *ending)
{
    size_t length = strlen(text), n = strlen(ending);
    return length >= n && strcasecmp(text + length - n, ending) == 0;
}

bool fsdp_is_csv_path(const char *path)
{
    return ends_with(path, ".csv");
}

static int next_visible(FILE *file)
{
    int byte = fgetc(file);
    while (byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r')
        byte = fgetc(file);
    return byte;
}

/* If the ending of the file's name does not decide, the first bytes of the file decide: JSON lines
 * begin with a brace and the quote of a key. A brace alone is not enough, because a text may begin
 * with "{{". White space and a byte order mark are skipped. */
fsdp_status fsdp_is_jsonl_path(const char *path, bool *jsonl)
{
    *jsonl = ends_with(path, ".jsonl") || ends_with(path, ".json") || ends_with(path, ".ndjson");
    if (*jsonl || fsdp_is_csv_path(path))
        return FSDP_OK;
    FILE *file = fopen(path, "rb");
    if (!file)
        return fsdp_error(errno == ENOENT ? FSDP_ERR_NOT_FOUND : FSDP_ERR_IO, "%s: %s", path,
                          strerror(errno));
    int byte = next_visible(file);
    if (byte == 0xEF && fgetc(file) == 0xBB && fgetc(file) == 0xBF)
        byte = next_visible(file); /* after the byte order mark */
    *jsonl = byte == '{' && next_visible(file) == '"';
    fclose(file);
    return FSDP_OK;
}

bool fsdp_dataset_rows_may_be_ids(const char *path)
{
    fsdp_arrow_table *table;
    bool may = false;
    if (!fsdp_is_arrow_path(path))
        return fsdp_is_jsonl_path(path, &may) == FSDP_OK && may;
    if (fsdp_arrow_table_open(path, FSDP_ARROW_SPLIT_TRAIN, &table) != FSDP_OK)
        return false;
    may = fsdp_arrow_table_has(table, "input_ids");
    fsdp_arrow_table_close(table);
    return may;
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

/* Open a file of CSV or JSON lines. `titles` is the path of the split's list of titles; NULL: there
 * is none. */
static fsdp_status open_texts(const char *file, bool jsonl, const char *titles,
                              const fsdp_dataset_options *options, fsdp_dataset **out)
{
    const bool share = options->split != FSDP_SPLIT_ALL && !titles;
    fsdp_dataset_options all = *options;
    fsdp_dataset *dataset;
    if (share)
        all.max_samples = INT64_MAX;
    if (!jsonl)
        fsdp_dataset_complete_lengths(&all);
    FSDP_TRY(jsonl ? fsdp_jsonl_dataset_open(file, &all, &dataset)
                   : fsdp_csv_dataset_open(file, titles, &all, &dataset));
    fsdp_status status = share ? take_share(dataset, file, options) : FSDP_OK;
    if (status == FSDP_OK)
        *out = dataset;
    else
        fsdp_dataset_close(dataset);
    return status;
}

static fsdp_status open_arrow(const char *path, const fsdp_dataset_options *options,
                              fsdp_dataset **out)
{
    fsdp_dataset_options all = *options;
    fsdp_dataset *dataset;
    bool is_split;
    fsdp_status status = fsdp_dataset_check_has_pairs(options, false);
    fsdp_error_context(status, "%s", path);
    FSDP_TRY(status);
    if (options->split != FSDP_SPLIT_ALL)
        all.validation = options->split == FSDP_SPLIT_VALIDATION;
    FSDP_TRY(fsdp_arrow_dataset_open(path, &all, &is_split, &dataset));
    const int64_t len = fsdp_dataset_len(dataset);
    if (options->split != FSDP_SPLIT_ALL && !is_split)
        status = take_share(dataset, path, options);
    else if (len > options->max_samples)
        fsdp_dataset_narrow(dataset, 0, options->max_samples);
    if (status == FSDP_OK)
        *out = dataset;
    else
        fsdp_dataset_close(dataset);
    return status;
}

fsdp_status fsdp_text_dataset_open(const char *path, const fsdp_dataset_options *options,
                                   fsdp_dataset **out)
{
    char *file = NULL, *titles = NULL;
    if (fsdp_is_arrow_path(path))
        return open_arrow(path, options, out);
    FSDP_TRY(find_file(path, &file));
    bool jsonl = false;
    fsdp_status status = fsdp_is_jsonl_path(file, &jsonl);
    if (status == FSDP_OK && !jsonl && options->task == FSDP_TASK_CLASSIFICATION)
        status = fsdp_error(FSDP_ERR_INVALID,
                            "%s: classification takes JSON lines of ids; texts would need BERT's "
                            "tokenizer, which is not here",
                            file);
    if (status == FSDP_OK && jsonl) {
        status = fsdp_dataset_check_has_pairs(options, false);
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
