/* See write.h. */
#include "src/data/arrow/write.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/json.h"
#include "src/base/str.h"
#include "src/data/arrow/write_file.h"
#include "src/text/chars/utf8.h"

enum {
    BATCH_ROWS = 1000,
    BATCH_BYTES = 64 << 20 /* a batch of long rows is ended when it has this many bytes */
};

static const uint64_t default_shard_bytes = 500 * 1000 * 1000;

struct fsdp_arrow_writer {
    fsdp_atomic_directory *directory;
    fsdp_arrow_write_options options; /* with defaults filled in */
    char **splits;                    /* [n_splits], names of the splits of a DatasetDict */
    size_t n_splits, splits_cap;

    /* The split that is being written. */
    char *dir;   /* folder of the split; NULL: no split has begun */
    char *split; /* name of the split; NULL: the folder is a Dataset */
    bool is_single;
    fsdp_arrow_pending *columns; /* [n_columns] */
    size_t n_columns;
    fsdp_arrow_field *fields; /* fields of the schema; their names are in `info` */
    size_t n_fields;
    fsdp_json *info;           /* dataset_info.json */
    char *huggingface;         /* metadata of the schema */
    fsdp_arrow_stream *stream; /* the file that is being written; NULL: none */
    size_t n_files;            /* files of the split that are complete */
    uint64_t hash;             /* hash of all batches of the split */
};

/* ---- what rows have ---- */

static void describe_value(fsdp_json_node feature, const char *dtype)
{
    fsdp_json_set_str(feature, "dtype", dtype);
    fsdp_json_set_str(feature, "_type", "Value");
}

/* Describe an int64, which is a class if the column has names of classes. */
static void describe_i64(fsdp_json_node feature, const fsdp_arrow_column *column)
{
    if (!column->class_names) {
        describe_value(feature, "int64");
        return;
    }
    const fsdp_json_node names = fsdp_json_set_array(feature, "names");
    for (size_t i = 0; i < column->n_classes; i++)
        fsdp_json_append_str(names, column->class_names[i]);
    fsdp_json_set_str(feature, "_type", "ClassLabel");
}

/* Begin to describe a list. Return the feature of its entries. */
static fsdp_json_node describe_list(fsdp_json_node feature)
{
    const fsdp_json_node entries = fsdp_json_set_object(feature, "feature");
    fsdp_json_set_str(feature, "_type", "Sequence");
    return entries;
}

/* Add a column to the features of dataset_info.json. Lists are written as Sequence, because every
 * version of datasets reads a Sequence. Versions before 4.0 do not know the new name List. */
static void describe_column(fsdp_json_node features, const fsdp_arrow_column *column)
{
    const fsdp_json_node feature = fsdp_json_set_object(features, column->name);
    switch (column->type) {
    case FSDP_ARROW_COLUMN_I32_LIST:
        describe_value(describe_list(feature), "int32");
        return;
    case FSDP_ARROW_COLUMN_I8_LIST:
        describe_value(describe_list(feature), "int8");
        return;
    case FSDP_ARROW_COLUMN_I64_LIST:
        describe_i64(describe_list(feature), column);
        return;
    case FSDP_ARROW_COLUMN_F32_LIST:
        describe_value(describe_list(feature), "float32");
        return;
    case FSDP_ARROW_COLUMN_TEXT:
        describe_value(feature, "string");
        return;
    case FSDP_ARROW_COLUMN_F32:
        describe_value(feature, "float32");
        return;
    case FSDP_ARROW_COLUMN_F64:
        describe_value(feature, "float64");
        return;
    case FSDP_ARROW_COLUMN_I64:
        describe_i64(feature, column);
        return;
    }
}

/* Set *info to the contents of dataset_info.json, and *metadata to the schema's metadata. Features
 * must be in the order of the columns, so both are written with FSDP_JSON_LINE, which keeps the
 * order of keys. */
