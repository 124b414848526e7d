/* Finds a model's configuration and weights by the model's name, as from_pretrained() does. */
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "src/hf/folder_kind.h"
#include "src/hf/hf_dir.h"
#include "src/models/model_type.h"
#include "src/pretrained/lit_weights.h"
#include "src/pretrained/load_names.h"
#include "src/pretrained/pretrained.h"
#include "src/pretrained/weights_names.h"

/* --- tied heads --- */

static bool same_values(const fsdp_checkpoint_entry *a, const fsdp_checkpoint_entry *b)
{
    return a->bytes == b->bytes && strcmp(a->dtype_name, b->dtype_name) == 0 &&
           memcmp(a->data, b->data, a->bytes) == 0;
}

/* Find the embedding that the head may be tied to. *embedding is NULL if the weights do not have
 * it. */
static fsdp_status find_embedding(const fsdp_model_type *type, const fsdp_checkpoint_reader *reader,
                                  const fsdp_checkpoint_entry **embedding)
{
    *embedding = NULL;
    for (const char *const *name = type->embeddings; *name && !*embedding; name++)
        FSDP_TRY(fsdp_load_find(reader, type->base_prefix, *name, embedding));
    return FSDP_OK;
}

/* Decide whether the head is tied to the embedding. See Note [Tied heads] in registry.c. */
static fsdp_status decide_tied(fsdp_model_config *config, const fsdp_checkpoint_reader *reader)
{
    const fsdp_model_type *type = config->type;
    const fsdp_checkpoint_entry *head, *embedding;
    if (!type->head)
        return FSDP_OK;
    bool says_tied = type->tied_by_weights || fsdp_model_config_info(config).tie_word_embeddings;
    FSDP_TRY(fsdp_load_find(reader, type->base_prefix, type->head, &head));
    FSDP_TRY(find_embedding(type, reader, &embedding));
    if (!says_tied && !head)
        return fsdp_error(FSDP_ERR_NOT_FOUND,
                          "%s: there is no tensor '%s', and since tie_word_embeddings in "
                          "config.json is false, no other replaces it",
                          fsdp_checkpoint_path(reader), type->head);
    type->set_tied(config, says_tied && (!head || !embedding || same_values(head, embedding)));
    return FSDP_OK;
}

/* --- opening --- */

/* Translate the tensors of a reader with weights of Lit-LLaMA or LitGPT, and check that the model
 * then finds its parameters. */
static fsdp_status translate_lit(const fsdp_model_config *config, const char *const *names,
                                 fsdp_lit_format format, fsdp_checkpoint_reader *reader,
                                 fsdp_name_change *change)
{
    fsdp_lit_model model;
    const char *path = fsdp_checkpoint_path(reader);
    FSDP_TRY(fsdp_lit_model_of(config, path, path, format, &model));
    FSDP_TRY(fsdp_checkpoint_translate_lit(reader, names, format, &model));
    const size_t n = fsdp_checkpoint_count(reader);
    const char **translated = fsdp_calloc(n, sizeof(const char *));
    if (!translated)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < n; i++)
        translated[i] = fsdp_checkpoint_at(reader, i)->name;
    fsdp_status status = fsdp_weights_names_fit(config, path, translated, n, change);
    change->translated_from = fsdp_lit_format_name(format);
    fsdp_free(translated);
    return status;
}

static fsdp_status fit_names(const fsdp_model_config *config, const char *const *names, size_t n,
                             fsdp_checkpoint_reader *reader, fsdp_name_change *change)
{
    const fsdp_lit_format lit = fsdp_lit_recognize(names, n);
    if (lit)
        return translate_lit(config, names, lit, reader, change);
    FSDP_TRY(fsdp_weights_names_fit(config, fsdp_checkpoint_path(reader), names, n, change));
    return fsdp_checkpoint_unwrap_names(reader, change);
}

