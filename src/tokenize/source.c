/* See source.h. */
#include "src/tokenize/source.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "src/data/arrow/arrow_note.h"
#include "src/data/datasets/dataset.h"
#include "src/data/files/data_paths.h"
#include "src/data/files/file_names.h"
#include "src/data/rows/rows_form.h"
#include "src/tokenize/record_file.h"

enum {
    BATCH_BYTES = 1 << 20, /* a batch of texts is complete when it has at least this many bytes */
    BATCH_RECORDS = 8192,  /* largest number of records of a batch of texts */
    BATCH_INDICES = 256    /* largest number of records of a batch of indices (ARROW and EXAMPLE) */
};

typedef struct source_file {
    char *path;
    fsdp_record_kind kind;
    bool validation;
} source_file;

struct fsdp_record_source {
    fsdp_dataset_options rows;
    fsdp_task task;
    int64_t max_samples;
    source_file *files;
    size_t len, cap;
    size_t current; /* index of the file that is being read */
    /* the current file is open: as `file`, as the last one of `tables`, or as the last one of
     * `datasets` */
    bool is_open;
    fsdp_record_file *file;
    /* number of records that have been read: of all files, and of the current file */
    int64_t records, of_file;
    int64_t of_training; /* number of records that have been read from training data */
    fsdp_arrow_table **tables;
    size_t n_tables, tables_cap;
    fsdp_dataset **datasets;
    size_t n_datasets, datasets_cap;
    bool leaves_validation;
    unsigned uses;
    fsdp_str notes;
};

void fsdp_record_batch_fini(fsdp_record_batch *batch)
{
    fsdp_free(batch->records);
    fsdp_free(batch->bytes);
    *batch = (fsdp_record_batch){0};
}

/* ---- files ---- */

static fsdp_status add_file(fsdp_record_source *s, const char *path, fsdp_record_kind kind,
                            bool validation)
{
    if (!FSDP_GROW(s->files, s->cap, s->len + 1))
        return FSDP_ERR_NOMEM;
    char *copy = fsdp_strdup(path);
    if (!copy)
        return FSDP_ERR_NOMEM;
    s->files[s->len++] = (source_file){.path = copy, .kind = kind, .validation = validation};
    return FSDP_OK;
}

static fsdp_status add_rows(fsdp_record_source *s, const char *path, bool validation)
{
    fsdp_rows_form form;
    FSDP_TRY(fsdp_rows_form_of(path, &form));
    const bool json = form == FSDP_ROWS_JSON;
    s->uses |= fsdp_rows_form_uses(form);
    return add_file(s, path, json ? FSDP_RECORD_JSON : FSDP_RECORD_PAIR, validation);
}

/* Add the text files of `path`, which is not an Arrow folder. */
static fsdp_status add_texts(fsdp_record_source *s, const char *path, bool validation)
{
    fsdp_path_list files;
    fsdp_dataset_options rows = s->rows;
    bool plain;
    rows.validation = validation;
    FSDP_TRY(fsdp_is_plain_text(path, &rows, &plain));
    FSDP_TRY(fsdp_text_paths(path, validation, &files));
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < files.len && status == FSDP_OK; i++)
        status = plain ? add_file(s, files.items[i], FSDP_RECORD_DOCUMENT, validation)
                       : add_rows(s, files.items[i], validation);
    fsdp_path_list_fini(&files);
    if (plain)
        s->uses |= FSDP_USES_DOCUMENTS;
    return status;
}

static fsdp_status add_folder_or_file(fsdp_record_source *s, const char *path, bool validation)
{
    bool tokens;
    FSDP_TRY(fsdp_is_token_path(path, &tokens));
    if (tokens)
        return fsdp_error(FSDP_ERR_INVALID,
                          "%s: token files (.bin), which are tokenized already: 'fsdp train' reads "
                          "them as they are",
                          path);
    if (s->task == FSDP_TASK_SEQ2SEQ || s->task == FSDP_TASK_CLASSIFICATION)
        return add_file(s, path, FSDP_RECORD_EXAMPLE, validation);
    return add_texts(s, path, validation);
}

