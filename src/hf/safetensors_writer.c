/* Writes safetensors files: first the header, then bytes of any tensor in any order. Finally the
 * file is renamed to its final name. */
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "src/base/json.h"
#include "src/hf/safetensors_writer.h"
#include "src/torchfile/entry.h"
#include "src/torchfile/safetensors_dtype.h"

enum {
    LENGTH_BYTES = 8,
    MAX_HEADER_BYTES = 100000000
};

typedef struct span {
    uint64_t begin, end;
} span;

typedef struct out_tensor {
    char *name;
    const fsdp_safetensors_dtype *dtype;
    const int64_t *shape; /* borrowed; NULL after the header was made */
    int ndim;
    uint64_t bytes;
    uint64_t at; /* offset of the tensor's first byte from the start of the data */
    /* [n_written] The ranges of bytes that were written. They are sorted, with gaps between
     * them. */
    span *written;
    size_t n_written, cap;
} out_tensor;

struct fsdp_safetensors_writer {
    char *path;
    fsdp_atomic_file *file;
    out_tensor *tensors;  /* [n] in the order of their data in the file */
    out_tensor **by_name; /* [n] */
    size_t n;
    uint64_t data_at; /* offset of the first byte of data in the file */
};

/* ---- layout ---------------------------------------------------------------------------------- */

static int compare_places(const void *a, const void *b)
{
    const out_tensor *x = a, *y = b;
    if (x->dtype->write_order != y->dtype->write_order)
        return x->dtype->write_order - y->dtype->write_order;
    return strcmp(x->name, y->name);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp((*(const out_tensor *const *)a)->name, (*(const out_tensor *const *)b)->name);
}

static fsdp_status take_spec(const char *path, const fsdp_safetensors_spec *spec, out_tensor *t)
{
    int64_t numel, bytes;
    t->dtype = spec->dtype_name ? fsdp_safetensors_dtype_by_name(spec->dtype_name)
                                : fsdp_safetensors_dtype_of(spec->dtype);
    if (!t->dtype)
        return fsdp_error(FSDP_ERR_INVALID, "%s: tensor '%s': dtype %s is not one of safetensors",
                          path, spec->name,
                          spec->dtype_name ? spec->dtype_name : fsdp_dtype_name(spec->dtype));
    if (!fsdp_safetensors_size(t->dtype, spec->shape, spec->ndim, &numel, &bytes)) {
        char shape[128];
        fsdp_checkpoint_shape_text(spec->shape, spec->ndim, shape, sizeof shape);
        return fsdp_error(FSDP_ERR_INVALID, "%s: tensor '%s' cannot have shape %s", path,
                          spec->name, shape);
    }
    t->shape = spec->shape;
    t->ndim = spec->ndim;
    t->bytes = (uint64_t)bytes;
    t->name = fsdp_strdup(spec->name);
    return t->name ? FSDP_OK : FSDP_ERR_NOMEM;
}

static fsdp_status check_names(fsdp_safetensors_writer *w)
{
    for (size_t i = 0; i < w->n; i++)
        w->by_name[i] = &w->tensors[i];
    qsort(w->by_name, w->n, sizeof(out_tensor *), compare_names);
    for (size_t i = 0; i < w->n; i++)
        if (strcmp(w->by_name[i]->name, "__metadata__") == 0 ||
            (i && strcmp(w->by_name[i - 1]->name, w->by_name[i]->name) == 0))
            return fsdp_error(FSDP_ERR_INVALID, "%s: the name '%s' is taken", w->path,
                              w->by_name[i]->name);
    return FSDP_OK;
}

static fsdp_status lay_out(fsdp_safetensors_writer *w, const fsdp_safetensors_spec *specs, size_t n)
{
    w->tensors = fsdp_calloc(n, sizeof *w->tensors);
    w->by_name = fsdp_calloc(n, sizeof(out_tensor *));
    if (!w->tensors || !w->by_name)
        return FSDP_ERR_NOMEM;
    for (w->n = 0; w->n < n; w->n++)
        FSDP_TRY(take_spec(w->path, &specs[w->n], &w->tensors[w->n]));
    qsort(w->tensors, n, sizeof *w->tensors, compare_places);
    uint64_t at = 0;
    for (size_t i = 0; i < n; i++) {
        w->tensors[i].at = at;
        at += w->tensors[i].bytes;
        if (at > INT64_MAX / 2)
            return fsdp_error(FSDP_ERR_INVALID, "%s: the tensors are too large for a file",
                              w->path);
    }
    return check_names(w);
}

