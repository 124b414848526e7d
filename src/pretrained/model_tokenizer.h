/* Opens the tokenizer of a model, and datasets whose rows have the form that the model needs. */
#pragma once
#include <fsdp/data.h>
#include <fsdp/text.h>

#include "src/pretrained/model.h"

typedef struct fsdp_model_tokenizer { /* zero-filled: not open */
    /* NULL: there is no tokenizer. Data that are token ids do not need one. */
    fsdp_tokenizer *tokenizer;
    char why_none[256]; /* the reason why `tokenizer` is NULL, for error messages */
    /* NULL: there is no chat template. Only conversations need one. */
    fsdp_chat_template *chat_template;
    char why_no_chat[512]; /* the reason why `chat_template` is NULL, for error messages */
} fsdp_model_tokenizer;

/* Open the tokenizer at `path`. If `path` is NULL, open the tokenizer of the model. If the model
 * has no tokenizer, return FSDP_OK and set t->tokenizer to NULL, because only some datasets need
 * one. */
FSDP_MUST_CHECK fsdp_status fsdp_model_tokenizer_open(const fsdp_model *model, const char *path,
                                                      fsdp_model_tokenizer *t);
/* Open the chat template `name` of the tokenizer that fsdp_model_tokenizer_open() opened with the
 * same `path` (fsdp_chat_template_open()). If `name` is NULL and the folder has no template, or one
 * that cannot be used, return FSDP_OK and set t->chat_template to NULL. */
FSDP_MUST_CHECK fsdp_status fsdp_model_chat_open(const fsdp_model *model, const char *path,
                                                 const char *name, fsdp_model_tokenizer *t);
/* Check that the model's vocabulary is large enough for the tokenizer. The message contains the
 * tokenizer's path. */
FSDP_MUST_CHECK fsdp_status fsdp_model_check_tokenizer(const fsdp_model *model,
                                                       const fsdp_tokenizer *tokenizer);
void fsdp_model_tokenizer_close(fsdp_model_tokenizer *t); /* *t is zero-filled afterwards */

/* Open a dataset with fsdp_dataset_open(). The tokenizer and the chat template come from *t, the
 * limits from the model, and all other options from *options. */
FSDP_MUST_CHECK fsdp_status fsdp_model_dataset_open(const fsdp_model *model,
                                                    const fsdp_model_tokenizer *t, const char *path,
                                                    const fsdp_dataset_options *options,
                                                    fsdp_dataset **set);
