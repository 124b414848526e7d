/* A model's folder as transformers reads it. Rank 0 writes into a temporary folder beside it, which
 * takes its place at the end. */
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/ckpt/hf_dir.h"
#include "src/comm/agree.h"
#include "src/models/generation_config.h"
#include "src/models/label_names.h"
#include "src/models/model_type.h"
#include "src/train/model.h"

/* The config.json that the model's descends from; *path is NULL if there is none. */
static fsdp_status source_config(const fsdp_model *m, char **path)
{
    *path = NULL;
    if (!m->dir)
        return FSDP_OK;
    char *file = fsdp_path_join(m->dir, "config.json");
    if (!file)
        return FSDP_ERR_NOMEM;
    if (fsdp_path_is_file(file))
        *path = file;
    else
        fsdp_free(file);
    return FSDP_OK;
}

/* A further name for a head that is tied; NULL: none. */
static const char *tied_head_to_write(const fsdp_model *m)
{
    const fsdp_model_type *type = m->config.type;
    if (!m->info.tie_word_embeddings || !type->tied_head_to_save)
        return NULL;
    return type->tied_head_to_save(&m->config);
}

static fsdp_status write_config(const fsdp_model *m, const char *dir, fsdp_dtype dtype)
{
    char *source, *path = fsdp_path_join(dir, "config.json");
    fsdp_status status = path ? source_config(m, &source) : FSDP_ERR_NOMEM;
    if (status == FSDP_OK) {
        bool has_own_head = !m->info.tie_word_embeddings || tied_head_to_write(m);
        status = fsdp_model_config_write(&m->config, has_own_head, dtype, source, path);
        if (status == FSDP_OK && m->writes_label_names)
            status = fsdp_label_names_write(path, m->label_names, m->n_label_names);
        fsdp_free(source);
    }
    fsdp_free(path);
    return status;
}

static fsdp_status write_generation_config(const fsdp_model *m, const char *dir)
{
    if (m->info.format.task == FSDP_TASK_CLASSIFICATION)
        return FSDP_OK;
    char *path = fsdp_path_join(dir, "generation_config.json");
    fsdp_status status =
        path ? fsdp_generation_config_write(&m->info, m->dir, path) : FSDP_ERR_NOMEM;
    fsdp_free(path);
    return status;
}

static fsdp_status write_small_files(const fsdp_model *m, const char *dir,
                                     const fsdp_model_save_options *o)
{
    FSDP_TRY(write_config(m, dir, o->dtype));
    FSDP_TRY(write_generation_config(m, dir));
    const char *tokenizer = o->tokenizer ? o->tokenizer : m->dir;
    /* A SentencePiece model, which goes by this name in T5's folders and by that in Llama's. */
    const char *file_name =
        m->info.format.task == FSDP_TASK_SEQ2SEQ ? "spiece.model" : "tokenizer.model";
    return tokenizer ? fsdp_hf_dir_copy_tokenizer(tokenizer, dir, file_name) : FSDP_OK;
}

static bool is_weight_file(const char *name)
{
    return strcmp(name, "model.safetensors.index.json") == 0 ||
           (strncmp(name, "model", 5) == 0 && strstr(name, ".safetensors") &&
            strcmp(strstr(name, ".safetensors"), ".safetensors") == 0);
}

static bool contains(char *const *names, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

/* Weights of an earlier save would be read in place of the new ones, and its tokenizer's files
 * beside them. */
static fsdp_status remove_stale_files(const char *dir, char *const *fresh, size_t n_fresh)
{
    char **names;
    size_t count;
    FSDP_TRY(fsdp_directory_list(dir, &names, &count));
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < count && status == FSDP_OK; i++) {
        const bool ours = is_weight_file(names[i]) || fsdp_hf_dir_is_tokenizer_file(names[i]);
        if (!ours || contains(fresh, n_fresh, names[i]))
            continue;
        char *path = fsdp_path_join(dir, names[i]);
        status = path ? fsdp_tree_remove(path) : FSDP_ERR_NOMEM;
        fsdp_free(path);
    }
    fsdp_free(names);
    return status;
}

/* `target` is gone afterwards. */
static fsdp_status commit(fsdp_atomic_directory *target, const char *dir)
{
    char **fresh;
    size_t n_fresh;
    fsdp_status status = fsdp_directory_list(fsdp_atomic_directory_path(target), &fresh, &n_fresh);
    if (status != FSDP_OK) {
        fsdp_atomic_directory_discard(target);
        return status;
    }
    status = fsdp_atomic_directory_commit(target);
    if (status == FSDP_OK)
        status = remove_stale_files(dir, fresh, n_fresh);
    fsdp_free(fresh);
    return status;
}

fsdp_status fsdp_model_save(const fsdp_model *m, const char *dir,
                            const fsdp_model_save_options *options)
{
    static const fsdp_model_save_options defaults = {0};
    const fsdp_model_save_options *o = options ? options : &defaults;
    bool writes = !m->group || fsdp_group_rank(m->group) == 0;
    fsdp_atomic_directory *target = NULL;
    fsdp_status status = FSDP_OK;
    if (writes)
        status = fsdp_atomic_directory_begin(
            dir, o->overwrite ? FSDP_EXISTING_UPDATE : FSDP_EXISTING_REFUSE, &target);
    status = fsdp_agree(m->group, status);
    fsdp_save_options weights = {
        .dtype = o->dtype, .max_shard_bytes = o->max_shard_bytes, .also_as = tied_head_to_write(m)};
    const char *meanwhile = target ? fsdp_atomic_directory_path(target) : "";
    if (status == FSDP_OK)
        status = fsdp_module_save(m->module, meanwhile, m->group, &weights);
    if (status == FSDP_OK)
        status = fsdp_agree(m->group, writes ? write_small_files(m, meanwhile, o) : FSDP_OK);
    if (status != FSDP_OK) {
        if (target)
            fsdp_atomic_directory_discard(target);
        return status;
    }
    return fsdp_agree(m->group, writes ? commit(target, dir) : FSDP_OK);
}