static fsdp_status describe_rows(const fsdp_arrow_column *columns, size_t n, fsdp_json **info,
                                 char **metadata)
{
    static const char *const texts[] = {"citation", "description", "homepage", "license"};
    fsdp_json *outer;
    FSDP_TRY(fsdp_json_create("dataset_info.json", info));
    const fsdp_json_node features = fsdp_json_set_object(fsdp_json_root(*info), "features");
    for (size_t i = 0; i < n; i++)
        describe_column(features, &columns[i]);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        fsdp_json_set_str(fsdp_json_root(*info), texts[i], "");
    FSDP_TRY(fsdp_json_check_built(*info));
    FSDP_TRY(fsdp_json_create("metadata of a schema", &outer));
    fsdp_json_set_shared(fsdp_json_set_object(fsdp_json_root(outer), "info"), "features", features);
    const fsdp_status status = fsdp_json_print(outer, FSDP_JSON_LINE, metadata, NULL);
    fsdp_json_destroy(outer);
    return status;
}

/* Return the field of a column or, if the column is a list, the field of its entries. */
static fsdp_arrow_field value_field(fsdp_arrow_column_type type)
{
    switch (type) {
    case FSDP_ARROW_COLUMN_TEXT:
        return (fsdp_arrow_field){.type = FSDP_ARROW_STRING};
    case FSDP_ARROW_COLUMN_F32_LIST:
    case FSDP_ARROW_COLUMN_F32:
        return (fsdp_arrow_field){.type = FSDP_ARROW_FLOAT, .bits = 32};
    case FSDP_ARROW_COLUMN_F64:
        return (fsdp_arrow_field){.type = FSDP_ARROW_FLOAT, .bits = 64};
    case FSDP_ARROW_COLUMN_I8_LIST:
        return (fsdp_arrow_field){.type = FSDP_ARROW_INT, .bits = 8, .is_signed = true};
    case FSDP_ARROW_COLUMN_I32_LIST:
        return (fsdp_arrow_field){.type = FSDP_ARROW_INT, .bits = 32, .is_signed = true};
    case FSDP_ARROW_COLUMN_I64_LIST:
    case FSDP_ARROW_COLUMN_I64:
        break;
    }
    return (fsdp_arrow_field){.type = FSDP_ARROW_INT, .bits = 64, .is_signed = true};
}

/* Make the fields of the schema. The names are those of the features in `info`. */
static void make_fields(fsdp_arrow_writer *w, const fsdp_arrow_column *columns)
{
    fsdp_json_node feature = fsdp_json_first(fsdp_json_find(fsdp_json_root(w->info), "features"));
    uint32_t n = 0;
    for (size_t i = 0; i < w->n_columns; i++, feature = fsdp_json_next(feature)) {
        const bool is_list = fsdp_arrow_column_is_list(columns[i].type);
        if (is_list) {
            w->fields[n] = (fsdp_arrow_field){
                .name = feature.key, .type = FSDP_ARROW_LIST, .n_children = 1, .end = n + 2};
            n++;
        }
        fsdp_arrow_field *f = &w->fields[n++];
        *f = value_field(columns[i].type);
        f->name = is_list ? "item" : feature.key;
        f->end = n;
    }
    w->n_fields = n;
}

/* ---- files ---- */

static fsdp_status begin_file(fsdp_arrow_writer *w)
{
    char name[40];
    snprintf(name, sizeof name, "data-%05zu.arrow", w->n_files);
    char *path = fsdp_path_join(w->dir, name);
    const fsdp_status status =
        path ? fsdp_arrow_stream_begin(path, w->fields, w->n_fields, w->huggingface, &w->stream)
             : FSDP_ERR_NOMEM;
    fsdp_free(path);
    return status;
}

static fsdp_status end_file(fsdp_arrow_writer *w)
{
    fsdp_arrow_stream *stream = w->stream;
    w->stream = NULL;
    FSDP_TRY(fsdp_arrow_stream_commit(stream));
    w->n_files++;
    return FSDP_OK;
}

/* Write the pending rows as a batch. */
static fsdp_status flush_batch(fsdp_arrow_writer *w)
{
    if (!w->stream)
        FSDP_TRY(begin_file(w));
    if (w->n_columns == 0 || w->columns[0].rows == 0)
        return FSDP_OK;
    FSDP_TRY(fsdp_arrow_stream_append(w->stream, w->columns, w->n_columns, &w->hash));
    for (size_t i = 0; i < w->n_columns; i++)
        fsdp_arrow_pending_clear(&w->columns[i]);
    return fsdp_arrow_stream_bytes(w->stream) >= w->options.shard_bytes ? end_file(w) : FSDP_OK;
}

