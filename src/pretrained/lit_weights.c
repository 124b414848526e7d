/* See lit_weights.h. */
#include "src/pretrained/lit_weights.h"

#include "src/base/alloc.h"
#include "src/hf/hf_dir.h"
#include "src/models/model_type.h"

static bool is_llama(const fsdp_model_type *type)
{
    return type == &fsdp_llama_type || type == &fsdp_mistral_type || type == &fsdp_qwen2_type ||
           type == &fsdp_qwen3_type;
}

fsdp_status fsdp_lit_model_of(const fsdp_model_config *config, const char *dir, const char *label,
                              fsdp_lit_format format, fsdp_lit_model *model)
{
    if (!is_llama(config->type))
        return fsdp_error(FSDP_ERR_INVALID,
                          "%s: weights of %s, but the config.json of %s describes a %s: give the "
                          "folder of the Llama, Mistral, Qwen2 or Qwen3 that was trained",
                          label, fsdp_lit_format_name(format), dir, config->type->root_class);
    *model = (fsdp_lit_model){.config = dir,
                              .n_heads = config->llama.num_attention_heads,
                              .n_kv_heads = config->llama.num_key_value_heads,
                              .head_dim = config->llama.head_dim,
                              .vocab_size = config->llama.vocab_size};
    return FSDP_OK;
}

fsdp_status fsdp_lit_translate_source(fsdp_source *source, fsdp_lit_format format, const char *name,
                                      size_t *n_left_out)
{
    fsdp_model_config config;
    fsdp_lit_model model;
    char *dir;
    FSDP_TRY(fsdp_hf_dir_resolve(name, &dir));
    fsdp_status status = fsdp_model_config_read(dir, &config);
    if (status == FSDP_OK)
        status = fsdp_lit_model_of(&config, name, fsdp_source_path(source), format, &model);
    if (status == FSDP_OK)
        status = fsdp_source_translate_lit(source, format, &model, n_left_out);
    fsdp_free(dir);
    return status;
}
