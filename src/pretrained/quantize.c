/* See quantize.h. */
#include "src/pretrained/quantize.h"

#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/base/json.h"
#include "src/base/str.h"
#include "src/lora/targets.h"
#include "src/models/model_type.h"
#include "src/pretrained/load_names.h"
#include "src/pretrained/nf4_entry.h"

/* --- which layers --- */

static bool begins_with_path(const char *path, const char *name)
{
    const size_t n = strlen(name);
    return strncmp(path, name, n) == 0 && path[n] == '.';
}

/* Return true if the layers "wo" of the model are not quantized. transformers keeps these layers of
 * T5 models in float32 (_keep_in_fp32_modules). */
static bool keeps_wo(const fsdp_module *model)
{
    static const char *const types[] = {"t5", "mt5", "umt5"};
    const fsdp_model_type *type = fsdp_model_type_of(model);
    for (size_t i = 0; type && i < FSDP_LENGTH(types); i++)
        if (strcmp(type->name, types[i]) == 0)
            return true;
    return false;
}

static bool is_skipped(const fsdp_quantize_options *o, const char *path)
{
    for (size_t i = 0; i < o->n_skip_modules; i++)
        if (fsdp_lora_name_matches(path, o->skip_modules[i]) ||
            begins_with_path(path, o->skip_modules[i]))
            return true;
    return false;
}

bool fsdp_quantize_selects(const fsdp_quantize_options *options, const fsdp_module *module,
                           const char *path)
{
    const fsdp_module *root = module;
    while (root->parent)
        root = root->parent;
    return strcmp(module->class_name, "Linear") == 0 && fsdp_lora_is_linear(module) &&
           !fsdp_module_parameter(module, "weight")->in_adapter && !fsdp_lora_is_head(path) &&
           !(keeps_wo(root) && fsdp_lora_name_matches(path, "wo")) && !is_skipped(options, path);
}

/* --- applying --- */

typedef struct application {
    const fsdp_quantize_options *options;
    const fsdp_checkpoint_reader *reader;
    const char *base_prefix;
    bool adapted;
    size_t n; /* weights that were quantized */
} application;

static fsdp_status quantize(application *a, const char *path, fsdp_parameter *weight,
                            const fsdp_quantization *how, bool in_file)
{
    if (in_file && a->adapted && fsdp_parameter_requires_grad(weight))
        return fsdp_error(
            FSDP_ERR_INVALID,
            "'%s.weight' is in NF4 in the files of the model, so it cannot be trained "
            "(--lora-modules-to-save)",
            path);
    if (weight->float8)
        return fsdp_error(
            FSDP_ERR_UNSUPPORTED,
            "'%s.weight' is in NF4 in the files of the model, so its products are not "
            "computed in float8; leave out --float8-recipe",
            path);
    a->n++;
    return fsdp_parameter_set_quantized(weight, how);
}

/* Set *found to true if the weight of the layer at `path` is in NF4 in the files. In that case, set
 * *how to its quantization. */
static fsdp_status look_in_files(const application *a, const char *path, fsdp_quantization *how,
                                 bool *found)
{
    char name[512];
    const fsdp_checkpoint_entry *entry;
    fsdp_nf4_entry nf4;
    *found = false;
    snprintf(name, sizeof name, "%s%sweight", path, *path ? "." : "");
    FSDP_TRY(fsdp_load_find(a->reader, a->base_prefix, name, &entry));
    if (entry)
        FSDP_TRY(fsdp_nf4_entry_find(a->reader, entry, &nf4, found));
    if (*found)
        *how = nf4.how;
    return FSDP_OK;
}

/* Return an error if `module` is a Conv1D whose weight is in NF4 in the files. bitsandbytes stores
 * this weight transposed, as [out, in]. So the indices in the file are not in the order of the
 * parameter's elements, even if the weight is square. */
