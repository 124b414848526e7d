/* Reads and writes the folder of an adapter (fsdp_lora_load(), fsdp_lora_save()). The file of an
 * adapter contains the trained parameters of the model. PEFT puts "base_model.model." before their
 * names. */
#include <fsdp/pretrained.h>

#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/comm/agree.h"
#include "src/comm/comm.h"
#include "src/hf/wrapped_names.h"
#include "src/models/model_type.h"
#include "src/pretrained/lora_files.h"

/* The names that the file with the values of an adapter may have. PEFT prefers the first one. */
static const char *const value_files[] = {"adapter_model.safetensors", "adapter_model.bin"};

bool fsdp_lora_has_values(const char *dir)
{
    for (size_t i = 0; i < FSDP_LENGTH(value_files); i++)
        if (fsdp_directory_has_file(dir, value_files[i]))
            return true;
    return false;
}

const char *fsdp_lora_task_type(const fsdp_model_info *info)
{
    static const char *const task_types[] = {[FSDP_TASK_SEQ2SEQ] = "SEQ_2_SEQ_LM",
                                             [FSDP_TASK_CAUSAL_LM] = "CAUSAL_LM",
                                             [FSDP_TASK_CLASSIFICATION] = "SEQ_CLS",
                                             [FSDP_TASK_MASKED_LM] = NULL};
    return task_types[info->format.task];
}

/* Set *path to the file with the values of the adapter in `dir`. The caller owns *path. */
static fsdp_status find_values(const char *dir, char **path)
{
    for (size_t i = 0; i < FSDP_LENGTH(value_files); i++) {
        char *file = fsdp_path_join(dir, value_files[i]);
        if (!file)
            return FSDP_ERR_NOMEM;
        if (fsdp_path_is_file(file)) {
            *path = file;
            return FSDP_OK;
        }
        fsdp_free(file);
    }
    return fsdp_error(FSDP_ERR_NOT_FOUND,
                      "%s: contains neither %s nor %s: the values of the adapter", dir,
                      value_files[0], value_files[1]);
}

fsdp_status fsdp_lora_open_values(const char *dir, fsdp_checkpoint_reader **reader)
{
    char *path = NULL;
    fsdp_status status = find_values(dir, &path);
    if (status == FSDP_OK)
        status = fsdp_checkpoint_open(path, reader);
    fsdp_free(path);
    FSDP_TRY(status);
    fsdp_name_change change = {.base_layer = true};
    snprintf(change.prefix, sizeof change.prefix, "%s", FSDP_LORA_NAME_PREFIX);
    return fsdp_checkpoint_unwrap_names(*reader, &change);
}

fsdp_status fsdp_lora_fit_head(const char *dir, fsdp_model_config *config)
{
    fsdp_checkpoint_reader *reader = NULL;
    if (!config->type->set_num_labels || !fsdp_model_config_info(config).num_labels)
        return FSDP_OK;
    const fsdp_status status = fsdp_lora_open_values(dir, &reader);
    const fsdp_checkpoint_entry *head =
        status == FSDP_OK ? fsdp_checkpoint_find(reader, "classifier.weight") : NULL;
    if (head && head->ndim == 2 && head->shape[0] > 0 &&
        head->shape[0] != fsdp_model_config_info(config).num_labels)
        config->type->set_num_labels(config, head->shape[0]);
    fsdp_checkpoint_close(reader);
    return status;
}

fsdp_status fsdp_lora_find_base(const fsdp_lora_file *file, const char *dir, char **name)
{
    const char *base = fsdp_lora_file_base_model(file);
    if (!base || !*base)
        return fsdp_error(FSDP_ERR_INVALID,
                          "%s: an adapter, whose adapter_config.json does not say for which model "
                          "(base_model_name_or_path): name the model, and the adapter separately",
                          dir);
    char *beside = *base == '/' ? NULL : fsdp_path_join(dir, base);
    const bool is_beside =
        beside && !fsdp_path_is_directory(base) && fsdp_path_is_directory(beside);
    *name = fsdp_strdup(is_beside ? beside : base);
    fsdp_free(beside);
    return *name ? FSDP_OK : FSDP_ERR_NOMEM;
}

/* Return true if the tensor `name` is a bias that PEFT has saved twice. With bias "all", PEFT saves
 * the biases of modules_to_save a second time, under the names of the wrapper that it puts around
 * these modules. */
static bool is_second_copy(const char *name)
{
    return strstr(name, ".modules_to_save.") || strstr(name, ".original_module.");
}

/* Return an error if a tensor of the file belongs to no parameter. Its values would be lost
 * silently, and the adapter's configuration probably belongs to another file of values. */
static fsdp_status refuse_unexpected(const fsdp_checkpoint_reader *reader,
                                     const fsdp_load_report *report)
{
    size_t n = 0;
    const char *first = NULL;
    for (size_t i = 0; i < report->n_unexpected; i++) {
        if (is_second_copy(report->unexpected[i]))
            continue;
        first = n++ ? first : report->unexpected[i];
    }
    if (!n)
        return FSDP_OK;
    return fsdp_error(
        FSDP_ERR_FORMAT,
        "%s: '%s%s' belongs to no layer that adapter_config.json selects in this model "
        "(%zu such tensors); is this adapter for another model?",
        fsdp_checkpoint_path(reader), FSDP_LORA_NAME_PREFIX, first, n);
}

fsdp_status fsdp_lora_load(fsdp_module *model, const char *dir, fsdp_group *group)
{
    static const fsdp_load_options options = {.only_trained = true, .complete_adapter = true};
    fsdp_checkpoint_reader *reader = NULL;
    fsdp_load_report report = {0};
    fsdp_status status = fsdp_agree(group, fsdp_lora_open_values(dir, &reader));
    if (status == FSDP_OK)
        status = fsdp_module_load(model, reader, group, &options, &report);
    if (status == FSDP_OK)
        status = refuse_unexpected(reader, &report);
    fsdp_load_report_free(&report);
    fsdp_checkpoint_close(reader);
    return status;
}

static fsdp_status write_config(const fsdp_module *model, const fsdp_lora_config *config,
                                const fsdp_lora_about *about, const char *dir)
{
    char *path = fsdp_path_join(dir, "adapter_config.json");
    const fsdp_status status =
        path ? fsdp_lora_config_write(config, model, about, path) : FSDP_ERR_NOMEM;
    fsdp_free(path);
    return status;
}

fsdp_status fsdp_lora_save(fsdp_module *model, const fsdp_lora_config *config,
                           const fsdp_lora_about *about, fsdp_dtype dtype, const char *dir,
                           fsdp_group *group)
{
    const fsdp_save_options options = {
        .dtype = dtype, .only_trained = true, .adapter_names = true, .file_stem = "adapter_model"};
    FSDP_TRY(fsdp_module_save(model, dir, group, &options));
    const bool writes = !group || fsdp_group_rank(group) == 0;
    return fsdp_agree(group, writes ? write_config(model, config, about, dir) : FSDP_OK);
}