/* Add the files to which `path` refers. If `is_split` is true, `path` is the training data, and may
 * contain validation data as well. In that case, `validation` says which of the two to add. */
static fsdp_status add_path(fsdp_record_source *s, const char *path, bool is_split, bool validation)
{
    char *folder;
    const bool causal = s->task == FSDP_TASK_CAUSAL_LM || s->task == FSDP_TASK_MASKED_LM;
    FSDP_TRY(fsdp_input_check_kept(path));
    if (fsdp_is_arrow_path(path))
        return add_file(s, path, causal ? FSDP_RECORD_ARROW : FSDP_RECORD_EXAMPLE, validation);
    if (!is_split && validation && !fsdp_path_is_directory(path))
        return add_folder_or_file(s, path, validation);
    FSDP_TRY(fsdp_split_folder(path, validation, &folder));
    fsdp_status status = add_folder_or_file(s, folder, validation);
    fsdp_free(folder);
    return status;
}

/* Set *has to true if `path` contains validation data: an Arrow split, or files for validation in a
 * folder. */
static fsdp_status has_validation(const char *path, bool *has)
{
    fsdp_path_list files;
    char *folder;
    *has = false;
    if (fsdp_is_arrow_path(path))
        *has = fsdp_arrow_has_validation(path);
    if (fsdp_is_arrow_path(path) || !fsdp_path_is_directory(path))
        return FSDP_OK;
    const fsdp_status status = fsdp_split_folder(path, true, &folder);
    if (status == FSDP_ERR_NOT_FOUND) /* there is a folder for training, but none for validation */
        return FSDP_OK;
    FSDP_TRY(status);
    *has = fsdp_text_paths(folder, true, &files) == FSDP_OK;
    if (*has)
        fsdp_path_list_fini(&files);
    fsdp_free(folder);
    return FSDP_OK;
}

static fsdp_status find_files(fsdp_record_source *s, const fsdp_source_options *o)
{
    FSDP_TRY(add_path(s, o->data, true, false));
    if (o->validation_data)
        return add_path(s, o->validation_data, false, true);
    FSDP_TRY(has_validation(o->data, &s->leaves_validation));
    if (!o->find_validation || !s->leaves_validation)
        return FSDP_OK;
    s->leaves_validation = false;
    return add_path(s, o->data, true, true);
}

fsdp_status fsdp_record_source_open(const fsdp_source_options *options, fsdp_record_source **out)
{
    fsdp_record_source *s = fsdp_calloc(1, sizeof *s);
    if (!s)
        return FSDP_ERR_NOMEM;
    s->rows = *options->rows;
    s->task = options->task;
    s->max_samples = options->max_samples ? options->max_samples : INT64_MAX;
    fsdp_status status = find_files(s, options);
    if (status != FSDP_OK) {
        fsdp_record_source_close(s);
        return status;
    }
    *out = s;
    return FSDP_OK;
}

void fsdp_record_source_close(fsdp_record_source *s)
{
    if (!s)
        return;
    fsdp_record_file_close(s->file);
    for (size_t i = 0; i < s->len; i++)
        fsdp_free(s->files[i].path);
    for (size_t i = 0; i < s->n_tables; i++)
        fsdp_arrow_table_close(s->tables[i]);
    for (size_t i = 0; i < s->n_datasets; i++)
        fsdp_dataset_close(s->datasets[i]);
    fsdp_free(s->files);
    fsdp_free(s->tables);
    fsdp_free(s->datasets);
    fsdp_str_fini(&s->notes);
    fsdp_free(s);
}

/* ---- reading ---- */

static fsdp_status add_note(fsdp_record_source *s, const char *note)
{
    if (note && *note)
        fsdp_str_printf(&s->notes, "%s%s", s->notes.len ? "\n" : "", note);
    return s->notes.failed ? fsdp_error_nomem() : FSDP_OK;
}

