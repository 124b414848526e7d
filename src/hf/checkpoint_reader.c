/* Reads all tensors of a model directory. The weights are in a single file, or in several files
 * that an index lists. If the directory has safetensors files and files written by torch.save, the
 * safetensors files are read, as in transformers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fsdp/hf.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/base/json.h"
#include "src/base/str.h"
#include "src/hf/folder_kind.h"
#include "src/hf/lit_names.h"
#include "src/hf/rank_shards.h"
#include "src/hf/weights_file.h"
#include "src/hf/wrapped_names.h"
#include "src/torchfile/entry.h"

struct fsdp_checkpoint_reader {
    char *path;
    fsdp_weights_file *files; /* [n_files], sorted by name */
    char **file_names;        /* [n_files], sorted; NULL for a single file */
    size_t n_files;
    /* [n] sorted by name; they point into `files` or `renamed` */
    const fsdp_checkpoint_entry **entries;
    size_t n;
    /* [n] entries with changed names or rows; NULL: the entries are those of the files */
    fsdp_checkpoint_entry *renamed;
    fsdp_arena names; /* owns the names in `renamed`, and data whose rows changed their order */
};

static int compare_strings(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int compare_entries(const void *a, const void *b)
{
    return strcmp((*(const fsdp_checkpoint_entry *const *)a)->name,
                  (*(const fsdp_checkpoint_entry *const *)b)->name);
}

static fsdp_status add_file(fsdp_checkpoint_reader *reader, const char *path, size_t i)
{
    FSDP_TRY(fsdp_weights_file_open(path, &reader->files[i]));
    if (reader->files[i].safetensors)
        FSDP_TRY(fsdp_shard_refuse(reader->files[i].safetensors, path));
    reader->n += fsdp_weights_file_count(&reader->files[i]);
    return FSDP_OK;
}

/* List the entries of all files. A name that is in two files appears twice. */
static fsdp_status list_entries(fsdp_checkpoint_reader *reader)
{
    reader->entries = fsdp_calloc(reader->n, sizeof(fsdp_checkpoint_entry *));
    if (!reader->entries)
        return FSDP_ERR_NOMEM;
    size_t at = 0;
    for (size_t f = 0; f < reader->n_files; f++)
        for (size_t i = 0; i < fsdp_weights_file_count(&reader->files[f]); i++)
            reader->entries[at++] = fsdp_weights_file_at(&reader->files[f], i);
    qsort(reader->entries, reader->n, sizeof(fsdp_checkpoint_entry *), compare_entries);
    return FSDP_OK;
}

static fsdp_status open_single(fsdp_checkpoint_reader *reader, const char *path)
{
    reader->files = fsdp_calloc(1, sizeof *reader->files);
    if (!reader->files)
        return FSDP_ERR_NOMEM;
    reader->n_files = 1;
    FSDP_TRY(add_file(reader, path, 0));
    return list_entries(reader);
}

/* ---- files of an index ----------------------------------------------------------------------- */

/* Store the file name of each tensor of the index in names[], sorted. A file name may occur several
 * times. Return an error if a file is outside the index's folder. */
static fsdp_status mapped_files(fsdp_json_node weight_map, const char **names)
{
    size_t n = 0;
    for (fsdp_json_node v = fsdp_json_first(weight_map); v.value; v = fsdp_json_next(v)) {
        const char *name;
        FSDP_TRY(fsdp_json_get_str(v, NULL, &name));
        if (strchr(name, '/') || !*name || name[0] == '.')
            return fsdp_json_mismatch(v, NULL, "the name of a file in the folder of the index");
        names[n++] = name;
    }
    qsort(names, n, sizeof *names, compare_strings);
    return FSDP_OK;
}

static fsdp_status keep_distinct(fsdp_checkpoint_reader *reader, const char *const *names, size_t n)
{
    reader->file_names = fsdp_calloc(n, sizeof *reader->file_names);
    reader->files = fsdp_calloc(n, sizeof *reader->files);
    if (!reader->file_names || !reader->files)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < n; i++) {
        if (i && strcmp(names[i], names[i - 1]) == 0)
            continue;
        char *copy = fsdp_strdup(names[i]);
        if (!copy)
            return FSDP_ERR_NOMEM;
        reader->file_names[reader->n_files++] = copy;
    }
    return FSDP_OK;
}

