/* A module's parameters as Hugging Face weight files. Files and what each holds are a function of
 * names and shapes, so every rank knows the order of gathers; only rank 0 touches the disk. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fsdp/ckpt.h>
#include <fsdp/dtensor.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "src/base/json.h"
#include "src/comm/agree.h"
#include "src/nn/module.h"

static const int64_t DEFAULT_SHARD_BYTES = 50000000000; /* transformers 5's "50GB" */

typedef struct save_run {
    const char *dir;
    fsdp_group *group; /* NULL: alone */
    fsdp_dtype dtype;
    fsdp_parameter_list names;   /* all, which `items` borrow from */
    fsdp_named_parameter *items; /* [n] what is written, by name */
    size_t n;
    size_t *file_end; /* [n_files] one past the last parameter of each file */
    size_t n_files;
} save_run;

static bool writes(const save_run *run)
{
    return !run->group || fsdp_group_rank(run->group) == 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const fsdp_named_parameter *)a)->name, ((const fsdp_named_parameter *)b)->name);
}

static int64_t bytes_of(const save_run *run, size_t i)
{
    return fsdp_parameter_numel(run->items[i].parameter) * (int64_t)fsdp_dtype_size(run->dtype);
}

/* Cut the list into files: a new one begins where the next tensor would not fit. */
static fsdp_status cut_files(save_run *run, int64_t max_bytes)
{
    int64_t used = 0;
    size_t cap = 0;
    for (size_t i = 0; i < run->n; i++) {
        if (used && used + bytes_of(run, i) > max_bytes) {
            if (!FSDP_GROW(run->file_end, cap, run->n_files + 2))
                return FSDP_ERR_NOMEM;
            run->file_end[run->n_files++] = i;
            used = 0;
        }
        used += bytes_of(run, i);
    }
    if (!FSDP_GROW(run->file_end, cap, run->n_files + 1))
        return FSDP_ERR_NOMEM;
    run->file_end[run->n_files++] = run->n;
    return FSDP_OK;
}

static void file_name(const save_run *run, size_t file, char name[64])
{
    if (run->n_files == 1)
        snprintf(name, 64, "model.safetensors");
    else
        snprintf(name, 64, "model-%05zu-of-%05zu.safetensors", file + 1, run->n_files);
}

/* --- rank 0 --- */

static fsdp_status open_file(const save_run *run, size_t file, size_t begin, size_t end,
                             fsdp_safetensors_writer **writer)
{
    char name[64];
    file_name(run, file, name);
    char *path = fsdp_path_join(run->dir, name);
    fsdp_safetensors_spec *specs = fsdp_calloc(end - begin, sizeof *specs);
    fsdp_status status = path && specs ? FSDP_OK : FSDP_ERR_NOMEM;
    for (size_t i = begin; i < end && status == FSDP_OK; i++)
        specs[i - begin] = (fsdp_safetensors_spec){.name = run->items[i].name,
                                                   .dtype = run->dtype,
                                                   .shape = run->items[i].parameter->shape,
                                                   .ndim = run->items[i].parameter->ndim};
    if (status == FSDP_OK)
        status = fsdp_safetensors_writer_create(path, specs, end - begin, writer);
    fsdp_free(specs);
    fsdp_free(path);
    return status;
}

static fsdp_status write_tensor(const save_run *run, fsdp_safetensors_writer *writer, size_t i,
                                fsdp_tensor *full)
{
    fsdp_tensor *converted = NULL;
    if (full->dtype != run->dtype) {
        FSDP_TRY(fsdp_tensor_to(full, run->dtype, FSDP_TAG_COMM, &converted));
        full = converted;
    }
    fsdp_status status = fsdp_safetensors_writer_write(
        writer, run->items[i].name, 0, fsdp_tensor_ptr(full), (size_t)bytes_of(run, i));
    fsdp_tensor_release(converted);
    return status;
}

