/* See model_tokenizer.h. */
#include "src/pretrained/model_tokenizer.h"

#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "src/pretrained/mask_ids.h"

fsdp_status fsdp_model_tokenizer_open(const fsdp_model *model, const char *path,
                                      fsdp_model_tokenizer *t)
{
    *t = (fsdp_model_tokenizer){0};
    fsdp_status status = fsdp_tokenizer_open(path ? path : model->dir, &t->tokenizer);
    if (status == FSDP_OK || path)
        return status;
    snprintf(t->why_none, sizeof t->why_none, "%.*s", (int)sizeof t->why_none - 1,
             fsdp_last_error());
    return FSDP_OK;
}

fsdp_status fsdp_model_chat_open(const fsdp_model *model, const char *path, const char *name,
                                 fsdp_model_tokenizer *t)
{
    char *folder = path ? fsdp_path_parent(path) : NULL;
    if (path && !folder)
        return FSDP_ERR_NOMEM;
    const fsdp_status status = fsdp_chat_template_open(!path                          ? model->dir
                                                       : fsdp_path_is_directory(path) ? path
                                                                                      : folder,
                                                       name, &t->chat_template);
    fsdp_free(folder);
    if (status == FSDP_OK || status == FSDP_ERR_NOMEM || name)
        return status;
    snprintf(t->why_no_chat, sizeof t->why_no_chat, "%.*s", (int)sizeof t->why_no_chat - 1,
             fsdp_last_error());
    return FSDP_OK;
}

fsdp_status fsdp_model_check_tokenizer(const fsdp_model *model, const fsdp_tokenizer *tokenizer)
{
    const int32_t pieces = fsdp_tokenizer_vocab_size(tokenizer);
    if (pieces <= model->info.vocab_size)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID,
                      "%s has %d pieces, the model's vocabulary only %lld: they do not belong "
                      "together",
                      fsdp_tokenizer_path(tokenizer), (int)pieces,
                      (long long)model->info.vocab_size);
}

void fsdp_model_tokenizer_close(fsdp_model_tokenizer *t)
{
    fsdp_chat_template_close(t->chat_template);
    fsdp_tokenizer_close(t->tokenizer);
    *t = (fsdp_model_tokenizer){0};
}

fsdp_status fsdp_model_dataset_open(const fsdp_model *model, const fsdp_model_tokenizer *t,
                                    const char *path, const fsdp_dataset_options *options,
                                    fsdp_dataset **set)
{
    const fsdp_model_info *info = &model->info;
    fsdp_dataset_options all = *options;
    all.tokenizer = t->tokenizer;
    all.chat.chat_template = t->chat_template;
    all.chat.why_no_template = *t->why_no_chat ? t->why_no_chat : NULL;
    all.max_positions = info->max_positions;
    all.vocab_size = info->vocab_size;
    all.type_vocab_size = info->type_vocab_size;
    all.num_classes = info->num_labels;
    all.problem_type = info->format.problem_type;
    all.class_names = (const char *const *)model->label_names;
    all.eos_id = info->eos_token_id > 0 ? (int32_t)info->eos_token_id : 0;
    all.decoder_start_id = info->format.decoder_start_token_id;
    fsdp_mask_ids ids = {.mask_token_id = -1};
    fsdp_masking masking = options->masking ? *options->masking : (fsdp_masking){0};
    if (options->task == FSDP_TASK_MASKED_LM) {
        FSDP_TRY(fsdp_mask_ids_read(t->tokenizer ? fsdp_tokenizer_path(t->tokenizer) : NULL,
                                    model->dir, info->vocab_size, &ids));
        masking.mask_token_id = ids.mask_token_id;
        masking.special_ids = ids.special;
        masking.n_special = ids.n_special;
        masking.why_no_mask = FSDP_NO_MASK_TOKEN;
        all.masking = &masking;
    }
    fsdp_status status = fsdp_dataset_open(path, &all, set);
    fsdp_mask_ids_fini(&ids);
    if (status == FSDP_ERR_INVALID && !t->tokenizer && strstr(fsdp_last_error(), "tokenizer"))
        return fsdp_error(status, "%s (%s)", fsdp_last_error(), t->why_none);
    return status;
}