static fsdp_status list_files(fsdp_checkpoint_reader *reader, fsdp_json_node weight_map)
{
    size_t n = fsdp_json_len(weight_map);
    const char **names = fsdp_calloc(n, sizeof *names);
    if (!names)
        return FSDP_ERR_NOMEM;
    fsdp_status status = mapped_files(weight_map, names);
    if (status == FSDP_OK)
        status = keep_distinct(reader, names, n);
    fsdp_free(names);
    return status;
}

static const fsdp_weights_file *file_named(const fsdp_checkpoint_reader *reader, const char *name)
{
    char **at = bsearch(&name, reader->file_names, reader->n_files, sizeof *reader->file_names,
                        compare_strings);
    return &reader->files[at - reader->file_names];
}

/* Check that the index agrees with the files. Each tensor that the index lists must be in the file
 * that the index gives for it. Each tensor of a file must be listed in the index for that file. */
static fsdp_status check_weight_map(const fsdp_checkpoint_reader *reader, const char *index_path,
                                    fsdp_json_node weight_map)
{
    for (fsdp_json_node v = fsdp_json_first(weight_map); v.value; v = fsdp_json_next(v)) {
        const char *file;
        FSDP_TRY(fsdp_json_get_str(v, NULL, &file));
        if (!fsdp_weights_file_find(file_named(reader, file), v.key))
            return fsdp_error(FSDP_ERR_FORMAT, "%s: tensor '%s' is not in %s", index_path, v.key,
                              file);
    }
    for (size_t i = 0; i < reader->n; i++) {
        const fsdp_checkpoint_entry *entry = reader->entries[i];
        const char *file = "";
        fsdp_json_node value = fsdp_json_find(weight_map, entry->name);
        if (value.value)
            FSDP_TRY(fsdp_json_get_str(value, NULL, &file));
        if (strcmp(file, fsdp_path_name(entry->path)) != 0)
            return fsdp_error(FSDP_ERR_FORMAT, "%s: tensor '%s' is not listed for this file in %s",
                              entry->path, entry->name, index_path);
    }
    return FSDP_OK;
}

/* Check that all files of the index exist in `dir`. The error message contains the number of
 * missing files and the names of the first few. */
static fsdp_status check_files_are_there(const fsdp_checkpoint_reader *reader,
                                         const char *index_path, const char *dir)
{
    enum {
        SHOWN = 3
    };
    fsdp_str missing = {0};
    size_t n = 0;
    for (size_t i = 0; i < reader->n_files; i++) {
        char *path = fsdp_path_join(dir, reader->file_names[i]);
        const bool is_missing = path && !fsdp_path_exists(path);
        fsdp_free(path);
        if (is_missing && n++ < SHOWN)
            fsdp_str_printf(&missing, "%s%s", n > 1 ? ", " : "", reader->file_names[i]);
    }
    fsdp_status status =
        n == 0 ? FSDP_OK
               : fsdp_error(
                     FSDP_ERR_NOT_FOUND,
                     "%s: it names %zu file%s of weights, of which %zu %s missing in its folder: "
                     "%s%s; get the missing ones, or the model again",
                     index_path, reader->n_files, reader->n_files == 1 ? "" : "s", n,
                     n == 1 ? "is" : "are", missing.data ? missing.data : "",
                     n > SHOWN ? ", ..." : "");
    fsdp_str_fini(&missing);
    return status;
}

