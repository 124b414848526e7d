/* Opens rows of CSV, JSON or Arrow as a dataset: one file, the files of a folder, or the files that
 * match a pattern. Also selects the rows of a split. */
#include <inttypes.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/data/arrow/table.h"
#include "src/data/datasets/dataset.h"
#include "src/data/files/data_paths.h"
#include "src/data/rows/dataset_options.h"
#include "src/data/rows/rows_form.h"
#include "src/data/rows/titles.h"

fsdp_status fsdp_percent_range(const fsdp_dataset_options *options, int64_t rows, const char *path,
                               const char *unit, fsdp_row_range *range)
{
    const int64_t percent = options->validation_percent;
    /* percent * rows / 100, without overflow */
    int64_t held_back = rows / 100 * percent + rows % 100 * percent / 100;
    const int64_t rest = rows % 100 * percent % 100;
    held_back += rest > 50 || (rest == 50 && held_back % 2);
    if (held_back == 0 || held_back == rows)
        return fsdp_error(FSDP_ERR_INVALID,
                          "%s: %" PRId64 " %s, of which %d %% are %" PRId64
                          ": too few to be split into training and validation "
                          "(--validation-split-percentage)",
                          path, rows, unit, options->validation_percent, held_back);
    const bool validation = options->split == FSDP_SPLIT_VALIDATION;
    range->first = validation ? 0 : held_back;
    range->rows = range->len = validation ? held_back : rows - held_back;
    return FSDP_OK;
}

/* Restrict the dataset to the rows of options->split: the first options->validation_percent percent
 * of the rows are for validation, and the rest is for training. */
static fsdp_status take_percent(fsdp_dataset *dataset, const char *path,
                                const fsdp_dataset_options *options)
{
    fsdp_row_range rows;
    FSDP_TRY(fsdp_percent_range(options, fsdp_dataset_len(dataset), path, "rows", &rows));
    const int64_t used = rows.rows < options->max_samples ? rows.rows : options->max_samples;
    fsdp_dataset_narrow(dataset, rows.first, used);
    fsdp_dataset_set_file_rows(dataset, (fsdp_file_rows){.count = used, .in_split = rows.rows});
    return FSDP_OK;
}

/* Restrict the dataset to the rows of options->split: the last sixth of the rows is for validation,
 * and the rest is for training. If options->validation_percent is set, take_percent() decides
 * instead which rows these are. Called only if no list of titles (rows/titles.h) chose the rows. */
static fsdp_status take_share(fsdp_dataset *dataset, const char *path,
                              const fsdp_dataset_options *options)
{
    if (options->validation_percent)
        return take_percent(dataset, path, options);
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
    fsdp_rows_form form;
    bool ids; /* opened by fsdp_jsonl_dataset_open(): rows have ids or, for CAUSAL_LM, texts */
} text_file;

static fsdp_status open_texts(const text_file *file, const fsdp_dataset_options *options,
                              fsdp_dataset **out)
{
    fsdp_dataset_options all = *options;
    if (!file->ids)
        fsdp_dataset_complete_lengths(&all);
    if (!file->ids && options->task == FSDP_TASK_CLASSIFICATION)
        return fsdp_class_dataset_open(file->path, file->form, &all, out);
    return file->ids ? fsdp_jsonl_dataset_open(file->path, &all, out)
                     : fsdp_pair_dataset_open(file->path, file->form, file->titles, &all, out);
}

/* Find out how the file `path` must be opened, and fill in *file. If there is a list of titles for
 * the split, set *titles and file->titles to its path, which the caller frees. */
static fsdp_status examine(const char *path, const fsdp_dataset_options *options, text_file *file,
                           char **titles)
{
    bool ids, texts = false;
    file->path = path;
    FSDP_TRY(fsdp_rows_form_of(path, &file->form));
    if (options->task != FSDP_TASK_CAUSAL_LM)
        FSDP_TRY(fsdp_first_row_kind(path, options->json_field, options->validation, &ids, &texts));
    file->ids = file->form != FSDP_ROWS_CSV && !texts;
    if (file->ids) {
        fsdp_status status = fsdp_dataset_check_has_pairs(options, false);
        fsdp_error_context(status, "%s", path);
        return status;
    }
    if (file->form != FSDP_ROWS_CSV)
        return FSDP_OK;
    if (!options->validation_percent && options->task != FSDP_TASK_CLASSIFICATION)
        FSDP_TRY(fsdp_titles_find(path, options->split, titles));
    file->titles = *titles;
    return FSDP_OK;
}

/* Open one file. Set *has_list to true if a list of titles chose the rows of the split, otherwise
 * to false. */
static fsdp_status open_file(const char *path, const fsdp_dataset_options *options, bool *has_list,
                             fsdp_dataset **out)
{
    char *titles = NULL;
    text_file file = {0};
    fsdp_dataset_options all = *options;
    fsdp_status status = examine(path, options, &file, &titles);
    *has_list = titles != NULL;
    if (options->split != FSDP_SPLIT_ALL && !titles)
        all.max_samples = INT64_MAX; /* read all rows, because the split is a share of them */
    if (status == FSDP_OK)
        status = open_texts(&file, &all, out);
    fsdp_free(titles);
    return status;
}