static fsdp_status refuse_conv1d(const char *path, fsdp_module *module, void *arg)
{
    const application *a = arg;
    fsdp_quantization how;
    bool found = false;
    if (strcmp(module->class_name, "Conv1D") == 0)
        FSDP_TRY(look_in_files(a, path, &how, &found));
    if (!found)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_UNSUPPORTED,
                      "%s: '%s.weight' is in NF4, and the layer is a Conv1D, whose weight "
                      "bitsandbytes stores transposed, which is not supported; in transformers, "
                      "model.dequantize().save_pretrained(DIR) makes a folder without NF4",
                      fsdp_checkpoint_path(a->reader), path);
}

fsdp_status fsdp_quantize_check_files(fsdp_module *model, const fsdp_checkpoint_reader *reader,
                                      const char *base_prefix)
{
    application a = {.reader = reader, .base_prefix = base_prefix};
    return fsdp_module_visit(model, refuse_conv1d, &a);
}

static fsdp_status quantize_module(const char *path, fsdp_module *module, void *arg)
{
    application *a = arg;
    fsdp_parameter *weight = fsdp_module_parameter(module, "weight");
    fsdp_quantization how = {.block = FSDP_NF4_BLOCK};
    bool in_file = false;
    if (!weight || weight->in_adapter || weight->quantized)
        return FSDP_OK;
    if (a->reader)
        FSDP_TRY(look_in_files(a, path, &how, &in_file));
    if (in_file)
        return quantize(a, path, weight, &how, true);
    const bool is_trained = a->adapted && fsdp_parameter_requires_grad(weight);
    if (!a->options || is_trained || !fsdp_quantize_selects(a->options, module, path))
        return FSDP_OK;
    how.is_double = a->options->double_quant;
    how.nested_block = how.is_double ? FSDP_NF4_NESTED_BLOCK : 0;
    return quantize(a, path, weight, &how, false);
}

fsdp_status fsdp_quantize_apply(fsdp_module *model, const fsdp_quantize_options *options,
                                const fsdp_checkpoint_reader *reader, const char *base_prefix,
                                bool adapted)
{
    application a = {
        .options = options, .reader = reader, .base_prefix = base_prefix, .adapted = adapted};
    if (reader)
        FSDP_TRY(fsdp_quantize_check_files(model, reader, base_prefix));
    FSDP_TRY(fsdp_module_visit(model, quantize_module, &a));
    if (options && !a.n)
        return fsdp_error(
            FSDP_ERR_INVALID,
            "--load-in-4bit: this %s has no linear layer that could be stored in 4 bits "
            "(Conv1D layers, as in GPT-2, and heads keep their dtype); without --load-in-4bit, an "
            "adapter (--lora-r) is trained over weights in the dtype of their files",
            fsdp_module_class(model));
    return FSDP_OK;
}

/* --- config.json --- */

static fsdp_status read_skip(fsdp_json_node config, fsdp_quantize_file *file)
{
    fsdp_json_node list;
    FSDP_TRY(fsdp_json_opt_array(config, "llm_int8_skip_modules", &list));
    const size_t n = fsdp_json_len(list);
    if (!n)
        return FSDP_OK;
    file->skip = fsdp_calloc(n, sizeof *file->skip);
    if (!file->skip)
        return FSDP_ERR_NOMEM;
    file->options.skip_modules = (const char *const *)file->skip;
    for (size_t i = 0; i < n; i++) {
        const char *name;
        FSDP_TRY(fsdp_json_get_str(fsdp_json_at(list, i), NULL, &name));
        if (!(file->skip[i] = fsdp_strdup(name)))
            return FSDP_ERR_NOMEM;
        file->options.n_skip_modules++;
    }
    return FSDP_OK;
}

static fsdp_status read_config(fsdp_json_node root, fsdp_quantize_file *file)
{
    fsdp_json_node config;
    FSDP_TRY(fsdp_json_opt_object(root, "quantization_config", &config));
    file->is_quantized = fsdp_json_kind_of(config) == FSDP_JSON_OBJECT;
    if (!file->is_quantized)
        return FSDP_OK;
    FSDP_TRY(fsdp_json_opt_bool(config, "bnb_4bit_use_double_quant", false,
                                &file->options.double_quant));
    return read_skip(config, file);
}

