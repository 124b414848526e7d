/* See table.h. */
#include "src/data/arrow/table.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/str.h"
#include "src/data/arrow/row.h"

/* Maximum number of bytes of decompressed buffers in the cache of a table. */
static const size_t cache_bytes = (size_t)128 << 20;

typedef struct shard {
    fsdp_arrow_file *file;
    bool *wanted;  /* [n_fields of the file's schema] true: rows have this column; owned */
    int64_t first; /* index of the file's first row among the rows of all files */
} shard;

/* Files whose rows are one sequence: the rows of each file follow those of the file before it. */
typedef struct shards {
    shard *items;
    size_t n;
    int64_t rows;
} shards;

struct fsdp_arrow_table {
    fsdp_arrow_folder folder;
    shards data, indices;
    fsdp_arrow_cache *cache;
    fsdp_json *metadata; /* the schema's metadata under the key "huggingface"; NULL: none, or not
                            needed because the folder has dataset_info.json */
    char *left_out;
};

/* ---- columns ---- */

static bool is_named(const fsdp_arrow_folder *folder, const char *name)
{
    for (size_t i = 0; i < folder->n_columns; i++)
        if (strcmp(folder->columns[i], name) == 0)
            return true;
    return false;
}

static const fsdp_arrow_field *find_column(const fsdp_arrow_schema *schema, const char *name)
{
    for (size_t i = 0; i < schema->n_fields; i = schema->fields[i].end)
        if (strcmp(schema->fields[i].name, name) == 0)
            return &schema->fields[i];
    return NULL;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* List the names of the columns in the order of strcmp(). The caller frees *names, not the texts.
 */
static fsdp_status sort_names(const fsdp_arrow_schema *schema, const char ***names, size_t *n)
{
    *n = 0;
    if (!(*names = fsdp_calloc(schema->n_fields, sizeof **names)))
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < schema->n_fields; i = schema->fields[i].end)
        (*names)[(*n)++] = schema->fields[i].name;
    qsort(*names, *n, sizeof **names, compare_names);
    return FSDP_OK;
}

static fsdp_status compare_columns(const char *const *names, size_t n, const char *const *first,
                                   size_t n_first)
{
    for (size_t i = 1; i < n; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            return fsdp_error(FSDP_ERR_FORMAT, "two columns are named '%.60s'", names[i]);
    for (size_t i = 0; i < n && i < n_first; i++)
        if (strcmp(names[i], first[i]) != 0)
            return fsdp_error(FSDP_ERR_FORMAT,
                              "the columns are not those of the first file: '%.60s' where that has "
                              "'%.60s', in the order of their names",
                              names[i], first[i]);
    if (n != n_first)
        return fsdp_error(FSDP_ERR_FORMAT, "%zu columns, but the first file has %zu", n, n_first);
    return FSDP_OK;
}

/* Check that no two columns have the same name, and that the columns are those of the first file.
 */
static fsdp_status check_columns(const fsdp_arrow_schema *schema, const fsdp_arrow_schema *first)
{
    const char **names = NULL, **first_names = NULL;
    size_t n, n_first;
    fsdp_status status = sort_names(schema, &names, &n);
    if (status == FSDP_OK)
        status = sort_names(first, &first_names, &n_first);
    if (status == FSDP_OK)
        status = compare_columns(names, n, first_names, n_first);
    fsdp_free(names);
    fsdp_free(first_names);
    return status;
}

static fsdp_status choose_columns(const fsdp_arrow_folder *folder, shard *s)
{
    const fsdp_arrow_schema *schema = fsdp_arrow_file_schema(s->file);
    if (!(s->wanted = fsdp_calloc(schema->n_fields, sizeof *s->wanted)))
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < schema->n_fields; i = schema->fields[i].end)
        s->wanted[i] = (!folder->has_columns || is_named(folder, schema->fields[i].name)) &&
                       fsdp_arrow_is_readable(schema, i);
    return FSDP_OK;
}

static fsdp_status list_left_out(fsdp_arrow_table *t)
{
    fsdp_str text = {0};
    const fsdp_arrow_schema *schema = fsdp_arrow_file_schema(t->data.items[0].file);
    for (size_t i = 0; i < schema->n_fields; i = schema->fields[i].end)
        if (!fsdp_arrow_is_readable(schema, i) &&
            (!t->folder.has_columns || is_named(&t->folder, schema->fields[i].name)))
            fsdp_str_printf(&text, "%s'%.40s' (%s)", text.len ? ", " : "", schema->fields[i].name,
                            fsdp_arrow_type_name(schema->fields[i].type));
    if (!text.len && !text.failed)
        return FSDP_OK;
    return (t->left_out = fsdp_str_take(&text)) ? FSDP_OK : FSDP_ERR_NOMEM;
}