/* ---- header ---------------------------------------------------------------------------------- */

static void describe(const fsdp_safetensors_writer *w, fsdp_json *header)
{
    fsdp_json_node root = fsdp_json_root(header);
    fsdp_json_set_str(fsdp_json_set_object(root, "__metadata__"), "format", "pt");
    for (size_t i = 0; i < w->n; i++) {
        const out_tensor *t = &w->tensors[i];
        fsdp_json_node entry = fsdp_json_set_object(root, t->name);
        fsdp_json_set_str(entry, "dtype", t->dtype->name);
        fsdp_json_node shape = fsdp_json_set_array(entry, "shape");
        for (int k = 0; k < t->ndim; k++)
            fsdp_json_append_i64(shape, t->shape[k]);
        fsdp_json_node offsets = fsdp_json_set_array(entry, "data_offsets");
        fsdp_json_append_i64(offsets, (int64_t)t->at);
        fsdp_json_append_i64(offsets, (int64_t)(t->at + t->bytes));
    }
}

/* Make the header in one block: length, JSON, and spaces up to a multiple of 8. */
static fsdp_status make_header(const fsdp_safetensors_writer *w, char **block, size_t *bytes)
{
    fsdp_json *header;
    char *text = NULL;
    size_t n = 0;
    FSDP_TRY(fsdp_json_create(w->path, &header));
    describe(w, header);
    fsdp_status status = fsdp_json_print(header, FSDP_JSON_COMPACT, &text, &n);
    fsdp_json_destroy(header);
    FSDP_TRY(status);
    size_t padded = (n + 7) / 8 * 8;
    *block = fsdp_calloc(LENGTH_BYTES + padded, 1);
    if (!*block) {
        status = FSDP_ERR_NOMEM;
    } else if (padded > MAX_HEADER_BYTES) {
        status = fsdp_error(FSDP_ERR_INVALID,
                            "%s: a header of %zu bytes is longer than readers accept (%d)", w->path,
                            padded, MAX_HEADER_BYTES);
    } else {
        for (int i = 0; i < LENGTH_BYTES; i++)
            (*block)[i] = (char)(unsigned char)((uint64_t)padded >> 8 * i);
        memcpy(*block + LENGTH_BYTES, text, n);
        memset(*block + LENGTH_BYTES + n, ' ', padded - n);
        *bytes = LENGTH_BYTES + padded;
    }
    fsdp_free(text);
    return status;
}

static fsdp_status begin_file(fsdp_safetensors_writer *w, bool is_sparse)
{
    char *header = NULL;
    size_t header_bytes = 0;
    fsdp_status status = make_header(w, &header, &header_bytes);
    if (status == FSDP_OK) {
        uint64_t data_bytes = w->n ? w->tensors[w->n - 1].at + w->tensors[w->n - 1].bytes : 0;
        w->data_at = header_bytes;
        status =
            fsdp_atomic_file_begin(w->path, is_sparse ? 0 : header_bytes + data_bytes, &w->file);
    }
    if (status == FSDP_OK && is_sparse)
        fsdp_atomic_file_keep_holes(w->file);
    if (status == FSDP_OK)
        status = fsdp_atomic_file_write_at(w->file, 0, header, header_bytes);
    fsdp_free(header);
    return status;
}

fsdp_status fsdp_safetensors_writer_begin(const char *path, const fsdp_safetensors_spec *specs,
                                          size_t n, bool is_sparse,
                                          fsdp_safetensors_writer **writer)
{
    fsdp_safetensors_writer *w = fsdp_calloc(1, sizeof *w);
    if (!w)
        return FSDP_ERR_NOMEM;
    w->path = fsdp_strdup(path);
    fsdp_status status = w->path ? lay_out(w, specs, n) : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status = begin_file(w, is_sparse);
    if (status != FSDP_OK) {
        fsdp_safetensors_writer_discard(w);
        return status;
    }
    for (size_t i = 0; i < w->n; i++)
        w->tensors[i].shape = NULL;
    *writer = w;
    return FSDP_OK;
}

