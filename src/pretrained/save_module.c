/* Saves a module's parameters as Hugging Face weight files. The ranks gather one parameter after
 * the other, sorted by name. Only rank 0 writes files. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fsdp/pretrained.h>
#include <fsdp/dtensor.h>

#include "src/base/alloc.h"
#include "src/base/arena.h"
#include "src/comm/agree.h"
#include "src/hf/weights_writer.h"
#include "src/nn/module.h"
#include "src/pretrained/lora_files.h"
#include "src/tensor/host_copy.h"

typedef struct save_run {
    fsdp_group *group; /* NULL: a single rank */
    const fsdp_save_options *options;
    fsdp_dtype dtype;
    fsdp_parameter_list names;   /* every name of every parameter; owns the names in `items` */
    fsdp_named_parameter *items; /* [n] parameters to write, sorted by name */
    size_t n;
    fsdp_safetensors_spec *specs; /* [n]; NULL on all ranks except rank 0 */
    fsdp_arena arena;             /* owns the names in `specs` that have a prefix */
    fsdp_weights_writer *writer;  /* NULL on all ranks except rank 0 */
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

/* --- rank 0 --- */

/* Return true if the parameter is the bias of a layer whose weight has an adapter. `name` is the
 * name of the bias. Its first `layer` bytes are the layer's name and a dot. */
static bool is_beside_adapter(const save_run *run, const char *name, size_t layer)
{
    for (size_t i = 0; i < run->names.n; i++) {
        const fsdp_named_parameter *item = &run->names.items[i];
        if (item->parameter->adapter && strncmp(item->name, name, layer) == 0 &&
            strcmp(item->name + layer, "weight") == 0)
            return true;
    }
    return false;
}

/* Set *name to the name of parameter i in the file. */
static fsdp_status name_in_file(save_run *run, size_t i, const char **name)
{
    *name = run->items[i].name;
    if (!run->options->adapter_names)
        return FSDP_OK;
    const char *dot = strrchr(*name, '.');
    const size_t layer = dot ? (size_t)(dot - *name) + 1 : 0;
    const size_t bytes = strlen(FSDP_LORA_NAME_PREFIX "base_layer.") + strlen(*name) + 1;
    char *text = fsdp_arena_alloc(&run->arena, bytes);
    if (!text)
        return FSDP_ERR_NOMEM;
    snprintf(text, bytes, FSDP_LORA_NAME_PREFIX "%.*s%s%s", (int)layer, *name,
             !run->items[i].parameter->in_adapter && is_beside_adapter(run, *name, layer)
                 ? "base_layer."
                 : "",
             *name + layer);
    *name = text;
    return FSDP_OK;
}

static fsdp_status open_writer(save_run *run, const char *dir)
{
    run->specs = fsdp_calloc(run->n, sizeof *run->specs);
    if (!run->specs)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < run->n; i++) {
        run->specs[i] = (fsdp_safetensors_spec){.dtype = run->dtype,
                                                .shape = run->items[i].parameter->shape,
                                                .ndim = run->items[i].parameter->ndim};
        FSDP_TRY(name_in_file(run, i, &run->specs[i].name));
    }
    const fsdp_weights_files files = {.dir = dir,
                                      .stem = run->options->file_stem,
                                      .max_file_bytes = run->options->max_shard_bytes};
    return fsdp_weights_writer_create(&files, run->specs, run->n, &run->writer);
}

static fsdp_status write_tensor(const save_run *run, size_t i, fsdp_tensor *full)
{
    fsdp_tensor *converted = NULL;
    if (full->dtype != run->dtype) {
        FSDP_TRY(fsdp_tensor_to(full, run->dtype, FSDP_TAG_COMM, &converted));
        full = converted;
    }
    fsdp_host_copy copy = {0};
    fsdp_status status = fsdp_host_copy_of(&copy, full);
    if (status == FSDP_OK)
        status = fsdp_weights_writer_write(run->writer, i, 0, copy.data, (size_t)bytes_of(run, i));
    fsdp_host_copy_destroy(&copy);
    fsdp_tensor_release(converted);
    return status;
}

/* Finish the files and destroy run->writer. */
static fsdp_status finish_writing(save_run *run)
{
    fsdp_weights_writer *writer = run->writer;
    run->writer = NULL;
    return fsdp_weights_writer_finish(writer);
}

/* --- all ranks --- */

static fsdp_status save_parameter(const save_run *run, size_t i)
{
    fsdp_tensor *full;
    fsdp_status status = fsdp_full_tensor(run->items[i].parameter->local, &full);
    if (status == FSDP_OK) {
        if (writes(run))
            status = write_tensor(run, i, full);
        fsdp_tensor_release(full);
    }
    return fsdp_agree(run->group, status);
}

static bool listed_before(const fsdp_parameter_list *list, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (list->items[k].parameter == list->items[i].parameter)
            return true;
    return false;
}

/* List each parameter under its first name. A parameter that has the name options->also_as is also
 * listed under that name. */
static fsdp_status list_parameters(save_run *run, fsdp_module *module,
                                   const fsdp_save_options *options)
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
        if (options->only_trained && !fsdp_parameter_requires_grad(item->parameter))
            continue;
        if (item->parameter->quantized)
            return fsdp_error(FSDP_ERR_UNSUPPORTED,
                              "'%s' is stored in NF4 (--load-in-4bit): the whole model cannot be "
                              "saved; save its adapter, and write the model with 'fsdp checkpoint "
                              "merge-adapter'",
                              item->name);
        bool also = options->also_as && strcmp(item->name, options->also_as) == 0;
        if (also || !listed_before(&run->names, i))
            run->items[run->n++] = *item;
    }
    qsort(run->items, run->n, sizeof *run->items, by_name);
    return FSDP_OK;
}

fsdp_status fsdp_module_save(fsdp_module *module, const char *dir, fsdp_group *group,
                             const fsdp_save_options *options)
{
    static const fsdp_save_options defaults = {0};
    if (!options)
        options = &defaults;
    save_run run = {.group = group, .options = options, .dtype = options->dtype};
    fsdp_status status = fsdp_agree(group, list_parameters(&run, module, options));
    if (status == FSDP_OK)
        status = fsdp_agree(group, writes(&run) ? open_writer(&run, dir) : FSDP_OK);
    for (size_t i = 0; i < run.n && status == FSDP_OK; i++)
        status = save_parameter(&run, i);
    if (status == FSDP_OK)
        status = fsdp_agree(group, writes(&run) ? finish_writing(&run) : FSDP_OK);
    fsdp_weights_writer_discard(run.writer);
    fsdp_parameter_list_free(&run.names);
    fsdp_free(run.items);
    fsdp_free(run.specs);
    fsdp_arena_fini(&run.arena);
    return status;
}
