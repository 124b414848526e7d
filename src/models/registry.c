/* The list of model types. Also defines the functions of <fsdp/models.h>. They find the type of a
 * model and call a function in the table of that type. */
#include <stdio.h>
#include <string.h>

#include "src/autograd/autograd.h"
#include "src/base/alloc.h"
#include "src/base/io.h"
#include "src/models/config_json.h"
#include "src/models/model_type.h"

/* Note [Tied heads]
 *
 * transformers 5 ties the head to the embedding if tie_word_embeddings is true. There is one
 * exception: if the weights contain a head and an embedding whose values differ, the head is not
 * tied.
 *
 * For T5, tie_word_embeddings does not say whether the head is tied. transformers 5 writes the
 * value true for every T5. In earlier versions of transformers, the value true also meant that the
 * decoder's output is scaled. So for T5, only the saved weights decide whether the head is tied.
 * The head is tied if the weights contain no separate head, or if the separate head equals the
 * embedding. */

/* All model types. Types with the same model_type must be adjacent. The type for a config.json is
 * one with the model_type of the file. If there are several such types, it is the one whose root
 * class is in `architectures` of the file. If no root class is in `architectures`, it is the first
 * of these types. Types with by_task set are never chosen in this way, so a pretrained
 * BertForMaskedLM is fine-tuned as a classifier, unless fsdp_model_config_set_task() is called. */
const fsdp_model_type *const fsdp_model_types[] = {
    &fsdp_t5_type,
    &fsdp_mt5_type,
    &fsdp_umt5_type,
    &fsdp_bert_classifier_type,
    &fsdp_bert_masked_lm_type,
    &fsdp_bert_model_type,
    &fsdp_llama_type,
    &fsdp_mistral_type,
    &fsdp_qwen2_type,
    &fsdp_qwen3_type,
    &fsdp_gpt2_type,
    NULL,
};

const fsdp_model_type *fsdp_model_type_of(const fsdp_module *model)
{
    for (const fsdp_model_type *const *t = fsdp_model_types; *t; t++)
        if (strcmp((*t)->root_class, fsdp_module_class(model)) == 0)
            return *t;
    return NULL;
}

/* Return true if the list `architectures` of the config.json contains the root class of `type`. */
static bool has_architecture(fsdp_json_node root, const fsdp_model_type *type)
{
    fsdp_json_node list = fsdp_json_find(root, "architectures");
    for (size_t i = 0; i < fsdp_json_len(list); i++) {
        const char *name;
        if (fsdp_json_get_str(fsdp_json_at(list, i), NULL, &name) == FSDP_OK &&
            strcmp(name, type->root_class) == 0)
            return true;
    }
    return false;
}

static const fsdp_model_type *find_type(fsdp_json_node root, const char *model_type)
{
    const fsdp_model_type *first = NULL;
    for (const fsdp_model_type *const *t = fsdp_model_types; *t; t++) {
        if (strcmp((*t)->name, model_type) != 0 || (*t)->by_task)
            continue;
        if (has_architecture(root, *t))
            return *t;
        first = first ? first : *t;
    }
    return first;
}

/* --- configurations --- */

static const char *const task_names[] = {"seq2seq", "causal-lm", "classification", "masked-lm"};

/* Write the names of all model types to `text`, as a list for an error message: "t5", "mt5" or
 * "bert" (with the quotes). */
static void list_types(char *text, size_t size)
{
    size_t at = 0;
    for (const fsdp_model_type *const *t = fsdp_model_types; *t && at < size; t++) {
        if (t[1] && strcmp(t[1]->name, (*t)->name) == 0)
            continue;
        at += (size_t)snprintf(text + at, size - at, "%s\"%s\"",
                               at == 0 ? ""
                               : t[1]  ? ", "
                                       : " or ",
                               (*t)->name);
    }
}

fsdp_status fsdp_model_config_parse(fsdp_json *doc, fsdp_model_config *config)
{
    fsdp_json_node root = fsdp_json_root(doc);
    const char *name;
    char known[512];
    FSDP_TRY(fsdp_json_get_str(root, "model_type", &name));
    const fsdp_model_type *type = find_type(root, name);
    if (!type) {
        list_types(known, sizeof known);
        return fsdp_config_unsupported(root, "model_type", known);
    }
    fsdp_model_config c = {0};
    FSDP_TRY(type->parse(doc, &c));
    c.type = type;
    *config = c;
    return FSDP_OK;
}

fsdp_status fsdp_model_config_read(const char *path, fsdp_model_config *config)
{
    fsdp_json *doc = NULL;
    FSDP_TRY(fsdp_config_open(path, &doc));
    fsdp_status status = fsdp_model_config_parse(doc, config);
    fsdp_json_destroy(doc);
    return status;
}