/* Give file `i` its final name, which contains the number of files. The name is also written to
 * `name` [size]. */
static fsdp_status rename_file(const fsdp_arrow_writer *w, size_t i, char *name, size_t size)
{
    char first[40];
    snprintf(first, sizeof first, "data-%05zu.arrow", i);
    snprintf(name, size, "data-%05zu-of-%05zu.arrow", i, w->n_files);
    char *from = fsdp_path_join(w->dir, first), *to = fsdp_path_join(w->dir, name);
    fsdp_status status = from && to ? FSDP_OK : FSDP_ERR_NOMEM;
    if (status == FSDP_OK && rename(from, to) != 0)
        status = fsdp_error(FSDP_ERR_IO, "%s: %s", to, strerror(errno));
    fsdp_free(from);
    fsdp_free(to);
    return status;
}

/* ---- splits ---- */

static fsdp_status write_json(const fsdp_json *doc, const char *dir, const char *name)
{
    char *path = fsdp_path_join(dir, name);
    const fsdp_status status = path ? fsdp_json_write(doc, FSDP_JSON_LINE, path) : FSDP_ERR_NOMEM;
    fsdp_free(path);
    return status;
}

/* Fill state.json. datasets treats data sets with the same fingerprint as the same data set, so the
 * fingerprint depends on the rows. */
static fsdp_status make_state(const fsdp_arrow_writer *w, fsdp_json_node state)
{
    char text[64];
    const fsdp_json_node files = fsdp_json_set_array(state, "_data_files");
    for (size_t i = 0; i < w->n_files; i++) {
        FSDP_TRY(rename_file(w, i, text, sizeof text));
        fsdp_json_set_str(fsdp_json_append_object(files), "filename", text);
    }
    snprintf(text, sizeof text, "%016" PRIx64, w->hash);
    fsdp_json_set_str(state, "_fingerprint", text);
    fsdp_json_set_str(state, "_format_columns", NULL);
    fsdp_json_set_object(state, "_format_kwargs");
    fsdp_json_set_str(state, "_format_type", NULL);
    fsdp_json_set_bool(state, "_output_all_columns", false);
    fsdp_json_set_str(state, "_split", w->split);
    return FSDP_OK;
}

static fsdp_status write_state(const fsdp_arrow_writer *w)
{
    fsdp_json *state;
    FSDP_TRY(fsdp_json_create("state.json", &state));
    fsdp_status status = make_state(w, fsdp_json_root(state));
    if (status == FSDP_OK)
        status = write_json(state, w->dir, "state.json");
    fsdp_json_destroy(state);
    return status;
}

static void free_split(fsdp_arrow_writer *w)
{
    fsdp_arrow_stream_discard(w->stream);
    for (size_t i = 0; i < w->n_columns; i++)
        fsdp_arrow_pending_fini(&w->columns[i]);
    fsdp_free(w->columns);
    fsdp_free(w->fields);
    fsdp_json_destroy(w->info);
    fsdp_free(w->huggingface);
    fsdp_free(w->dir);
    fsdp_free(w->split);
    w->stream = NULL;
    w->columns = NULL;
    w->fields = NULL;
    w->info = NULL;
    w->huggingface = w->dir = w->split = NULL;
    w->n_columns = w->n_files = 0;
}

static fsdp_status end_split(fsdp_arrow_writer *w)
{
    if (!w->dir)
        return FSDP_OK;
    if (w->n_files == 0 || w->columns[0].rows)
        FSDP_TRY(flush_batch(w));
    if (w->stream)
        FSDP_TRY(end_file(w));
    FSDP_TRY(write_json(w->info, w->dir, "dataset_info.json"));
    FSDP_TRY(write_state(w));
    free_split(w);
    return FSDP_OK;
}

static fsdp_status check_columns(const fsdp_arrow_column *columns, size_t n)
{
    if (n == 0)
        return fsdp_error(FSDP_ERR_INVALID, "a data set without columns");
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < i; k++)
            if (strcmp(columns[i].name, columns[k].name) == 0)
                return fsdp_error(FSDP_ERR_INVALID, "two columns are named '%s'", columns[i].name);
    return FSDP_OK;
}

