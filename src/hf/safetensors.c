/* Reads safetensors files. A file consists of the header's length (u64), the header (JSON), and the
 * data of the tensors without gaps. The header is checked completely when the file is opened. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fsdp/hf.h>

#include "src/base/alloc.h"
#include "src/base/file_kind.h"
#include "src/base/io.h"
#include "src/base/json.h"
#include "src/torchfile/entry.h"
#include "src/torchfile/safetensors_dtype.h"

enum {
    LENGTH_BYTES = 8,
    MAX_HEADER_BYTES = 100000000, /* the limit of the safetensors library */
    MAX_NDIM = 64
};

struct fsdp_safetensors {
    char *path;
    fsdp_mapping map;
    fsdp_json *header;              /* owns the names */
    size_t data_at;                 /* offset of the first byte of data in the file */
    fsdp_checkpoint_entry *entries; /* [n], sorted by name */
    size_t n;
    int64_t *shapes; /* shapes of all entries, concatenated */
};

static fsdp_status bad_tensor(const fsdp_safetensors *file, const char *tensor, const char *what)
{
    return fsdp_error(FSDP_ERR_FORMAT, "%s: tensor '%s': %s", file->path, tensor, what);
}

/* ---- the header ------------------------------------------------------------------------------ */

static uint64_t read_u64(const unsigned char *p)
{
    uint64_t v = 0;
    for (int i = 7; i >= 0; i--)
        v = v << 8 | p[i];
    return v;
}

static fsdp_status parse_header(fsdp_safetensors *file)
{
    if (file->map.bytes < LENGTH_BYTES)
        return fsdp_error(FSDP_ERR_FORMAT, "%s: %zu bytes are too few for a safetensors file",
                          file->path, file->map.bytes);
    uint64_t length = read_u64(file->map.data);
    if (length > MAX_HEADER_BYTES)
        return fsdp_error(
            FSDP_ERR_FORMAT,
            "%s: not a safetensors file, or damaged: header of %llu bytes (at most %d)", file->path,
            (unsigned long long)length, MAX_HEADER_BYTES);
    if (length > file->map.bytes - LENGTH_BYTES)
        return fsdp_error(FSDP_ERR_FORMAT,
                          "%s: truncated: header of %llu bytes in a file of %zu bytes", file->path,
                          (unsigned long long)length, file->map.bytes);
    const char *text = (const char *)file->map.data + LENGTH_BYTES;
    if (length == 0 || text[0] != '{')
        return fsdp_error(FSDP_ERR_FORMAT, "%s: the header does not begin with '{'", file->path);
    file->data_at = LENGTH_BYTES + (size_t)length;
    char *name = fsdp_strdup_printf("%s: header", file->path);
    if (!name)
        return FSDP_ERR_NOMEM;
    fsdp_status status = fsdp_json_parse(name, 1, text, (size_t)length, &file->header);
    fsdp_free(name);
    return status;
}

static fsdp_status check_metadata(const fsdp_safetensors *file)
{
    fsdp_json_node metadata;
    FSDP_TRY(fsdp_json_opt_object(fsdp_json_root(file->header), "__metadata__", &metadata));
    for (fsdp_json_node v = fsdp_json_first(metadata); v.value; v = fsdp_json_next(v)) {
        const char *text;
        FSDP_TRY(fsdp_json_get_str(v, NULL, &text));
    }
    return FSDP_OK;
}

/* ---- entries --------------------------------------------------------------------------------- */

/* Read one tensor's entry in the header. Its offsets are only compared with the end of the data.
 * check_coverage() compares them with the offsets of other tensors. */