/* Call fsdp_dataset_set_file(). On failure, close the dataset. */
static fsdp_status set_file(fsdp_dataset **dataset, const char *path)
{
    const fsdp_status status = fsdp_dataset_set_file(*dataset, path);
    if (status != FSDP_OK)
        fsdp_dataset_close(*dataset);
    return status;
}

/* The rows of a split are chosen either by lists of titles or as a share of all rows. So lists must
 * choose the rows of all files or of none. */
static fsdp_status refuse_mixed_lists(const char *path, bool has_list, const char *other)
{
    return fsdp_error(FSDP_ERR_INVALID,
                      "%s: a list of titles (all_train.txt, all_val.txt) beside this file chooses "
                      "its rows, but no list chooses those of %s; name other files for validation "
                      "(--validation-data), or choose rows without the lists "
                      "(--validation-split-percentage)",
                      has_list ? path : other, has_list ? other : path);
}

/* Open files until there are max_samples rows. `parts` must have capacity for all files. *n is the
 * number of open parts, also on failure. Set *has_lists to true if lists of titles chose the rows
 * of the split, otherwise to false. */
static fsdp_status open_parts(const fsdp_path_list *files, const fsdp_dataset_options *options,
                              fsdp_dataset **parts, size_t *n, bool *has_lists)
{
    fsdp_dataset_options o = *options;
    for (*n = 0; *n < files->len && o.max_samples > 0; ++*n) {
        bool has_list;
        FSDP_TRY(open_file(files->items[*n], &o, &has_list, &parts[*n]));
        if (files->len > 1)
            FSDP_TRY(set_file(&parts[*n], files->items[*n]));
        if (*n > 0 && has_list != *has_lists) {
            fsdp_dataset_close(parts[*n]);
            return refuse_mixed_lists(files->items[*n], has_list, files->items[0]);
        }
        *has_lists = has_list;
        if (options->split == FSDP_SPLIT_ALL || has_list)
            o.max_samples -= fsdp_dataset_len(parts[*n]);
    }
    return FSDP_OK;
}

static fsdp_status open_files(const fsdp_path_list *files, const fsdp_dataset_options *options,
                              bool *has_lists, fsdp_dataset **out)
{
    size_t n = 0;
    fsdp_dataset **parts = fsdp_calloc(files->len, sizeof(fsdp_dataset *));
    if (!parts)
        return FSDP_ERR_NOMEM;
    fsdp_status status = open_parts(files, options, parts, &n, has_lists);
    if (status == FSDP_OK && n == 1)
        *out = parts[0];
    else if (status == FSDP_OK)
        status = fsdp_concat_dataset_create(parts, n, out);
    for (size_t i = 0; status != FSDP_OK && i < n; i++)
        fsdp_dataset_close(parts[i]);
    fsdp_free(parts);
    return status;
}

/* Set *is_split to true if the folder has several splits, of which the options choose one. Set
 * *texts to true if the rows are read as texts, or to false if fsdp_jsonl_row() reads them. */
static fsdp_status examine_arrow(const char *path, const fsdp_dataset_options *options,
                                 bool *is_split, bool *texts)
{
    fsdp_arrow_table *table;
    FSDP_TRY(fsdp_arrow_table_open(
        path, options->validation ? FSDP_ARROW_SPLIT_VALIDATION : FSDP_ARROW_SPLIT_TRAIN, &table));
    *is_split = fsdp_arrow_table_folder(table)->split != NULL;
    *texts = options->task != FSDP_TASK_CAUSAL_LM && !fsdp_arrow_table_has(table, "input_ids");
    fsdp_arrow_table_close(table);
    if (*texts)
        return FSDP_OK;
    fsdp_status status = fsdp_dataset_check_has_pairs(options, false);
    fsdp_error_context(status, "%s", path);
    return status;
}

static fsdp_status open_arrow(const char *path, const fsdp_dataset_options *options,
                              fsdp_dataset **out)
{
    fsdp_dataset_options all = *options;
    fsdp_dataset *dataset;
    bool is_split, texts;
    if (options->split != FSDP_SPLIT_ALL)
        all.validation = options->split == FSDP_SPLIT_VALIDATION && !options->validation_percent;
    FSDP_TRY(examine_arrow(path, &all, &is_split, &texts));
    const bool take =
        options->split != FSDP_SPLIT_ALL && (!is_split || options->validation_percent);
    if (take)
        all.max_samples = INT64_MAX; /* read all rows, because the split is a share of them */
    const text_file file = {.path = path, .form = FSDP_ROWS_ARROW};
    FSDP_TRY(texts ? open_texts(&file, &all, &dataset)
                   : fsdp_arrow_dataset_open(path, &all, &dataset));
    fsdp_status status = FSDP_OK;
    if (take)
        status = take_share(dataset, path, options);
    else if (fsdp_dataset_len(dataset) > options->max_samples)
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
    fsdp_path_list files;
    fsdp_dataset *dataset = NULL;
    bool has_lists = false;
    if (fsdp_is_arrow_path(path))
        return open_arrow(path, options, out);
    FSDP_TRY(fsdp_text_paths(path, options->validation, &files));
    fsdp_status status = open_files(&files, options, &has_lists, &dataset);
    fsdp_path_list_fini(&files);
    if (status == FSDP_OK && options->split != FSDP_SPLIT_ALL && !has_lists)
        status = take_share(dataset, path, options);
    if (status == FSDP_OK)
        *out = dataset;
    else
        fsdp_dataset_close(dataset);
    return status;
}