static fsdp_status open_dataset(fsdp_record_source *s, const source_file *file)
{
    fsdp_dataset_options rows = s->rows;
    if (!FSDP_GROW(s->datasets, s->datasets_cap, s->n_datasets + 1))
        return FSDP_ERR_NOMEM;
    rows.task = s->task;
    rows.validation = file->validation;
    if (file->validation)
        rows.max_samples = 0; /* --max-samples limits only the training data */
    FSDP_TRY(fsdp_dataset_open(file->path, &rows, &s->datasets[s->n_datasets]));
    const fsdp_dataset *d = s->datasets[s->n_datasets++];
    s->uses |= fsdp_dataset_uses(d);
    return add_note(s, fsdp_dataset_note(d));
}

static fsdp_status open_table(fsdp_record_source *s, const source_file *file)
{
    if (!FSDP_GROW(s->tables, s->tables_cap, s->n_tables + 1))
        return FSDP_ERR_NOMEM;
    FSDP_TRY(fsdp_arrow_table_open(
        file->path, file->validation ? FSDP_ARROW_SPLIT_VALIDATION : FSDP_ARROW_SPLIT_TRAIN,
        &s->tables[s->n_tables]));
    s->n_tables++;
    return FSDP_OK;
}

static fsdp_status open_current(fsdp_record_source *s)
{
    const source_file *file = &s->files[s->current];
    s->of_file = 0;
    if (file->kind == FSDP_RECORD_EXAMPLE)
        FSDP_TRY(open_dataset(s, file));
    else if (file->kind == FSDP_RECORD_ARROW)
        FSDP_TRY(open_table(s, file));
    else
        FSDP_TRY(fsdp_record_file_open(file->path, file->kind, &s->rows, &s->file));
    if (s->file)
        s->uses |= fsdp_record_file_uses(s->file);
    s->is_open = true;
    return FSDP_OK;
}

static fsdp_status fill_indices(const fsdp_record_source *s, int64_t len, int64_t most,
                                fsdp_record_batch *batch)
{
    int64_t n = len - s->of_file < BATCH_INDICES ? len - s->of_file : BATCH_INDICES;
    n = n < most ? n : most;
    if (!FSDP_GROW(batch->records, batch->records_cap, (size_t)n))
        return FSDP_ERR_NOMEM;
    for (int64_t i = 0; i < n; i++)
        batch->records[i] = (fsdp_record){.index = s->of_file + i};
    batch->len = (size_t)n;
    return FSDP_OK;
}

/* Read at most `most` records of the current file into *batch. If the file has no more records,
 * batch->len is 0. */
static fsdp_status fill(fsdp_record_source *s, int64_t most, fsdp_record_batch *batch)
{
    const source_file *file = &s->files[s->current];
    batch->len = batch->used = 0;
    batch->kind = file->kind;
    batch->path = file->path;
    batch->validation = file->validation;
    batch->first = s->records;
    batch->table = s->n_tables ? s->tables[s->n_tables - 1] : NULL;
    batch->dataset = s->n_datasets ? s->datasets[s->n_datasets - 1] : NULL;
    if (file->kind == FSDP_RECORD_EXAMPLE)
        return fill_indices(s, fsdp_dataset_len(batch->dataset), most, batch);
    if (file->kind == FSDP_RECORD_ARROW)
        return fill_indices(s, fsdp_arrow_table_len(batch->table), most, batch);
    while (batch->used < BATCH_BYTES && batch->len < BATCH_RECORDS && (int64_t)batch->len < most) {
        bool ended;
        FSDP_TRY(fsdp_record_file_next(s->file, batch, &ended));
        if (ended)
            break;
    }
    return FSDP_OK;
}