static fsdp_status read_entry(const fsdp_safetensors *file, fsdp_json_node value, int64_t *shape,
                              fsdp_checkpoint_entry *entry)
{
    const char *dtype_name;
    fsdp_json_node dims, offsets;
    int64_t begin, end, bytes;
    int64_t data_bytes = (int64_t)(file->map.bytes - file->data_at);
    FSDP_TRY(fsdp_json_get_object(value, NULL, &value));
    FSDP_TRY(fsdp_json_get_str(value, "dtype", &dtype_name));
    FSDP_TRY(fsdp_json_get_array(value, "shape", &dims));
    FSDP_TRY(fsdp_json_get_array(value, "data_offsets", &offsets));
    const fsdp_safetensors_dtype *dtype = fsdp_safetensors_dtype_by_name(dtype_name);
    if (!dtype)
        return fsdp_json_mismatch(value, "dtype", "a dtype of safetensors (F32, BF16, ...)");
    size_t ndim = fsdp_json_len(dims);
    for (size_t i = 0; i < ndim; i++)
        FSDP_TRY(fsdp_json_get_i64(fsdp_json_at(dims, i), NULL, 0, INT64_MAX, &shape[i]));
    if (fsdp_json_len(offsets) != 2)
        return fsdp_json_mismatch(value, "data_offsets", "a list of two integers");
    FSDP_TRY(fsdp_json_get_i64(fsdp_json_at(offsets, 0), NULL, 0, INT64_MAX, &begin));
    FSDP_TRY(fsdp_json_get_i64(fsdp_json_at(offsets, 1), NULL, 0, INT64_MAX, &end));
    if (ndim > MAX_NDIM || !fsdp_safetensors_size(dtype, shape, (int)ndim, &entry->numel, &bytes))
        return bad_tensor(file, value.key,
                          "its shape has more elements than a file can hold, or they do "
                          "not fill whole bytes");
    if (end < begin || end - begin != bytes)
        return fsdp_error(FSDP_ERR_FORMAT,
                          "%s: tensor '%s': shape and dtype need %lld bytes, data_offsets "
                          "[%lld, %lld] hold %lld",
                          file->path, value.key, (long long)bytes, (long long)begin, (long long)end,
                          (long long)(end - begin));
    if (end > data_bytes)
        return fsdp_error(FSDP_ERR_FORMAT,
                          "%s: truncated: tensor '%s' ends at byte %lld of the data, which have "
                          "%lld",
                          file->path, value.key, (long long)end, (long long)data_bytes);
    entry->name = value.key;
    entry->path = file->path;
    entry->dtype_name = dtype->name;
    entry->shape = shape;
    entry->ndim = (int)ndim;
    entry->data = file->map.data + file->data_at + begin;
    entry->bytes = (size_t)bytes;
    return FSDP_OK;
}

static bool is_metadata(fsdp_json_node value)
{
    return strcmp(value.key, "__metadata__") == 0;
}

static fsdp_status read_entries(fsdp_safetensors *file)
{
    fsdp_json_node root = fsdp_json_root(file->header);
    size_t n = 0, dims = 0, at = 0;
    for (fsdp_json_node v = fsdp_json_first(root); v.value; v = fsdp_json_next(v)) {
        n += !is_metadata(v);
        dims += fsdp_json_len(fsdp_json_find(v, "shape"));
    }
    file->entries = fsdp_calloc(n, sizeof *file->entries);
    file->shapes = fsdp_calloc(dims, sizeof *file->shapes);
    if (!file->entries || !file->shapes)
        return FSDP_ERR_NOMEM;
    for (fsdp_json_node v = fsdp_json_first(root); v.value; v = fsdp_json_next(v)) {
        if (is_metadata(v))
            continue;
        fsdp_checkpoint_entry *entry = &file->entries[file->n];
        FSDP_TRY(read_entry(file, v, file->shapes + at, entry));
        at += (size_t)entry->ndim;
        file->n++;
    }
    return FSDP_OK;
}