/* ---- files ---- */

static fsdp_status open_shard(const fsdp_arrow_folder *folder, const char *path, shards *all)
{
    shard *s = &all->items[all->n];
    FSDP_TRY(fsdp_arrow_file_open(path, &s->file));
    all->n++;
    s->first = all->rows;
    all->rows += fsdp_arrow_file_rows(s->file); /* no overflow: at most 2^40 rows each, and 2^20
                                                   files */
    fsdp_status status =
        check_columns(fsdp_arrow_file_schema(s->file), fsdp_arrow_file_schema(all->items[0].file));
    fsdp_error_context(status, "%s", path);
    return status == FSDP_OK ? choose_columns(folder, s) : status;
}

static fsdp_status open_shards(const fsdp_arrow_folder *folder, char *const *paths, size_t n,
                               shards *all)
{
    enum {
        MAX_FILES = 1 << 20
    };
    if (n > MAX_FILES)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "%s: more than 2^20 files", folder->path);
    if (!(all->items = fsdp_calloc(n, sizeof *all->items)))
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < n; i++)
        FSDP_TRY(open_shard(folder, paths[i], all));
    return FSDP_OK;
}

static void close_shards(shards *all)
{
    for (size_t i = 0; i < all->n; i++) {
        fsdp_arrow_file_close(all->items[i].file);
        fsdp_free(all->items[i].wanted);
    }
    fsdp_free(all->items);
}

/* Find the file that has row `row`, 0 <= row < rows. */
static const shard *find_shard(const shards *all, int64_t row)
{
    size_t low = 0, high = all->n;
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (all->items[middle].first <= row)
            low = middle;
        else
            high = middle;
    }
    return &all->items[low];
}

/* Check that each file of indices has a single column, which has integers. */
static fsdp_status check_indices(const fsdp_arrow_table *t)
{
    for (size_t i = 0; i < t->indices.n; i++) {
        const fsdp_arrow_file *file = t->indices.items[i].file;
        const fsdp_arrow_schema *schema = fsdp_arrow_file_schema(file);
        if (schema->n_fields != 1 || schema->fields[0].type != FSDP_ARROW_INT)
            return fsdp_error(FSDP_ERR_FORMAT,
                              "%s: not a file of indices, which has one column of integers",
                              fsdp_arrow_file_path(file));
    }
    return FSDP_OK;
}

/* ---- opening ---- */

static fsdp_status read_metadata(fsdp_arrow_table *t)
{
    const fsdp_arrow_file *file = t->data.items[0].file;
    const char *text = fsdp_arrow_file_schema(file)->huggingface;
    if (t->folder.info || !text)
        return FSDP_OK;
    return fsdp_json_parse(fsdp_arrow_file_path(file), 1, text, strlen(text), &t->metadata);
}

static fsdp_status open_table(fsdp_arrow_table *t)
{
    const fsdp_arrow_folder *folder = &t->folder;
    /* Files of indices are opened with all columns, because set_format() does not apply to them. */
    const fsdp_arrow_folder all = {.path = folder->path};
    if (folder->n_files == 0)
        return fsdp_error(FSDP_ERR_FORMAT, "%s: no rows: state.json names no data files",
                          folder->path);
    FSDP_TRY(fsdp_arrow_cache_create(cache_bytes, &t->cache));
    FSDP_TRY(open_shards(folder, folder->files, folder->n_files, &t->data));
    FSDP_TRY(open_shards(&all, folder->indices, folder->n_indices, &t->indices));
    FSDP_TRY(check_indices(t));
    FSDP_TRY(list_left_out(t));
    return read_metadata(t);
}

fsdp_status fsdp_arrow_table_open(const char *path, fsdp_arrow_split split, fsdp_arrow_table **out)
{
    fsdp_arrow_table *t = fsdp_calloc(1, sizeof *t);
    if (!t)
        return FSDP_ERR_NOMEM;
    fsdp_status status = fsdp_arrow_folder_open(path, split, &t->folder);
    if (status == FSDP_OK)
        status = open_table(t);
    if (status == FSDP_OK)
        *out = t;
    else
        fsdp_arrow_table_close(t);
    return status;
}

void fsdp_arrow_table_close(fsdp_arrow_table *t)
{
    if (!t)
        return;
    fsdp_arrow_cache_destroy(t->cache);
    close_shards(&t->data);
    close_shards(&t->indices);
    fsdp_json_destroy(t->metadata);
    fsdp_free(t->left_out);
    fsdp_arrow_folder_fini(&t->folder);
    fsdp_free(t);
}