fsdp_status fsdp_safetensors_writer_create(const char *path, const fsdp_safetensors_spec *specs,
                                           size_t n, fsdp_safetensors_writer **writer)
{
    return fsdp_safetensors_writer_begin(path, specs, n, false, writer);
}

/* ---- data ------------------------------------------------------------------------------------ */

/* Record that bytes [begin, end) of `t` have been written. Fails if some of them had already been
 * written. */
static fsdp_status mark_written(const fsdp_safetensors_writer *w, out_tensor *t, uint64_t begin,
                                uint64_t end)
{
    if (!FSDP_GROW(t->written, t->cap, t->n_written + 1))
        return FSDP_ERR_NOMEM;
    span *s = t->written;
    size_t i = t->n_written; /* the new span goes before s[i] */
    while (i > 0 && s[i - 1].begin >= begin)
        i--;
    if ((i > 0 && s[i - 1].end > begin) || (i < t->n_written && s[i].begin < end))
        return fsdp_error(FSDP_ERR_INVALID,
                          "%s: tensor '%s': bytes [%llu, %llu) were written before", w->path,
                          t->name, (unsigned long long)begin, (unsigned long long)end);
    bool joins_left = i > 0 && s[i - 1].end == begin;
    bool joins_right = i < t->n_written && s[i].begin == end;
    if (joins_left && joins_right) {
        s[i - 1].end = s[i].end;
        memmove(s + i, s + i + 1, (t->n_written - i - 1) * sizeof *s);
        t->n_written--;
    } else if (joins_left) {
        s[i - 1].end = end;
    } else if (joins_right) {
        s[i].begin = begin;
    } else {
        memmove(s + i + 1, s + i, (t->n_written - i) * sizeof *s);
        s[i] = (span){begin, end};
        t->n_written++;
    }
    return FSDP_OK;
}

fsdp_status fsdp_safetensors_writer_write(fsdp_safetensors_writer *w, const char *name,
                                          uint64_t offset_bytes, const void *data, size_t bytes)
{
    out_tensor key = {.name = (char *)(uintptr_t)name}, *at = &key;
    out_tensor **found = bsearch(&at, w->by_name, w->n, sizeof(out_tensor *), compare_names);
    if (!found)
        return fsdp_error(FSDP_ERR_NOT_FOUND, "%s: tensor '%s' was not declared", w->path, name);
    out_tensor *t = *found;
    if (offset_bytes > t->bytes || bytes > t->bytes - offset_bytes)
        return fsdp_error(
            FSDP_ERR_INVALID, "%s: tensor '%s': %zu bytes at %llu are beyond its %llu bytes",
            w->path, name, bytes, (unsigned long long)offset_bytes, (unsigned long long)t->bytes);
    if (bytes == 0)
        return FSDP_OK;
    FSDP_TRY(mark_written(w, t, offset_bytes, offset_bytes + bytes));
    return fsdp_atomic_file_write_at(w->file, w->data_at + t->at + offset_bytes, data, bytes);
}

static fsdp_status check_complete(const fsdp_safetensors_writer *w)
{
    for (size_t i = 0; i < w->n; i++) {
        const out_tensor *t = &w->tensors[i];
        uint64_t done = t->n_written && t->written[0].begin == 0 ? t->written[0].end : 0;
        if (done != t->bytes)
            return fsdp_error(
                FSDP_ERR_STATE, "%s: tensor '%s' of %llu bytes was not written from byte %llu on",
                w->path, t->name, (unsigned long long)t->bytes, (unsigned long long)done);
    }
    return FSDP_OK;
}

fsdp_status fsdp_safetensors_writer_finish(fsdp_safetensors_writer *writer)
{
    fsdp_status status = check_complete(writer);
    if (status == FSDP_OK) {
        fsdp_atomic_file *file = writer->file;
        writer->file = NULL;
        status = fsdp_atomic_file_commit(file);
    }
    fsdp_safetensors_writer_discard(writer);
    return status;
}

void fsdp_safetensors_writer_discard(fsdp_safetensors_writer *writer)
{
    if (!writer)
        return;
    fsdp_atomic_file_discard(writer->file);
    for (size_t i = 0; i < writer->n; i++) {
        fsdp_free(writer->tensors[i].name);
        fsdp_free(writer->tensors[i].written);
    }
    fsdp_free(writer->tensors);
    fsdp_free(writer->by_name);
    fsdp_free(writer->path);
    fsdp_free(writer);
}