fsdp_status fsdp_pretrained_fit_names(const fsdp_model_config *config,
                                      fsdp_checkpoint_reader *reader, fsdp_name_change *change)
{
    const size_t n = fsdp_checkpoint_count(reader);
    fsdp_arena arena = {0};
    const char **names = fsdp_calloc(n, sizeof(const char *));
    if (!names)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < n; i++)
        names[i] = fsdp_checkpoint_at(reader, i)->name;
    char wrapped[sizeof change->wrapped] = "";
    fsdp_status status = fsdp_names_unwrap(fsdp_checkpoint_path(reader), NULL, &arena, names, n);
    for (size_t i = 0; status == FSDP_OK && i < n && !*wrapped; i++)
        if (strcmp(names[i], fsdp_checkpoint_at(reader, i)->name) != 0)
            snprintf(wrapped, sizeof wrapped, "%s", fsdp_checkpoint_at(reader, i)->name);
    if (status == FSDP_OK)
        status = fit_names(config, names, n, reader, change);
    if (status == FSDP_OK)
        memcpy(change->wrapped, wrapped, sizeof wrapped);
    fsdp_arena_fini(&arena);
    fsdp_free(names);
    return status;
}

static fsdp_status open_weights(fsdp_pretrained *p)
{
    fsdp_name_change change;
    FSDP_TRY(fsdp_checkpoint_open(p->dir, &p->weights));
    FSDP_TRY(fsdp_pretrained_fit_names(&p->config, p->weights, &change));
    if (*change.prefix && !(p->name_prefix = fsdp_strdup(change.prefix)))
        return FSDP_ERR_NOMEM;
    if (*change.wrapped && !(p->wrapped_name = fsdp_strdup(change.wrapped)))
        return FSDP_ERR_NOMEM;
    p->translated_from = change.translated_from;
    return decide_tied(&p->config, p->weights);
}

/* Return an error if config.json is missing and the folder is recognized as something else, such as
 * a checkpoint or an adapter. If the folder is not recognized, return FSDP_OK: the caller will get
 * an error when it reads config.json. */
static fsdp_status check_config_is_there(const char *dir)
{
    char *path = fsdp_path_join(dir, "config.json");
    fsdp_status status = !path                    ? FSDP_ERR_NOMEM
                         : fsdp_path_exists(path) ? FSDP_OK
                                                  : fsdp_folder_explain(dir);
    fsdp_free(path);
    return status;
}

fsdp_status fsdp_pretrained_open(const char *name, bool from_config, fsdp_pretrained *pretrained)
{
    fsdp_pretrained p = {0};
    fsdp_status status = fsdp_hf_dir_resolve(name, &p.dir);
    if (status == FSDP_OK)
        status = check_config_is_there(p.dir);
    if (status == FSDP_OK)
        status = fsdp_model_config_read(p.dir, &p.config);
    if (status == FSDP_OK && !from_config)
        status = open_weights(&p);
    if (status != FSDP_OK) {
        fsdp_pretrained_close(&p);
        return status;
    }
    *pretrained = p;
    return FSDP_OK;
}

void fsdp_pretrained_close(fsdp_pretrained *p)
{
    fsdp_checkpoint_close(p->weights);
    fsdp_free(p->name_prefix);
    fsdp_free(p->wrapped_name);
    fsdp_free(p->dir);
    *p = (fsdp_pretrained){0};
}

/* --- values --- */

fsdp_load_options fsdp_pretrained_load_options(const fsdp_pretrained *p, uint64_t seed)
{
    return (fsdp_load_options){.base_prefix = p->config.type->base_prefix,
                               .fresh_modules = p->config.type->fresh_modules,
                               .seed = seed,
                               .ignore_mismatched_sizes = p->ignore_mismatched_sizes};
}

fsdp_status fsdp_pretrained_load(const fsdp_pretrained *p, fsdp_module *module, fsdp_group *group,
                                 uint64_t seed, fsdp_load_report *report)
{
    if (!p->weights) {
        FSDP_TRY(fsdp_module_init(module, seed));
        if (report)
            *report = (fsdp_load_report){0};
        return fsdp_lora_init_magnitudes(module);
    }
    const fsdp_load_options options = fsdp_pretrained_load_options(p, seed);
    FSDP_TRY(fsdp_module_load(module, p->weights, group, &options, report));
    return fsdp_lora_init_magnitudes(module);
}