static fsdp_status check_split(const fsdp_arrow_writer *w, const char *name)
{
    if (w->is_single || (!name && w->n_splits))
        return fsdp_error(FSDP_ERR_INVALID, "a second split without a name");
    for (size_t i = 0; i < w->n_splits; i++)
        if (strcmp(w->splits[i], name) == 0)
            return fsdp_error(FSDP_ERR_INVALID, "two splits are named '%s'", name);
    if (name && (!*name || strchr(name, '/') || *name == '.'))
        return fsdp_error(FSDP_ERR_INVALID, "'%s' cannot be the name of a split", name);
    return FSDP_OK;
}

static fsdp_status make_folder(fsdp_arrow_writer *w, const char *name)
{
    const char *root = fsdp_atomic_directory_path(w->directory);
    if (!name) {
        w->is_single = true;
        return (w->dir = fsdp_strdup(root)) ? FSDP_OK : FSDP_ERR_NOMEM;
    }
    FSDP_TRY(fsdp_names_add(&w->splits, &w->n_splits, &w->splits_cap, name));
    w->dir = fsdp_path_join(root, name);
    w->split = fsdp_strdup(name);
    return w->dir && w->split ? fsdp_directory_make(w->dir) : FSDP_ERR_NOMEM;
}

fsdp_status fsdp_arrow_writer_begin_split(fsdp_arrow_writer *w, const char *name,
                                          const fsdp_arrow_column *columns, size_t n_columns)
{
    FSDP_TRY(check_columns(columns, n_columns));
    FSDP_TRY(end_split(w));
    FSDP_TRY(check_split(w, name));
    FSDP_TRY(make_folder(w, name));
    w->columns = fsdp_calloc(n_columns, sizeof *w->columns);
    w->fields = fsdp_calloc(2 * n_columns, sizeof *w->fields);
    if (!w->columns || !w->fields)
        return FSDP_ERR_NOMEM;
    w->n_columns = n_columns;
    w->hash = 0;
    for (size_t i = 0; i < n_columns; i++)
        w->columns[i].type = columns[i].type;
    FSDP_TRY(describe_rows(columns, n_columns, &w->info, &w->huggingface));
    make_fields(w, columns);
    return begin_file(w);
}

/* ---- rows ---- */

static fsdp_status set_value(fsdp_arrow_writer *w, size_t column, fsdp_arrow_column_type type,
                             const void *values, size_t count, size_t width)
{
    if (column >= w->n_columns)
        return fsdp_error(FSDP_ERR_INVALID, "column %zu of %zu", column, w->n_columns);
    const fsdp_status status =
        fsdp_arrow_pending_set(&w->columns[column], type, values, count, width);
    fsdp_error_context(status, "column %zu", column);
    return status;
}

fsdp_status fsdp_arrow_writer_set_ids(fsdp_arrow_writer *w, size_t column, const int32_t *ids,
                                      size_t count)
{
    return set_value(w, column, FSDP_ARROW_COLUMN_I32_LIST, ids, count, sizeof *ids);
}

fsdp_status fsdp_arrow_writer_set_mask(fsdp_arrow_writer *w, size_t column, const int8_t *mask,
                                       size_t count)
{
    return set_value(w, column, FSDP_ARROW_COLUMN_I8_LIST, mask, count, sizeof *mask);
}

fsdp_status fsdp_arrow_writer_set_i64s(fsdp_arrow_writer *w, size_t column, const int64_t *values,
                                       size_t count)
{
    return set_value(w, column, FSDP_ARROW_COLUMN_I64_LIST, values, count, sizeof *values);
}

fsdp_status fsdp_arrow_writer_set_f32s(fsdp_arrow_writer *w, size_t column, const float *values,
                                       size_t count)
{
    return set_value(w, column, FSDP_ARROW_COLUMN_F32_LIST, values, count, sizeof *values);
}

fsdp_status fsdp_arrow_writer_set_text(fsdp_arrow_writer *w, size_t column, const char *text,
                                       size_t bytes)
{
    if (fsdp_utf8_valid_length(text, bytes) < bytes)
        return fsdp_error(FSDP_ERR_INVALID, "column %zu: a text that is not UTF-8", column);
    return set_value(w, column, FSDP_ARROW_COLUMN_TEXT, text, bytes, 1);
}

