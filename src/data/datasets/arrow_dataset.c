/* Opens an Arrow file, or a folder of datasets.save_to_disk(), as a dataset. Each row is converted
 * to a JSON object, which is then read like a line of JSON lines (jsonl_row.h). So the rows of both
 * kinds of files mean the same.
 *
 * The files are mapped, and a row is converted each time its example is requested. So no rank keeps
 * the rows in memory, and the page cache has the files only once for all ranks of a host. When the
 * dataset is opened, all rows of small files are checked, and the first rows of larger ones. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/data/arrow/arrow_note.h"
#include "src/data/arrow/table.h"
#include "src/data/datasets/dataset.h"
#include "src/data/datasets/ids.h"
#include "src/data/datasets/jsonl_row.h"

enum {
    FIRST_ROWS = 64,        /* number of rows of a large file that are checked when the dataset is
                             * opened */
    SMALL_BYTES = 16 << 20, /* files of at most this size are checked as a whole */
};

typedef struct arrow_dataset {
    fsdp_arrow_table *table;
    fsdp_dataset_options options; /* the texts that own_options() copies are owned by this struct */
    char **class_names;           /* [options.num_classes], owned; options.class_names is this
                                     array */
    int32_t eos;                  /* the id of </s>; -1: unknown */
    char *note;                   /* the text that fsdp_dataset_note() returns, or NULL */
} arrow_dataset;

/* ---- options ---- */

/* Replace a text by a copy. NULL stays NULL. Return false when out of memory. */
static bool own_text(const char **text)
{
    if (*text)
        return (*text = fsdp_strdup(*text)) != NULL;
    return true;
}

static fsdp_status own_class_names(arrow_dataset *d)
{
    const char *const *names = d->options.class_names;
    const int64_t n = d->options.num_classes;
    d->options.class_names = NULL;
    if (!names)
        return FSDP_OK;
    if (!(d->class_names = fsdp_calloc((size_t)n, sizeof *d->class_names)))
        return FSDP_ERR_NOMEM;
    for (int64_t i = 0; i < n; i++)
        if (names[i] && !(d->class_names[i] = fsdp_strdup(names[i])))
            return FSDP_ERR_NOMEM;
    d->options.class_names = (const char *const *)d->class_names;
    return FSDP_OK;
}

/* Copy the options, and those texts in them that are used after the dataset has been opened. */
static fsdp_status own_options(arrow_dataset *d, const fsdp_dataset_options *options)
{
    d->options = *options;
    const char **texts[] = {&d->options.source_prefix, &d->options.source_column,
                            &d->options.target_column, &d->options.class_hint};
    const size_t n = sizeof texts / sizeof *texts;
    for (size_t i = 0; i < n; i++) {
        if (own_text(texts[i]))
            continue;
        /* The texts that were not copied still belong to the caller, so forget them. */
        for (*texts[i] = NULL; i < n; i++)
            *texts[i] = NULL;
        d->options.class_names = NULL;
        return FSDP_ERR_NOMEM;
    }
    return own_class_names(d);
}

static void free_text(const char *text)
{
    fsdp_free((void *)(uintptr_t)text);
}

static void free_options(arrow_dataset *d)
{
    free_text(d->options.source_prefix);
    free_text(d->options.source_column);
    free_text(d->options.target_column);
    free_text(d->options.class_hint);
    for (int64_t i = 0; d->class_names && i < d->options.num_classes; i++)
        fsdp_free(d->class_names[i]);
    fsdp_free(d->class_names);
}

/* ---- rows ---- */

/* If `status` may mean that a row lacks a key, append to the error message why a column may be
 * missing (its type cannot be read, or set_format() did not choose it), and return FSDP_ERR_FORMAT.
 * Otherwise return `status`. */
static fsdp_status explain_missing(const arrow_dataset *d, fsdp_status status)
{
    if (status != FSDP_ERR_NOT_FOUND &&
        (status != FSDP_ERR_FORMAT || fsdp_arrow_table_has(d->table, "input_ids")))
        return status;
    const char *left_out = fsdp_arrow_table_left_out(d->table);
    if (left_out)
        return fsdp_error(FSDP_ERR_FORMAT, "%s (columns whose types are not read: %s)",
                          fsdp_last_error(), left_out);
    if (fsdp_arrow_table_folder(d->table)->has_columns)
        return fsdp_error(
            FSDP_ERR_FORMAT,
            "%s (rows have only the columns of '_format_columns' in state.json, which "
            "set_format() chose)",
            fsdp_last_error());
    return FSDP_ERR_FORMAT;
}

static fsdp_status read_row(const arrow_dataset *d, int64_t index, fsdp_example *example,
                            fsdp_jsonl_rows *rows)
{
    fsdp_json *doc;
    FSDP_TRY(fsdp_arrow_table_row(d->table, index, &doc));
    fsdp_status status = fsdp_jsonl_row(fsdp_json_root(doc), &d->options, index, example, rows);
    fsdp_json_destroy(doc);
    status = explain_missing(d, status);
    fsdp_arrow_table_add_context(d->table, index, status);
    return status;
}

