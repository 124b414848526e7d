/* Writes a model's folder in the form that transformers reads. Rank 0 writes a temporary folder
 * next to the final one, and renames it at the end. */
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/comm/agree.h"
#include "src/hf/hf_dir.h"
#include "src/hf/stale_files.h"
#include "src/models/generation_config.h"
#include "src/models/label_names.h"
#include "src/models/model_type.h"
#include "src/pretrained/lora_files.h"
#include "src/pretrained/model.h"
#include "src/pretrained/text_prefix.h"

/* Get the path of the config.json from which the model's configuration was read. *path is NULL if
 * there is none. The caller owns *path. */
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

/* Return the name of the head if a tied head must be written to the files. A tied head is the same
 * tensor as the embedding. For some models, this tensor is written a second time, under the name of
 * the head. For most models, it is written only once, as the embedding; in this case, return
 * NULL. */
static const char *tied_head_to_write(const fsdp_model *m)
{
    const fsdp_model_type *type = m->config.type;
    if (!m->info.tie_word_embeddings || !type->tied_head_to_save)
        return NULL;
    return type->tied_head_to_save(&m->config);
}

static fsdp_status write_config(const fsdp_model *m, const char *dir,
                                const fsdp_model_save_options *o)
{
    char *source, *path = fsdp_path_join(dir, "config.json");
    fsdp_status status = path ? source_config(m, &source) : FSDP_ERR_NOMEM;
    if (status == FSDP_OK) {
        bool has_own_head = !m->info.tie_word_embeddings || tied_head_to_write(m);
        status = fsdp_model_config_write(&m->config, has_own_head, o->dtype, source, path);
        if (status == FSDP_OK && m->writes_label_names)
            status = fsdp_label_names_write(path, m->label_names, m->n_label_names);
        if (status == FSDP_OK && o->text_prefix && m->info.format.task == FSDP_TASK_SEQ2SEQ)
            status = fsdp_text_prefix_write(path, o->text_prefix);
        fsdp_free(source);
    }
    fsdp_free(path);
    return status;
}

static fsdp_status write_generation_config(const fsdp_model *m, const char *dir)
{
    if (m->info.format.task == FSDP_TASK_CLASSIFICATION ||
        m->info.format.task == FSDP_TASK_MASKED_LM)
        return FSDP_OK; /* the model does not generate */
    char *path = fsdp_path_join(dir, "generation_config.json");
    fsdp_status status =
        path ? fsdp_generation_config_write(&m->info, m->dir, path) : FSDP_ERR_NOMEM;
    fsdp_free(path);
    return status;
}

static fsdp_status write_small_files(const fsdp_model *m, const char *dir,
                                     const fsdp_model_save_options *o)
{
    if (!m->lora) {
        FSDP_TRY(write_config(m, dir, o));
        FSDP_TRY(write_generation_config(m, dir));
    }
    const char *tokenizer = o->tokenizer ? o->tokenizer : m->dir;
    /* A SentencePiece model is spiece.model in T5's folders and tokenizer.model in Llama's. */
    const char *file_name =
        m->info.format.task == FSDP_TASK_SEQ2SEQ ? "spiece.model" : "tokenizer.model";
    return tokenizer ? fsdp_hf_dir_copy_tokenizer(tokenizer, dir, file_name) : FSDP_OK;
}

/* fsdp_check_model_folder() refuses the folder of a checkpoint of `fsdp train`. This function also
 * refuses a folder that contains .metadata. Readers would take such a folder for a checkpoint of
 * torch.distributed.checkpoint, even if a model was also saved there. */
fsdp_status fsdp_model_check_folder(const char *dir)
{
    FSDP_TRY(fsdp_check_model_folder(dir));
    char *metadata = fsdp_path_join(dir, ".metadata");
    fsdp_status status = metadata ? FSDP_OK : FSDP_ERR_NOMEM;
    if (metadata && fsdp_path_is_file(metadata))
        status = fsdp_error(FSDP_ERR_INVALID,
                            "%s: contains a checkpoint of torch.distributed.checkpoint, which "
                            "would be read instead of the model; name another folder",
                            dir);
    fsdp_free(metadata);
    return status;
}

/* Write the adapter of the model: its configuration and its values. */
static fsdp_status write_adapter(const fsdp_model *m, const char *dir,
                                 const fsdp_model_save_options *o)
{
    const fsdp_lora_about about = {.base_model = m->name,
                                   .task_type = fsdp_lora_task_type(&m->info)};
    return fsdp_lora_save(m->module, m->lora, &about, o->dtype, dir, m->group);
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
        status = fsdp_model_check_folder(dir);
    if (writes && status == FSDP_OK)
        status = fsdp_atomic_directory_begin(
            dir, o->overwrite ? FSDP_EXISTING_UPDATE : FSDP_EXISTING_REFUSE, &target);
    if (target)
        fsdp_atomic_directory_drop(target, fsdp_is_stale_model_file, NULL);
    status = fsdp_agree(m->group, status);
    fsdp_save_options weights = {
        .dtype = o->dtype, .max_shard_bytes = o->max_shard_bytes, .also_as = tied_head_to_write(m)};
    const char *meanwhile = target ? fsdp_atomic_directory_path(target) : "";
    if (status == FSDP_OK)
        status = m->lora ? write_adapter(m, meanwhile, o)
                         : fsdp_module_save(m->module, meanwhile, m->group, &weights);
    if (status == FSDP_OK)
        status = fsdp_agree(m->group, writes ? write_small_files(m, meanwhile, o) : FSDP_OK);
    if (status != FSDP_OK) {
        if (target)
            fsdp_atomic_directory_discard(target);
        return status;
    }
    return fsdp_agree(m->group, writes ? fsdp_atomic_directory_commit(target) : FSDP_OK);
}
