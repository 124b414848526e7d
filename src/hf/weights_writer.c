/* See weights_writer.h. The files are written one after the other, so at most one of them is
 * open. */
#include <stdio.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/base/json.h"
#include "src/hf/safetensors_writer.h"
#include "src/hf/weights_writer.h"
#include "src/torchfile/safetensors_dtype.h"

static const int64_t DEFAULT_FILE_BYTES = 50000000000; /* transformers 5's "50GB" */

struct fsdp_weights_writer {
    fsdp_weights_files files;
    const fsdp_safetensors_spec *specs; /* [n] */
    size_t n;
    int64_t numel, bytes; /* totals over all tensors */
    size_t *file_end;     /* [n_files] index of each file's last tensor, plus 1 */
    size_t n_files;
    fsdp_safetensors_writer *open; /* writes file n_begun - 1; NULL: no file is open */
    size_t n_begun;
};

/* ---- files ----------------------------------------------------------------------------------- */

static fsdp_status size_of(const fsdp_safetensors_spec *spec, int64_t *numel, int64_t *bytes)
{
    const fsdp_safetensors_dtype *dtype = spec->dtype_name
                                              ? fsdp_safetensors_dtype_by_name(spec->dtype_name)
                                              : fsdp_safetensors_dtype_of(spec->dtype);
    if (!dtype || !fsdp_safetensors_size(dtype, spec->shape, spec->ndim, numel, bytes))
        return fsdp_error(FSDP_ERR_INVALID, "tensor '%s' has no size in safetensors", spec->name);
    return FSDP_OK;
}

/* Distribute the tensors over files. A new file begins if the next tensor would make the current
 * file larger than `max_bytes`. */
static fsdp_status cut_files(fsdp_weights_writer *w, int64_t max_bytes)
{
    int64_t used = 0, numel, bytes;
    size_t cap = 0;
    for (size_t i = 0; i < w->n; i++) {
        FSDP_TRY(size_of(&w->specs[i], &numel, &bytes));
        if (used && bytes > max_bytes - used) {
            if (!FSDP_GROW(w->file_end, cap, w->n_files + 1))
                return FSDP_ERR_NOMEM;
            w->file_end[w->n_files++] = i;
            used = 0;
        }
        used += bytes;
        if (__builtin_add_overflow(w->bytes, bytes, &w->bytes))
            return fsdp_error(FSDP_ERR_INVALID, "%s: the tensors are too large", w->files.dir);
        /* This sum cannot overflow if all tensors together have less than 2^62 bytes, because a
         * byte has at most 2 elements. */
        w->numel += numel;
    }
    if (!FSDP_GROW(w->file_end, cap, w->n_files + 1))
        return FSDP_ERR_NOMEM;
    w->file_end[w->n_files++] = w->n;
    return FSDP_OK;
}

static void file_name(const fsdp_weights_writer *w, size_t file, char name[64])
{
    if (w->n_files == 1)
        snprintf(name, 64, "%s.safetensors", w->files.stem);
    else
        snprintf(name, 64, "%s-%05zu-of-%05zu.safetensors", w->files.stem, file + 1, w->n_files);
}

/* Finish the open file, if there is one, and begin the next file. */
static fsdp_status next_file(fsdp_weights_writer *w)
{
    fsdp_safetensors_writer *complete = w->open;
    w->open = NULL;
    if (complete)
        FSDP_TRY(fsdp_safetensors_writer_finish(complete));
    FSDP_ASSERT(w->n_begun < w->n_files);
    char name[64];
    size_t begin = w->n_begun ? w->file_end[w->n_begun - 1] : 0;
    file_name(w, w->n_begun, name);
    char *path = fsdp_path_join(w->files.dir, name);
    fsdp_status status = path ? fsdp_safetensors_writer_begin(path, w->specs + begin,
                                                              w->file_end[w->n_begun] - begin,
                                                              w->files.is_sparse, &w->open)
                              : FSDP_ERR_NOMEM;
    fsdp_free(path);
    w->n_begun++;
    return status;
}

/* ---- the folder ------------------------------------------------------------------------------ */

fsdp_status fsdp_weights_writer_create(const fsdp_weights_files *files,
                                       const fsdp_safetensors_spec *specs, size_t n,
                                       fsdp_weights_writer **writer)
{
    fsdp_weights_writer *w = fsdp_calloc(1, sizeof *w);
    if (!w)
        return FSDP_ERR_NOMEM;
    w->files = *files;
    if (!w->files.stem)
        w->files.stem = "model";
    w->specs = specs;
    w->n = n;
    fsdp_status status =
        cut_files(w, files->max_file_bytes > 0 ? files->max_file_bytes : DEFAULT_FILE_BYTES);
    if (status != FSDP_OK) {
        fsdp_weights_writer_discard(w);
        return status;
    }
    *writer = w;
    return FSDP_OK;
}

fsdp_status fsdp_weights_writer_write(fsdp_weights_writer *writer, size_t i, uint64_t offset_bytes,
                                      const void *data, size_t bytes)
{
    FSDP_ASSERT(i < writer->n);
    while (writer->n_begun == 0 || i >= writer->file_end[writer->n_begun - 1])
        FSDP_TRY(next_file(writer));
    return fsdp_safetensors_writer_write(writer->open, writer->specs[i].name, offset_bytes, data,
                                         bytes);
}

static fsdp_status write_index(const fsdp_weights_writer *w)
{
    fsdp_json *doc;
    char index_name[64];
    snprintf(index_name, sizeof index_name, "%s.safetensors.index.json", w->files.stem);
    FSDP_TRY(fsdp_json_create(index_name, &doc));
    fsdp_json_node root = fsdp_json_root(doc), metadata = fsdp_json_set_object(root, "metadata");
    fsdp_json_node map = fsdp_json_set_object(root, "weight_map");
    for (size_t file = 0, i = 0; file < w->n_files; file++) {
        char name[64];
        file_name(w, file, name);
        for (; i < w->file_end[file]; i++)
            fsdp_json_set_str(map, w->specs[i].name, name);
    }
    fsdp_json_set_i64(metadata, "total_parameters", w->numel);
    fsdp_json_set_i64(metadata, "total_size", w->bytes);
    char *path = fsdp_path_join(w->files.dir, index_name);
    fsdp_status status = path ? fsdp_json_write(doc, FSDP_JSON_PRETTY, path) : FSDP_ERR_NOMEM;
    fsdp_free(path);
    fsdp_json_destroy(doc);
    return status;
}

/* Finish all files. The last files may not have been begun yet, because the caller need not write
 * empty tensors. */
static fsdp_status finish_files(fsdp_weights_writer *w)
{
    while (w->n_begun < w->n_files)
        FSDP_TRY(next_file(w));
    fsdp_safetensors_writer *last = w->open;
    w->open = NULL;
    FSDP_TRY(fsdp_safetensors_writer_finish(last));
    return w->n_files > 1 ? write_index(w) : FSDP_OK;
}

fsdp_status fsdp_weights_writer_finish(fsdp_weights_writer *writer)
{
    fsdp_status status = finish_files(writer);
    fsdp_weights_writer_discard(writer);
    return status;
}

void fsdp_weights_writer_discard(fsdp_weights_writer *writer)
{
    if (!writer)
        return;
    fsdp_safetensors_writer_discard(writer->open);
    fsdp_free(writer->file_end);
    fsdp_free(writer);
}