static int compare_places(const void *a, const void *b)
{
    const fsdp_checkpoint_entry *x = a, *y = b;
    const unsigned char *p = x->data, *q = y->data;
    if (p != q)
        return p < q ? -1 : 1;
    /* If two tensors begin at the same place, the empty one comes first. */
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

/* Check that the tensors cover the data from the first to the last byte, without gaps or overlaps.
 * Afterwards, the entries are sorted by name. */
static fsdp_status check_coverage(fsdp_safetensors *file)
{
    const unsigned char *data = file->map.data + file->data_at;
    const unsigned char *end = file->map.data + file->map.bytes, *at = data;
    qsort(file->entries, file->n, sizeof *file->entries, compare_places);
    for (size_t i = 0; i < file->n; i++) {
        const fsdp_checkpoint_entry *entry = &file->entries[i];
        const unsigned char *begin = entry->data;
        if (begin != at)
            return fsdp_error(
                FSDP_ERR_FORMAT, "%s: tensor '%s' begins at byte %lld of the data, %s %lld",
                file->path, entry->name, (long long)(begin - data),
                begin < at ? "inside the one that ends at" : "after a hole that begins at",
                (long long)(at - data));
        at = begin + entry->bytes;
    }
    if (at != end)
        return fsdp_error(FSDP_ERR_FORMAT, "%s: %lld bytes follow the last tensor", file->path,
                          (long long)(end - at));
    fsdp_checkpoint_entries_sort(file->entries, file->n);
    return FSDP_OK;
}

/* ---- the file -------------------------------------------------------------------------------- */

/* `status` is the result of parsing the header. If the header is malformed and the file does not
 * look like safetensors, return an error that says what the file may be. Otherwise return
 * `status`. */
static fsdp_status explain_file(const fsdp_safetensors *file, fsdp_status status)
{
    const bool begins_well = file->map.bytes > LENGTH_BYTES && file->map.data[LENGTH_BYTES] == '{';
    if (status == FSDP_ERR_FORMAT && !begins_well)
        FSDP_TRY(fsdp_file_explain(file->path, "a safetensors file", FSDP_WANTED_BINARY,
                                   file->map.data, file->map.bytes));
    return status;
}

static fsdp_status open_file(fsdp_safetensors *file)
{
    FSDP_TRY(fsdp_file_map(file->path, &file->map));
    FSDP_TRY(explain_file(file, parse_header(file)));
    fsdp_status status = check_metadata(file);
    if (status == FSDP_OK)
        status = read_entries(file);
    if (status == FSDP_OK)
        status = check_coverage(file);
    /* FSDP_ERR_NOT_FOUND means that the header lacks a field, so the file is malformed. */
    return status == FSDP_ERR_NOT_FOUND ? FSDP_ERR_FORMAT : status;
}

fsdp_status fsdp_safetensors_open(const char *path, fsdp_safetensors **out)
{
    fsdp_safetensors *file = fsdp_calloc(1, sizeof *file);
    if (!file)
        return FSDP_ERR_NOMEM;
    file->path = fsdp_strdup(path);
    fsdp_status status = file->path ? open_file(file) : FSDP_ERR_NOMEM;
    if (status != FSDP_OK) {
        fsdp_safetensors_close(file);
        return status;
    }
    *out = file;
    return FSDP_OK;
}

void fsdp_safetensors_close(fsdp_safetensors *file)
{
    if (!file)
        return;
    fsdp_file_unmap(&file->map);
    fsdp_json_destroy(file->header);
    fsdp_free(file->entries);
    fsdp_free(file->shapes);
    fsdp_free(file->path);
    fsdp_free(file);
}

size_t fsdp_safetensors_count(const fsdp_safetensors *file)
{
    return file->n;
}

const fsdp_checkpoint_entry *fsdp_safetensors_at(const fsdp_safetensors *file, size_t i)
{
    return &file->entries[i];
}

const fsdp_checkpoint_entry *fsdp_safetensors_find(const fsdp_safetensors *file, const char *name)
{
    return fsdp_checkpoint_entries_find(file->entries, file->n, name);
}

const char *fsdp_safetensors_metadata(const fsdp_safetensors *file, const char *key)
{
    fsdp_json_node metadata = fsdp_json_find(fsdp_json_root(file->header), "__metadata__");
    const char *text = NULL;
    if (fsdp_json_kind_of(fsdp_json_find(metadata, key)) != FSDP_JSON_STRING ||
        fsdp_json_get_str(metadata, key, &text) != FSDP_OK)
        return NULL;
    return text;
}