fsdp_status fsdp_model_config_preset(const char *name, fsdp_model_config *config)
{
    char known[2048] = "";
    size_t at = 0;
    for (const fsdp_model_type *const *t = fsdp_model_types; *t; t++) {
        fsdp_model_config c = {0};
        fsdp_status status = (*t)->preset ? (*t)->preset(name, &c) : FSDP_ERR_NOT_FOUND;
        if (status == FSDP_OK) {
            c.type = *t;
            *config = c;
        }
        if (status != FSDP_ERR_NOT_FOUND)
            return status;
        if ((*t)->presets && at < sizeof known)
            at += (size_t)snprintf(known + at, sizeof known - at, "%s%s", at ? ", " : "",
                                   (*t)->presets);
    }
    return fsdp_error(FSDP_ERR_INVALID, "unknown model shape '%s' (known: %s)", name, known);
}

fsdp_status fsdp_model_config_write(const fsdp_model_config *config, bool has_own_head,
                                    fsdp_dtype dtype, const char *source, const char *path)
{
    fsdp_json *doc;
    FSDP_TRY(source ? fsdp_json_read(source, &doc) : fsdp_json_create(path, &doc));
    fsdp_json_node root = fsdp_json_root(doc);
    fsdp_json_append_str(fsdp_json_set_array(root, "architectures"), config->type->root_class);
    fsdp_json_set_str(root, "model_type", config->type->name);
    config->type->write(root, config, has_own_head);
    fsdp_config_set_dtype(root, dtype);
    fsdp_status status = fsdp_json_write(doc, FSDP_JSON_PRETTY, path);
    fsdp_json_destroy(doc);
    return status;
}

fsdp_status fsdp_t5_config_write(const fsdp_t5_config *config, bool has_lm_head, fsdp_dtype dtype,
                                 const char *source, const char *path)
{
    static const fsdp_model_type *const types[] = {
        [FSDP_T5] = &fsdp_t5_type, [FSDP_MT5] = &fsdp_mt5_type, [FSDP_UMT5] = &fsdp_umt5_type};
    const fsdp_model_config any = {.type = types[config->family], .t5 = *config};
    return fsdp_model_config_write(&any, has_lm_head, dtype, source, path);
}

fsdp_model_info fsdp_model_config_info(const fsdp_model_config *config)
{
    fsdp_model_info info = {.bos_token_id = -1, .eos_token_id = -1, .pad_token_id = -1};
    config->type->info(config, &info);
    info.model_type = config->type->name;
    info.class_name = config->type->root_class;
    info.block_classes = config->type->block_classes;
    return info;
}

fsdp_status fsdp_model_config_set_task(fsdp_model_config *config, fsdp_task task)
{
    const fsdp_model_type *type = config->type;
    const fsdp_task now = fsdp_model_config_info(config).format.task;
    if (type->set_task ? type->set_task(config, task) : now == task)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID, "a %s is for %s, and has no head for %s", type->root_class,
                      task_names[now], task_names[task]);
}

void fsdp_model_config_set_dropout(fsdp_model_config *config, double p)
{
    config->type->set_dropout(config, p);
}

/* --- models --- */

fsdp_status fsdp_model_create(const fsdp_model_config *config, fsdp_module **model)
{
    return config->type->create(config, model);
}

fsdp_status fsdp_model_get_config(const fsdp_module *model, fsdp_model_config *config)
{
    const fsdp_model_type *type = fsdp_model_type_of(model);
    if (!type)
        return fsdp_error(FSDP_ERR_INVALID, "a %s is not the root of a model",
                          fsdp_module_class(model));
    *config = (fsdp_model_config){.type = type};
    type->get_config(model, config);
    return FSDP_OK;
}

/* Return the type of `model`. If `model` is not the root of a model, or if the scope has no batch,
 * the scope fails and the result is NULL. */
static const fsdp_model_type *runnable(fsdp_scope *s, const fsdp_module *model)
{
    if (!fsdp_scope_ok(s))
        return NULL;
    const fsdp_model_type *type = fsdp_model_type_of(model);
    if (!type)
        fsdp_scope_error(s, "model", "a %s is not the root of a model", fsdp_module_class(model));
    else if (!fsdp_scope_get_options(s)->batch)
        fsdp_scope_error(s, type->root_class, "the scope's options name no batch");
    return fsdp_scope_ok(s) ? type : NULL;
}

/* Return true if the batch has labels for the model's task. Otherwise let the scope fail, because
 * the model could read more labels than the batch has. */
static bool has_labels(fsdp_scope *s, const fsdp_model_type *type, const fsdp_module *model)
{
    fsdp_model_config config = {.type = type};
    type->get_config(model, &config);
    const fsdp_task wanted = fsdp_model_config_info(&config).format.task;
    const fsdp_task task = fsdp_scope_get_options(s)->batch->task;
    if (task != wanted)
        fsdp_scope_error(s, type->root_class, "the batch has labels for %s, not for %s",
                         task_names[task], task_names[wanted]);
    return task == wanted;
}

fsdp_tensor *fsdp_model_loss(fsdp_scope *s, fsdp_module *model, float factor)
{
    const fsdp_model_type *type = runnable(s, model);
    if (type && !has_labels(s, type, model))
        return NULL;
    return type ? type->loss(s, model, factor) : NULL;
}

fsdp_model_outputs fsdp_model_logits(fsdp_scope *s, fsdp_module *model)
{
    const fsdp_model_type *type = runnable(s, model);
    return type ? type->logits(s, model) : (fsdp_model_outputs){0};
}