/* Close the current file, and make the next one current. */
static fsdp_status end_file(fsdp_record_source *s)
{
    const source_file *file = &s->files[s->current++];
    char *note = NULL;
    fsdp_status status = FSDP_OK;
    s->is_open = false;
    if (s->file) {
        status = fsdp_record_file_end(s->file, &note);
        fsdp_record_file_close(s->file);
        s->file = NULL;
    }
    if (status == FSDP_OK)
        status = add_note(s, note);
    fsdp_free(note);
    if (status == FSDP_OK && s->of_file == 0)
        status = fsdp_error(FSDP_ERR_FORMAT, "%s: no %s", file->path,
                            file->kind == FSDP_RECORD_DOCUMENT ? "text" : "rows");
    return status;
}

/* Read at most `most` records of the current file into *batch. If the file has no more records, or
 * if no more training rows are wanted, go to the next file instead. */
static fsdp_status step(fsdp_record_source *s, int64_t most, fsdp_record_batch *batch)
{
    if (!s->files[s->current].validation && most > s->max_samples - s->of_training)
        most = s->max_samples - s->of_training;
    if (most == 0 && !s->is_open) { /* --max-samples rows of training data have been read */
        s->current++;
        return FSDP_OK;
    }
    if (!s->is_open)
        FSDP_TRY(open_current(s));
    FSDP_TRY(fill(s, most, batch));
    s->records += (int64_t)batch->len;
    s->of_file += (int64_t)batch->len;
    s->of_training += batch->validation ? 0 : (int64_t)batch->len;
    return batch->len ? FSDP_OK : end_file(s);
}

static fsdp_status read_some(fsdp_record_source *s, int64_t most, fsdp_record_batch *batch)
{
    batch->len = batch->used = 0;
    while (batch->len == 0 && s->current < s->len)
        FSDP_TRY(step(s, most, batch));
    return FSDP_OK;
}

fsdp_status fsdp_record_source_next(fsdp_record_source *s, fsdp_record_batch *batch)
{
    return read_some(s, INT64_MAX, batch);
}

fsdp_status fsdp_record_source_skip(fsdp_record_source *s, int64_t count)
{
    const int64_t end = s->records + count;
    fsdp_record_batch batch = {0};
    fsdp_status status = FSDP_OK;
    while (status == FSDP_OK && s->records < end) {
        status = read_some(s, end - s->records, &batch);
        if (status == FSDP_OK && batch.len == 0)
            status = fsdp_error(FSDP_ERR_STATE,
                                "%s: %" PRId64 " rows, of which %" PRId64 " were tokenized before",
                                s->files[0].path, s->records, end);
    }
    fsdp_record_batch_fini(&batch);
    return status;
}

/* ---- properties ---- */

bool fsdp_record_source_has_validation(const fsdp_record_source *s)
{
    return s->files[s->len - 1].validation;
}

bool fsdp_record_source_leaves_validation(const fsdp_record_source *s)
{
    return s->leaves_validation;
}

unsigned fsdp_record_source_uses(const fsdp_record_source *s)
{
    return s->uses;
}

/* Set *uses to the FSDP_USES_* flags that rows of the dataset `file` can have. file->path may be a
 * folder or a glob pattern. */
static fsdp_status possible_of_examples(const fsdp_record_source *s, const source_file *file,
                                        unsigned *uses)
{
    fsdp_path_list paths;
    *uses = s->task == FSDP_TASK_CLASSIFICATION ? FSDP_USES_SOURCE_COLUMN | FSDP_USES_CLASSES
                                                : FSDP_USES_TEXTS | FSDP_USES_CLEANING;
    if (fsdp_is_arrow_path(file->path))
        return FSDP_OK;
    FSDP_TRY(fsdp_text_paths(file->path, file->validation, &paths));
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < paths.len && status == FSDP_OK; i++) {
        fsdp_rows_form form = FSDP_ROWS_ARROW;
        status = fsdp_rows_form_of(paths.items[i], &form);
        *uses |= fsdp_rows_form_uses(form);
    }
    fsdp_path_list_fini(&paths);
    return status;
}

