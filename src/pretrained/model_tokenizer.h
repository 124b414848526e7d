/* The tokenizer that a model is used with, and rows of text as the model takes them. */
#pragma once
#include <fsdp/data.h>
#include <fsdp/text.h>

#include "src/pretrained/model.h"

typedef struct fsdp_model_tokenizer { /* zero-filled: not opened */
    fsdp_tokenizer *tokenizer;        /* NULL: ready-made ids need none */
    char why_none[256];               /* what was said then */
} fsdp_model_tokenizer;

/* The tokenizer of `path`, else (NULL) the model's own, whose absence is an error only once a
 * dataset asks for it. */
FSDP_MUST_CHECK fsdp_status fsdp_model_tokenizer_open(const fsdp_model *model, const char *path,
                                                      fsdp_model_tokenizer *t);
void fsdp_model_tokenizer_close(fsdp_model_tokenizer *t); /* leaves it zero-filled */

/* fsdp_dataset_open() with t's tokenizer and the bounds of the model: *options has the rest. */
FSDP_MUST_CHECK fsdp_status fsdp_model_dataset_open(const fsdp_model *model,
                                                    const fsdp_model_tokenizer *t, const char *path,
                                                    const fsdp_dataset_options *options,
                                                    fsdp_dataset **set);