fsdp_status fsdp_quantize_file_read(const char *dir, fsdp_quantize_file *file)
{
    fsdp_json *doc = NULL;
    *file = (fsdp_quantize_file){0};
    char *path = fsdp_path_join(dir, "config.json");
    fsdp_status status = path ? FSDP_OK : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status = fsdp_json_read(path, &doc);
    if (status == FSDP_OK)
        status = read_config(fsdp_json_root(doc), file);
    fsdp_json_destroy(doc);
    fsdp_free(path);
    return status;
}

void fsdp_quantize_file_fini(fsdp_quantize_file *file)
{
    for (size_t i = 0; i < file->options.n_skip_modules; i++)
        fsdp_free(file->skip[i]);
    fsdp_free(file->skip);
    *file = (fsdp_quantize_file){0};
}

static void add_skipped(fsdp_json_node config, const fsdp_quantize_written *w)
{
    static const char *const heads[] = {"lm_head", "classifier", "cls"};
    fsdp_json_node list = fsdp_json_set_array(config, "llm_int8_skip_modules");
    for (size_t i = 0; i < w->options.n_skip_modules; i++)
        fsdp_json_append_str(list, w->options.skip_modules[i]);
    for (size_t i = 0; i < FSDP_LENGTH(heads); i++)
        if (fsdp_module_find(w->model, heads[i]))
            fsdp_json_append_str(list, heads[i]);
    if (keeps_wo(w->model))
        fsdp_json_append_str(list, "wo");
}

/* Set the keys of transformers' BitsAndBytesConfig.to_dict(). */
static void set_config(fsdp_json_node config, const fsdp_quantize_written *w)
{
    fsdp_json_set_bool(config, "_load_in_4bit", true);
    fsdp_json_set_bool(config, "_load_in_8bit", false);
    fsdp_json_set_str(config, "bnb_4bit_compute_dtype", fsdp_dtype_name(w->compute_dtype));
    fsdp_json_set_str(config, "bnb_4bit_quant_storage", "uint8");
    fsdp_json_set_str(config, "bnb_4bit_quant_type", "nf4");
    fsdp_json_set_bool(config, "bnb_4bit_use_double_quant", w->options.double_quant);
    fsdp_json_set_bool(config, "llm_int8_enable_fp32_cpu_offload", false);
    fsdp_json_set_bool(config, "llm_int8_has_fp16_weight", false);
    add_skipped(config, w);
    fsdp_json_set_f64(config, "llm_int8_threshold", 6.0);
    fsdp_json_set_bool(config, "load_in_4bit", true);
    fsdp_json_set_bool(config, "load_in_8bit", false);
    fsdp_json_set_str(config, "quant_method", "bitsandbytes");
}

fsdp_status fsdp_quantize_config_write(const char *path, const fsdp_quantize_written *written)
{
    fsdp_json *doc;
    FSDP_TRY(fsdp_json_read(path, &doc));
    fsdp_json_remove(fsdp_json_root(doc), "quantization_config");
    if (written)
        set_config(fsdp_json_set_object(fsdp_json_root(doc), "quantization_config"), written);
    const fsdp_status status = fsdp_json_write(doc, FSDP_JSON_PRETTY, path);
    fsdp_json_destroy(doc);
    return status;
}

static fsdp_status note_quantized(const char *path, fsdp_module *module, void *arg)
{
    const fsdp_parameter *weight = fsdp_module_parameter(module, "weight");
    (void)path;
    *(bool *)arg |= weight && weight->quantized;
    return FSDP_OK;
}

bool fsdp_model_is_quantized(fsdp_module *model)
{
    bool any = false;
    const fsdp_status status = fsdp_module_visit(model, note_quantized, &any);
    return status == FSDP_OK && any;
}