static fsdp_status open_files(fsdp_checkpoint_reader *reader, const char *index_path)
{
    char *dir = fsdp_path_parent(index_path);
    fsdp_status status = dir ? check_files_are_there(reader, index_path, dir) : FSDP_ERR_NOMEM;
    if (status != FSDP_OK) {
        fsdp_free(dir);
        return status;
    }
    for (size_t i = 0; i < reader->n_files && status == FSDP_OK; i++) {
        char *path = fsdp_path_join(dir, reader->file_names[i]);
        status = path ? add_file(reader, path, i) : FSDP_ERR_NOMEM;
        fsdp_free(path);
    }
    fsdp_free(dir);
    fsdp_error_context(status, "%s", fsdp_path_name(index_path));
    return status;
}

static fsdp_status open_by_index(fsdp_checkpoint_reader *reader, const char *index_path,
                                 fsdp_json *index)
{
    fsdp_json_node weight_map;
    if (fsdp_json_get_object(fsdp_json_root(index), "weight_map", &weight_map) != FSDP_OK)
        return FSDP_ERR_FORMAT; /* not FSDP_ERR_NOT_FOUND, because the file exists */
    if (fsdp_json_len(weight_map) == 0)
        return fsdp_error(FSDP_ERR_FORMAT, "%s: weight_map: it names no tensor", index_path);
    FSDP_TRY(list_files(reader, weight_map));
    FSDP_TRY(open_files(reader, index_path));
    FSDP_TRY(list_entries(reader));
    return check_weight_map(reader, index_path, weight_map);
}

static fsdp_status open_index(fsdp_checkpoint_reader *reader, const char *index_path)
{
    fsdp_json *index;
    FSDP_TRY(fsdp_json_read(index_path, &index));
    fsdp_status status = open_by_index(reader, index_path, index);
    fsdp_json_destroy(index);
    return status;
}

/* ---- finding the weights --------------------------------------------------------------------- */

static fsdp_status has_file(const char *dir, const char *name, bool *found)
{
    char *path = fsdp_path_join(dir, name);
    if (!path)
        return FSDP_ERR_NOMEM;
    *found = fsdp_path_exists(path);
    fsdp_free(path);
    return FSDP_OK;
}

static fsdp_status open_file(fsdp_checkpoint_reader *reader, const char *path)
{
    return fsdp_ends_with(path, ".json") ? open_index(reader, path) : open_single(reader, path);
}

/* Return the error for a folder that has none of fsdp_folder_weights. */
static fsdp_status no_weights(const char *dir)
{
    const char *const *names = fsdp_folder_weights;
    fsdp_str list = {0};
    for (size_t i = 0; names[i]; i++)
        fsdp_str_printf(&list, "%s%s", i == 0 ? "" : names[i + 1] ? ", " : " and ", names[i]);
    char *text = fsdp_str_take(&list);
    if (!text)
        return FSDP_ERR_NOMEM;
    const fsdp_status status =
        fsdp_error(FSDP_ERR_NOT_FOUND, "%s: no weights there (looked for %s)", dir, text);
    fsdp_free(text);
    return status;
}

static fsdp_status open_directory(fsdp_checkpoint_reader *reader, const char *dir)
{
    const char *const *names = fsdp_folder_weights;
    for (size_t i = 0; names[i]; i++) {
        bool found;
        FSDP_TRY(has_file(dir, names[i], &found));
        if (!found)
            continue;
        char *path = fsdp_path_join(dir, names[i]);
        fsdp_status status = path ? open_file(reader, path) : FSDP_ERR_NOMEM;
        fsdp_free(path);
        return status;
    }
    FSDP_TRY(fsdp_folder_explain(dir));
    return no_weights(dir);
}