fsdp_status fsdp_record_source_possible_uses(const fsdp_record_source *s, unsigned *uses)
{
    const unsigned rows = FSDP_USES_TEXTS | FSDP_USES_CHAT | FSDP_USES_COMPLETION;
    const unsigned of_kinds[] = {
        [FSDP_RECORD_DOCUMENT] = FSDP_USES_DOCUMENTS,
        [FSDP_RECORD_PAIR] = FSDP_USES_CSV | FSDP_USES_TEXTS | FSDP_USES_COMPLETION,
        [FSDP_RECORD_JSON] = FSDP_USES_JSON | rows,
        [FSDP_RECORD_ARROW] = rows,
    };
    *uses = 0;
    for (size_t i = 0; i < s->len; i++) {
        unsigned one = 0;
        if (s->files[i].kind == FSDP_RECORD_EXAMPLE)
            FSDP_TRY(possible_of_examples(s, &s->files[i], &one));
        else
            one = of_kinds[s->files[i].kind];
        *uses |= one;
    }
    return FSDP_OK;
}

int64_t fsdp_record_source_bytes(const fsdp_record_source *s)
{
    int64_t bytes = 0;
    struct stat info;
    for (size_t i = 0; i < s->len; i++) {
        const source_file *file = &s->files[i];
        const bool is_text = file->kind != FSDP_RECORD_ARROW && file->kind != FSDP_RECORD_EXAMPLE &&
                             !fsdp_name_is_compressed(file->path);
        if (!is_text || s->max_samples != INT64_MAX || stat(file->path, &info) != 0)
            return 0;
        bytes += info.st_size;
    }
    return bytes;
}

const char *fsdp_record_source_notes(const fsdp_record_source *s)
{
    return s->notes.data;
}

fsdp_status fsdp_record_source_unused(const fsdp_record_source *s, const fsdp_unused_keys *unused,
                                      char **note)
{
    if (s->n_tables)
        return fsdp_arrow_note(s->tables[0], unused, "label", &s->rows, note);
    return fsdp_unused_keys_note(unused, s->files[0].path, note);
}

/* ---- identity ---- */

static fsdp_status add_identity(const char *path, fsdp_str *text)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return fsdp_error(errno == ENOENT ? FSDP_ERR_NOT_FOUND : FSDP_ERR_IO, "%s: %s", path,
                          strerror(errno));
    fsdp_str_printf(text, "%s %" PRId64 " %" PRId64 ".%09ld\n", path, (int64_t)info.st_size,
                    (int64_t)info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
    return FSDP_OK;
}

static fsdp_status add_folder_identity(const source_file *file, fsdp_str *text)
{
    fsdp_arrow_folder folder;
    fsdp_status status = fsdp_arrow_folder_open(
        file->path, file->validation ? FSDP_ARROW_SPLIT_VALIDATION : FSDP_ARROW_SPLIT_TRAIN,
        &folder);
    FSDP_TRY(status);
    for (size_t i = 0; i < folder.n_files && status == FSDP_OK; i++)
        status = add_identity(folder.files[i], text);
    fsdp_arrow_folder_fini(&folder);
    return status;
}

/* Append the path, size and modification time of each text file of a dataset. file->path may be a
 * folder or a glob pattern. */
static fsdp_status add_texts_identity(const source_file *file, fsdp_str *text)
{
    fsdp_path_list files;
    FSDP_TRY(fsdp_text_paths(file->path, file->validation, &files));
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < files.len && status == FSDP_OK; i++)
        status = add_identity(files.items[i], text);
    fsdp_path_list_fini(&files);
    return status;
}

fsdp_status fsdp_record_source_identity(const fsdp_record_source *s, fsdp_str *text)
{
    for (size_t i = 0; i < s->len; i++) {
        const source_file *file = &s->files[i];
        if (fsdp_is_arrow_path(file->path))
            FSDP_TRY(add_folder_identity(file, text));
        else if (file->kind == FSDP_RECORD_EXAMPLE)
            FSDP_TRY(add_texts_identity(file, text));
        else
            FSDP_TRY(add_identity(file->path, text));
    }
    return text->failed ? fsdp_error_nomem() : FSDP_OK;
}
