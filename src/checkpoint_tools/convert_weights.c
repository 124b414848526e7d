/* Writes the result of a conversion in the safetensors format: as one file, or as a Hugging Face
 * folder with a configuration and a tokenizer. */
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "src/checkpoint_tools/convert_internal.h"
#include "src/hf/hf_dir.h"
#include "src/hf/safetensors_writer.h"
#include "src/hf/weights_writer.h"

/* Compare the names of two items, for qsort(). Sorting makes the target independent of the order in
 * the source: a tensor is always stored in the same file. */
static int compare_items(const void *a, const void *b)
{
    return strcmp(((const fsdp_converted *)a)->from->name, ((const fsdp_converted *)b)->from->name);
}

/* Sort run->items by name, and return an array with a spec for each of them, in this order. The
 * caller owns the array, but not the names and shapes that it points to. Returns NULL when out of
 * memory. */
static fsdp_safetensors_spec *make_specs(fsdp_conversion *run)
{
    const size_t n = run->selection.n;
    fsdp_safetensors_spec *specs = fsdp_calloc(n, sizeof *specs);
    if (!specs)
        return NULL;
    qsort(run->items, n, sizeof *run->items, compare_items);
    for (size_t i = 0; i < n; i++)
        specs[i] = (fsdp_safetensors_spec){.name = run->items[i].from->name,
                                           .dtype_name = run->items[i].dtype->name,
                                           .shape = run->items[i].from->item->shape,
                                           .ndim = run->items[i].from->item->ndim};
    return specs;
}

/* ---- writing one file ------------------------------------------------------------------------ */

typedef struct into_file {
    fsdp_safetensors_writer *writer;
    const char *name;
} into_file;

static fsdp_status write_to_file(void *context, uint64_t offset, const void *data, size_t bytes)
{
    const into_file *to = context;
    return fsdp_safetensors_writer_write(to->writer, to->name, offset, data, bytes);
}

fsdp_status fsdp_convert_to_safetensors(fsdp_conversion *run)
{
    into_file to = {0};
    fsdp_safetensors_spec *specs = make_specs(run);
    if (!specs)
        return FSDP_ERR_NOMEM;
    fsdp_status status =
        fsdp_safetensors_writer_begin(run->to, specs, run->selection.n, run->is_sparse, &to.writer);
    for (size_t i = 0; i < run->selection.n && status == FSDP_OK; i++) {
        to.name = specs[i].name;
        status = fsdp_converted_stream(&run->items[i], write_to_file, &to);
    }
    if (status == FSDP_OK)
        status = fsdp_safetensors_writer_finish(to.writer);
    else
        fsdp_safetensors_writer_discard(to.writer);
    fsdp_free(specs);
    return status;
}

/* ---- writing a folder ------------------------------------------------------------------------ */

typedef struct into_folder {
    fsdp_weights_writer *writer;
    size_t i;
} into_folder;

static fsdp_status write_to_folder(void *context, uint64_t offset, const void *data, size_t bytes)
{
    const into_folder *to = context;
    return fsdp_weights_writer_write(to->writer, to->i, offset, data, bytes);
}

static fsdp_status write_weights(fsdp_conversion *run, const char *dir)
{
    into_folder to = {0};
    fsdp_safetensors_spec *specs = make_specs(run);
    if (!specs)
        return FSDP_ERR_NOMEM;
    const fsdp_weights_files files = {
        .dir = dir, .max_file_bytes = run->options->max_shard_bytes, .is_sparse = run->is_sparse};
    fsdp_status status = fsdp_weights_writer_create(&files, specs, run->selection.n, &to.writer);
    for (; to.i < run->selection.n && status == FSDP_OK; to.i++)
        status = fsdp_converted_stream(&run->items[to.i], write_to_folder, &to);
    if (status == FSDP_OK)
        status = fsdp_weights_writer_finish(to.writer);
    else
        fsdp_weights_writer_discard(to.writer);
    fsdp_free(specs);
    return status;
}

/* Find the folder from which the configuration and the tokenizer are copied. This is the folder
 * of options->model if that is given, or else the source, if the source is a Hugging Face model.
 * The caller owns *dir. *dir is NULL if there is no such folder. */
static fsdp_status find_model(const fsdp_conversion *run, char **dir)
{
    const char *path = fsdp_source_path(run->source);
    *dir = NULL;
    if (run->options->model)
        return fsdp_hf_dir_resolve(run->options->model, dir);
    if (fsdp_source_format_of(run->source) != FSDP_SOURCE_HF)
        return FSDP_OK;
    *dir = fsdp_path_is_directory(path) ? fsdp_strdup(path) : fsdp_path_parent(path);
    return *dir ? FSDP_OK : FSDP_ERR_NOMEM;
}

/* Return the name of the floating-point dtype in which most bytes of the target are written, or
 * NULL if there is none. */
static const char *written_dtype(const fsdp_conversion *run)
{
    const fsdp_safetensors_dtype *most = NULL;
    int64_t most_bytes = 0;
    for (size_t i = 0; i < run->selection.n; i++) {
        const fsdp_safetensors_dtype *dtype = run->items[i].dtype;
        int64_t bytes = 0;
        if (!dtype || dtype == most || dtype->fsdp_dtype < 0 ||
            !fsdp_dtype_is_floating((fsdp_dtype)dtype->fsdp_dtype))
            continue;
        for (size_t k = 0; k < run->selection.n; k++)
            bytes += run->items[k].dtype == dtype ? run->items[k].bytes : 0;
        if (bytes > most_bytes) {
            most = dtype;
            most_bytes = bytes;
        }
    }
    return most ? fsdp_dtype_name((fsdp_dtype)most->fsdp_dtype) : NULL;
}

static fsdp_status copy_small_files(const fsdp_conversion *run, const char *to)
{
    char *from;
    FSDP_TRY(find_model(run, &from));
    if (!from)
        return FSDP_OK;
    /* The weights may have another dtype than the model whose config.json is copied. */
    fsdp_status status = fsdp_hf_dir_copy_config(from, to, written_dtype(run));
    if (status == FSDP_OK)
        status = fsdp_hf_dir_copy_tokenizer(from, to, "tokenizer.model");
    fsdp_free(from);
    return status;
}

fsdp_status fsdp_convert_to_hf(fsdp_conversion *run)
{
    fsdp_atomic_directory *target;
    FSDP_TRY(fsdp_atomic_directory_begin(
        run->to, run->options->overwrite ? FSDP_EXISTING_UPDATE : FSDP_EXISTING_REFUSE, &target));
    fsdp_atomic_directory_drop(target, fsdp_conversion_drops, run);
    const char *dir = fsdp_atomic_directory_path(target);
    fsdp_status status = copy_small_files(run, dir);
    if (status == FSDP_OK)
        status = write_weights(run, dir);
    if (status == FSDP_OK)
        return fsdp_atomic_directory_commit(target);
    fsdp_atomic_directory_discard(target);
    return status;
}