static int64_t arrow_len(void *self)
{
    return fsdp_arrow_table_len(((const arrow_dataset *)self)->table);
}

/* Read a row, without truncating it if the task is SEQ2SEQ. Set *cut to the number of ids that were
 * removed because of max_length; for SEQ2SEQ it is 0. */
static fsdp_status get_whole(const arrow_dataset *d, int64_t index, fsdp_example *example,
                             int64_t *cut)
{
    fsdp_jsonl_rows rows = {0};
    const fsdp_status status = read_row(d, index, example, &rows);
    fsdp_unused_keys_fini(&rows.unused);
    *cut = rows.cut;
    return status;
}

static fsdp_status arrow_get_cut(void *self, int64_t index, fsdp_example *example, int64_t *cut)
{
    const arrow_dataset *d = self;
    FSDP_TRY(get_whole(d, index, example, cut));
    if (d->options.task != FSDP_TASK_SEQ2SEQ) /* other tasks are truncated in jsonl_row.c */
        return FSDP_OK;
    const size_t whole = example->source.len + example->labels.len;
    fsdp_ids_cut(&example->source, (size_t)d->options.max_source_length, d->eos);
    fsdp_ids_cut(&example->labels, (size_t)d->options.max_target_length, d->eos);
    *cut = (int64_t)(whole - example->source.len - example->labels.len);
    return FSDP_OK;
}

static fsdp_status arrow_get(void *self, int64_t index, fsdp_example *example)
{
    int64_t cut;
    return arrow_get_cut(self, index, example, &cut);
}

static fsdp_status arrow_texts(void *self, int64_t index, char **source, char **target)
{
    const arrow_dataset *d = self;
    fsdp_example example = {0};
    int64_t cut;
    fsdp_status status = get_whole(d, index, &example, &cut);
    if (status == FSDP_OK)
        status =
            fsdp_ids_texts(d->options.tokenizer, d->options.task,
                           (fsdp_id_list){example.source.ids, example.source.len},
                           (fsdp_id_list){example.labels.ids, example.labels.len}, source, target);
    fsdp_example_fini(&example);
    return status;
}

static void arrow_close(void *self)
{
    arrow_dataset *d = self;
    fsdp_arrow_table_close(d->table);
    free_options(d);
    fsdp_free(d->note);
    fsdp_free(d);
}

static const fsdp_dataset_ops arrow_ops = {
    .len = arrow_len,
    .get = arrow_get,
    .texts = arrow_texts,
    .close = arrow_close,
};

/* ---- opening ---- */

static fsdp_status check_rows(const arrow_dataset *d, fsdp_jsonl_rows *rows)
{
    fsdp_example example = {0};
    fsdp_status status = FSDP_OK;
    int64_t n = fsdp_arrow_table_len(d->table);
    if (n > d->options.max_samples)
        n = d->options.max_samples;
    if (n > FIRST_ROWS && fsdp_arrow_table_bytes(d->table) > SMALL_BYTES)
        n = FIRST_ROWS;
    for (int64_t i = 0; i < n && status == FSDP_OK; i++) {
        fsdp_example_empty(&example);
        status = read_row(d, i, &example, rows);
    }
    fsdp_example_fini(&example);
    return status;
}

static fsdp_status open_rows(arrow_dataset *d, const char *path, fsdp_jsonl_rows *rows)
{
    FSDP_TRY(fsdp_arrow_table_open(
        path, d->options.validation ? FSDP_ARROW_SPLIT_VALIDATION : FSDP_ARROW_SPLIT_TRAIN,
        &d->table));
    if (fsdp_arrow_table_len(d->table) == 0)
        return fsdp_error(FSDP_ERR_FORMAT, "%s: no rows", fsdp_arrow_table_folder(d->table)->path);
    FSDP_TRY(check_rows(d, rows));
    return fsdp_arrow_note(d->table, &rows->unused,
                           fsdp_arrow_table_has(d->table, "labels") ? "labels" : "label",
                           &d->options, &d->note);
}

fsdp_status fsdp_arrow_dataset_open(const char *path, const fsdp_dataset_options *options,
                                    fsdp_dataset **out)
{
    fsdp_jsonl_rows rows = {0};
    arrow_dataset *d = fsdp_calloc(1, sizeof *d);
    if (!d)
        return FSDP_ERR_NOMEM;
    d->eos = fsdp_ids_eos(options);
    fsdp_status status = own_options(d, options);
    if (status == FSDP_OK)
        status = open_rows(d, path, &rows);
    if (status == FSDP_OK)
        status = fsdp_dataset_create(&arrow_ops, d, out);
    fsdp_unused_keys_fini(&rows.unused);
    if (status != FSDP_OK) {
        arrow_close(d);
        return status;
    }
    fsdp_dataset_set_uses(*out, fsdp_jsonl_rows_uses(&rows));
    fsdp_dataset_set_note(*out, d->note);
    fsdp_dataset_set_get_cut(*out, arrow_get_cut);
    return FSDP_OK;
}