/* ---- rows ---- */

static const shards *rows_of(const fsdp_arrow_table *t)
{
    return t->folder.n_indices ? &t->indices : &t->data;
}

int64_t fsdp_arrow_table_len(const fsdp_arrow_table *t)
{
    return rows_of(t)->rows;
}

uint64_t fsdp_arrow_table_bytes(const fsdp_arrow_table *t)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < t->data.n; i++)
        bytes += fsdp_arrow_file_bytes(t->data.items[i].file);
    return bytes;
}

const fsdp_arrow_folder *fsdp_arrow_table_folder(const fsdp_arrow_table *t)
{
    return &t->folder;
}

static fsdp_status read_row(const fsdp_arrow_table *t, const shards *all, int64_t row,
                            fsdp_json **doc)
{
    const shard *s = find_shard(all, row);
    return fsdp_arrow_row_read(t->cache, s->file, row - s->first, s->wanted, doc);
}

/* Row `index` of the table is one of the rows of the data files. Set *row to its number there:
 * entry `index` of the indices, or `index` itself if there are no indices. */
static fsdp_status read_index(const fsdp_arrow_table *t, int64_t index, int64_t *row)
{
    fsdp_json *doc;
    *row = index;
    if (!t->folder.n_indices)
        return FSDP_OK;
    FSDP_TRY(read_row(t, &t->indices, index, &doc));
    const fsdp_json_node column = fsdp_json_first(fsdp_json_root(doc));
    const fsdp_status status = fsdp_json_get_i64(column, NULL, 0, t->data.rows - 1, row);
    fsdp_json_destroy(doc);
    return status;
}

fsdp_status fsdp_arrow_table_row(const fsdp_arrow_table *t, int64_t index, fsdp_json **doc)
{
    int64_t row = 0;
    fsdp_status status = read_index(t, index, &row);
    if (status == FSDP_OK)
        status = read_row(t, &t->data, row, doc);
    fsdp_arrow_table_add_context(t, index, status);
    return status;
}

void fsdp_arrow_table_add_context(const fsdp_arrow_table *t, int64_t index, fsdp_status status)
{
    if (status == FSDP_OK)
        return;
    const shard *s = find_shard(rows_of(t), index);
    const char *path = fsdp_arrow_file_path(s->file);
    if (s->first == 0)
        fsdp_error_context(status, "%s: row %" PRId64, path, index);
    else
        fsdp_error_context(status, "%s: row %" PRId64 " (row %" PRId64 " of this file)", path,
                           index, index - s->first);
}

/* ---- what the rows have ---- */

bool fsdp_arrow_table_has(const fsdp_arrow_table *t, const char *column)
{
    const shard *s = &t->data.items[0];
    const fsdp_arrow_schema *schema = fsdp_arrow_file_schema(s->file);
    const fsdp_arrow_field *f = find_column(schema, column);
    return f && s->wanted[f - schema->fields];
}

const char *fsdp_arrow_table_left_out(const fsdp_arrow_table *t)
{
    return t->left_out;
}

/* If `feature` describes a list, return the feature of the entries of the list. Otherwise return
 * `feature`. A list is {"feature": ENTRY, "_type": TYPE}, where TYPE is "Sequence" or, in datasets
 * 4, "List" or "LargeList". In old files it is [ENTRY]. */
static fsdp_json_node entry_of_list(fsdp_json_node feature)
{
    if (fsdp_json_kind_of(feature) == FSDP_JSON_ARRAY)
        return fsdp_json_at(feature, 0);
    const fsdp_json_node entry = fsdp_json_find(feature, "feature");
    return fsdp_json_kind_of(entry) == FSDP_JSON_OBJECT ? entry : feature;
}

fsdp_json_node fsdp_arrow_table_class_names(const fsdp_arrow_table *t, const char *column)
{
    fsdp_json_node features = {0};
    const char *type;
    if (t->folder.info)
        features = fsdp_json_find(fsdp_json_root(t->folder.info), "features");
    else if (t->metadata)
        features = fsdp_json_find(fsdp_json_find(fsdp_json_root(t->metadata), "info"), "features");
    const fsdp_json_node feature = entry_of_list(fsdp_json_find(features, column));
    const fsdp_json_node names = fsdp_json_find(feature, "names");
    if (fsdp_json_kind_of(names) != FSDP_JSON_ARRAY ||
        fsdp_json_get_str(feature, "_type", &type) != FSDP_OK || strcmp(type, "ClassLabel") != 0)
        return (fsdp_json_node){0};
    return names;
}