fsdp_status fsdp_checkpoint_open(const char *path, fsdp_checkpoint_reader **out)
{
    fsdp_checkpoint_reader *reader = fsdp_calloc(1, sizeof *reader);
    if (!reader)
        return FSDP_ERR_NOMEM;
    reader->path = fsdp_strdup(path);
    fsdp_status status = !reader->path                  ? FSDP_ERR_NOMEM
                         : fsdp_path_is_directory(path) ? open_directory(reader, path)
                                                        : open_file(reader, path);
    if (status != FSDP_OK) {
        fsdp_checkpoint_close(reader);
        return status;
    }
    *out = reader;
    return FSDP_OK;
}

void fsdp_checkpoint_close(fsdp_checkpoint_reader *reader)
{
    if (!reader)
        return;
    for (size_t i = 0; i < reader->n_files; i++) {
        fsdp_weights_file_close(&reader->files[i]);
        if (reader->file_names)
            fsdp_free(reader->file_names[i]);
    }
    fsdp_free(reader->files);
    fsdp_free(reader->file_names);
    fsdp_free(reader->entries);
    fsdp_free(reader->renamed);
    fsdp_arena_fini(&reader->names);
    fsdp_free(reader->path);
    fsdp_free(reader);
}

/* ---- changed names --------------------------------------------------------------------------- */

static fsdp_status rename_entries(fsdp_checkpoint_reader *reader, const char *const *names)
{
    reader->renamed = fsdp_calloc(reader->n, sizeof *reader->renamed);
    if (!reader->renamed)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < reader->n; i++) {
        reader->renamed[i] = *reader->entries[i];
        reader->renamed[i].name = names[i];
        reader->entries[i] = &reader->renamed[i];
    }
    qsort(reader->entries, reader->n, sizeof(fsdp_checkpoint_entry *), compare_entries);
    return FSDP_OK;
}

fsdp_status fsdp_checkpoint_unwrap_names(fsdp_checkpoint_reader *reader,
                                         const fsdp_name_change *change)
{
    FSDP_ASSERT(!reader->renamed);
    const char **names = fsdp_calloc(reader->n, sizeof(const char *));
    if (!names)
        return FSDP_ERR_NOMEM;
    bool differ = false;
    for (size_t i = 0; i < reader->n; i++)
        names[i] = reader->entries[i]->name;
    fsdp_status status = fsdp_names_unwrap(reader->path, change, &reader->names, names, reader->n);
    for (size_t i = 0; i < reader->n && status == FSDP_OK; i++)
        differ |= strcmp(names[i], reader->entries[i]->name) != 0;
    if (differ)
        status = rename_entries(reader, names);
    fsdp_free(names);
    return status;
}

/* ---- weights of Lit-LLaMA and LitGPT --------------------------------------------------------- */

/* Set *data to the rows of `old` that make up the part, in the order of the part. If these rows are
 * adjacent in `old`, *data points into `old`. If they are not, *data is a copy, which the reader
 * owns. */
static fsdp_status order_rows(fsdp_checkpoint_reader *reader, const fsdp_checkpoint_entry *old,
                              const fsdp_lit_part *part, const void **data)
{
    const int64_t rows = part->shape[0];
    const size_t row_bytes = old->shape[0] ? old->bytes / (size_t)old->shape[0] : 0;
    const unsigned char *from = old->data;
    *data = from + (size_t)part->order.first * row_bytes;
    if (rows == 0 || fsdp_row_order_run(&part->order, 0) >= rows)
        return FSDP_OK;
    unsigned char *copy = fsdp_arena_alloc(&reader->names, (size_t)rows * row_bytes);
    if (!copy)
        return FSDP_ERR_NOMEM;
    for (int64_t row = 0, run; row < rows; row += run) {
        run = fsdp_row_order_run(&part->order, row);
        run = run < rows - row ? run : rows - row;
        memcpy(copy + (size_t)row * row_bytes,
               from + (size_t)fsdp_row_order_at(&part->order, row) * row_bytes,
               (size_t)run * row_bytes);
    }
    *data = copy;
    return FSDP_OK;
}