fsdp_status fsdp_arrow_writer_set_i64(fsdp_arrow_writer *w, size_t column, int64_t value)
{
    return set_value(w, column, FSDP_ARROW_COLUMN_I64, &value, 1, sizeof value);
}

fsdp_status fsdp_arrow_writer_set_f32(fsdp_arrow_writer *w, size_t column, float value)
{
    return set_value(w, column, FSDP_ARROW_COLUMN_F32, &value, 1, sizeof value);
}

fsdp_status fsdp_arrow_writer_set_f64(fsdp_arrow_writer *w, size_t column, double value)
{
    return set_value(w, column, FSDP_ARROW_COLUMN_F64, &value, 1, sizeof value);
}

fsdp_status fsdp_arrow_writer_end_row(fsdp_arrow_writer *w)
{
    size_t bytes = 0;
    if (!w->dir)
        return fsdp_error(FSDP_ERR_INVALID, "a row without a split");
    for (size_t i = 0; i < w->n_columns; i++) {
        FSDP_TRY(fsdp_arrow_pending_end_row(&w->columns[i]));
        bytes += fsdp_arrow_pending_bytes(&w->columns[i]);
    }
    const bool is_full = w->columns[0].rows >= w->options.batch_rows || bytes >= BATCH_BYTES;
    return is_full ? flush_batch(w) : FSDP_OK;
}

/* ---- the folder ---- */

fsdp_status fsdp_arrow_writer_begin(const char *path, fsdp_existing existing,
                                    const fsdp_arrow_write_options *options,
                                    fsdp_arrow_writer **out)
{
    fsdp_arrow_writer *w = fsdp_calloc(1, sizeof *w);
    if (!w)
        return FSDP_ERR_NOMEM;
    w->options = options ? *options : (fsdp_arrow_write_options){0};
    if (!w->options.batch_rows)
        w->options.batch_rows = BATCH_ROWS;
    if (!w->options.shard_bytes)
        w->options.shard_bytes = default_shard_bytes;
    const fsdp_status status = fsdp_atomic_directory_begin(path, existing, &w->directory);
    if (status == FSDP_OK)
        *out = w;
    else
        fsdp_arrow_writer_discard(w);
    return status;
}

/* Write dataset_dict.json, if there are splits with names. */
static fsdp_status write_dict(const fsdp_arrow_writer *w)
{
    fsdp_json *dict;
    if (!w->n_splits)
        return FSDP_OK;
    FSDP_TRY(fsdp_json_create("dataset_dict.json", &dict));
    const fsdp_json_node splits = fsdp_json_set_array(fsdp_json_root(dict), "splits");
    for (size_t i = 0; i < w->n_splits; i++)
        fsdp_json_append_str(splits, w->splits[i]);
    const fsdp_status status =
        write_json(dict, fsdp_atomic_directory_path(w->directory), "dataset_dict.json");
    fsdp_json_destroy(dict);
    return status;
}

/* Return true if file `name` of the data set that is being replaced must not be kept. These are the
 * files that this writer creates, and the caches that the Python library `datasets` puts next to
 * them. */
static bool is_stale(void *context, const char *old, const char *fresh, const char *name)
{
    (void)context;
    (void)old;
    (void)fresh;
    const char *last = fsdp_path_name(name);
    return fsdp_ends_with(last, ".arrow") || strcmp(last, "state.json") == 0 ||
           strcmp(last, "dataset_info.json") == 0 || strcmp(last, "dataset_dict.json") == 0;
}

fsdp_status fsdp_arrow_writer_commit(fsdp_arrow_writer *w)
{
    fsdp_status status = end_split(w);
    if (status == FSDP_OK && !w->is_single && !w->n_splits)
        status = fsdp_error(FSDP_ERR_INVALID, "a data set without a split");
    if (status == FSDP_OK)
        status = write_dict(w);
    if (status == FSDP_OK) {
        fsdp_atomic_directory_drop(w->directory, is_stale, NULL);
        status = fsdp_atomic_directory_commit(w->directory);
        w->directory = NULL;
    }
    fsdp_arrow_writer_discard(w);
    return status;
}

void fsdp_arrow_writer_discard(fsdp_arrow_writer *w)
{
    if (!w)
        return;
    free_split(w);
    fsdp_names_free(w->splits, w->n_splits);
    fsdp_atomic_directory_discard(w->directory);
    fsdp_free(w);
}