static fsdp_status write_index(const save_run *run)
{
    fsdp_json *doc;
    FSDP_TRY(fsdp_json_create("model.safetensors.index.json", &doc));
    fsdp_json_node root = fsdp_json_root(doc), metadata = fsdp_json_set_object(root, "metadata");
    fsdp_json_node map = fsdp_json_set_object(root, "weight_map");
    int64_t numel = 0;
    for (size_t file = 0, i = 0; file < run->n_files; file++) {
        char name[64];
        file_name(run, file, name);
        for (; i < run->file_end[file]; i++) {
            fsdp_json_set_str(map, run->items[i].name, name);
            numel += fsdp_parameter_numel(run->items[i].parameter);
        }
    }
    fsdp_json_set_i64(metadata, "total_parameters", numel);
    fsdp_json_set_i64(metadata, "total_size", numel * (int64_t)fsdp_dtype_size(run->dtype));
    char *path = fsdp_path_join(run->dir, "model.safetensors.index.json");
    fsdp_status status = path ? fsdp_json_write(doc, FSDP_JSON_PRETTY, path) : FSDP_ERR_NOMEM;
    fsdp_free(path);
    fsdp_json_destroy(doc);
    return status;
}

/* --- all ranks --- */

static fsdp_status save_parameter(const save_run *run, fsdp_safetensors_writer *writer, size_t i)
{
    fsdp_tensor *full;
    fsdp_status status = fsdp_full_tensor(run->items[i].parameter->local, &full);
    if (status == FSDP_OK) {
        if (writes(run))
            status = write_tensor(run, writer, i, full);
        fsdp_tensor_release(full);
    }
    return fsdp_agree(run->group, status);
}

static fsdp_status save_file(const save_run *run, size_t file)
{
    size_t begin = file ? run->file_end[file - 1] : 0, end = run->file_end[file];
    fsdp_safetensors_writer *writer = NULL;
    fsdp_status status = FSDP_OK;
    if (writes(run))
        status = open_file(run, file, begin, end, &writer);
    status = fsdp_agree(run->group, status);
    for (size_t i = begin; i < end && status == FSDP_OK; i++)
        status = save_parameter(run, writer, i);
    if (status != FSDP_OK) {
        fsdp_safetensors_writer_discard(writer);
        return status;
    }
    if (writes(run))
        status = fsdp_safetensors_writer_finish(writer);
    return fsdp_agree(run->group, status);
}

static bool listed_before(const fsdp_parameter_list *list, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (list->items[k].parameter == list->items[i].parameter)
            return true;
    return false;
}

/* Each parameter under its first name, and under `also_as` if that is one of its names. */
static fsdp_status prepare(save_run *run, fsdp_module *module, const fsdp_save_options *options)
{
    FSDP_TRY(fsdp_module_parameters(module, true, &run->names));
    run->items = fsdp_calloc(run->names.n, sizeof *run->items);
    if (!run->items)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < run->names.n; i++) {
        const fsdp_named_parameter *item = &run->names.items[i];
        const fsdp_tensor *local = item->parameter->local;
        if (!local || fsdp_device_is_meta(fsdp_tensor_device(local)))
            return fsdp_error(FSDP_ERR_STATE, "%s has no values to save", item->name);
        bool also = options->also_as && strcmp(item->name, options->also_as) == 0;
        if (also || !listed_before(&run->names, i))
            run->items[run->n++] = *item;
    }
    qsort(run->items, run->n, sizeof *run->items, by_name);
    return cut_files(run,
                     options->max_shard_bytes > 0 ? options->max_shard_bytes : DEFAULT_SHARD_BYTES);
}

fsdp_status fsdp_module_save(fsdp_module *module, const char *dir, fsdp_group *group,
                             const fsdp_save_options *options)
{
    static const fsdp_save_options defaults = {0};
    if (!options)
        options = &defaults;
    save_run run = {.dir = dir, .group = group, .dtype = options->dtype};
    fsdp_status status = fsdp_agree(group, prepare(&run, module, options));
    for (size_t file = 0; file < run.n_files && status == FSDP_OK; file++)
        status = save_file(&run, file);
    if (status == FSDP_OK && run.n_files > 1)
        status = fsdp_agree(group, writes(&run) ? write_index(&run) : FSDP_OK);
    fsdp_parameter_list_free(&run.names);
    fsdp_free(run.items);
    fsdp_free(run.file_end);
    return status;
}