static fsdp_status take_part(fsdp_checkpoint_reader *reader, const fsdp_lit_part *part,
                             fsdp_checkpoint_entry *to)
{
    const fsdp_checkpoint_entry *old = reader->entries[part->from];
    int64_t *shape = fsdp_arena_alloc(&reader->names, sizeof part->shape);
    if (!shape)
        return FSDP_ERR_NOMEM;
    memcpy(shape, part->shape, sizeof part->shape);
    *to = *old;
    to->name = part->name;
    to->shape = shape;
    to->numel = old->shape[0] ? old->numel / old->shape[0] * shape[0] : 0;
    to->bytes = old->shape[0] ? old->bytes / (size_t)old->shape[0] * (size_t)shape[0] : 0;
    return order_rows(reader, old, part, &to->data);
}

/* Replace the entries of the reader by `parts`, which are sorted by name. */
static fsdp_status take_parts(fsdp_checkpoint_reader *reader, const fsdp_lit_parts *parts)
{
    fsdp_checkpoint_entry *taken = fsdp_calloc(parts->n, sizeof *taken);
    const fsdp_checkpoint_entry **entries =
        fsdp_calloc(parts->n, sizeof(const fsdp_checkpoint_entry *));
    fsdp_status status = taken && entries ? FSDP_OK : FSDP_ERR_NOMEM;
    for (size_t i = 0; i < parts->n && status == FSDP_OK; i++) {
        status = take_part(reader, &parts->items[i], &taken[i]);
        entries[i] = &taken[i];
    }
    if (status != FSDP_OK) {
        fsdp_free(taken);
        fsdp_free(entries);
        return status;
    }
    fsdp_free(reader->entries);
    reader->entries = entries;
    reader->renamed = taken;
    reader->n = parts->n;
    return FSDP_OK;
}

fsdp_status fsdp_checkpoint_translate_lit(fsdp_checkpoint_reader *reader, const char *const *names,
                                          fsdp_lit_format format, const fsdp_lit_model *model)
{
    FSDP_ASSERT(!reader->renamed);
    fsdp_lit_parts parts;
    fsdp_lit_tensor *tensors = fsdp_calloc(reader->n, sizeof *tensors);
    if (!tensors)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < reader->n; i++)
        tensors[i] =
            (fsdp_lit_tensor){names[i], reader->entries[i]->shape, reader->entries[i]->ndim};
    fsdp_status status =
        fsdp_lit_translate(reader->path, format, model, tensors, reader->n, &reader->names, &parts);
    if (status == FSDP_OK)
        status = take_parts(reader, &parts);
    fsdp_free(tensors);
    return status;
}

/* ---- access ---------------------------------------------------------------------------------- */

const char *fsdp_checkpoint_path(const fsdp_checkpoint_reader *reader)
{
    return reader->path;
}

size_t fsdp_checkpoint_count(const fsdp_checkpoint_reader *reader)
{
    return reader->n;
}

const fsdp_checkpoint_entry *fsdp_checkpoint_at(const fsdp_checkpoint_reader *reader, size_t i)
{
    return reader->entries[i];
}

const fsdp_checkpoint_entry *fsdp_checkpoint_find(const fsdp_checkpoint_reader *reader,
                                                  const char *name)
{
    fsdp_checkpoint_entry key = {.name = name};
    const fsdp_checkpoint_entry *at = &key;
    const fsdp_checkpoint_entry **found =
        bsearch(&at, reader->entries, reader->n, sizeof(fsdp_checkpoint_entry *), compare_entries);
    return found ? *found : NULL;
}

fsdp_status fsdp_checkpoint_get(const fsdp_checkpoint_reader *reader, const char *name,
                                const fsdp_checkpoint_entry **entry)
{
    const fsdp_checkpoint_entry *found = fsdp_checkpoint_find(reader, name);
    if (!found)
        return fsdp_error(FSDP_ERR_NOT_FOUND, "%s: tensor '%s' is missing", reader->path, name);
    *entry = found;
    return FSDP_OK;
}
