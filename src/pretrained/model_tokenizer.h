/* The tokenizer of a model, and datasets with rows in the form that the model takes. */
#pragma once
#include <fsdp/data.h>
#include <fsdp/text.h>

#include "src/pretrained/model.h"

typedef struct fsdp_model_tokenizer { /* zero-filled: not open */
    fsdp_tokenizer *tokenizer;        /* NULL: none, which is enough for rows of ids */
    char why_none[256];               /* the error message if there is none */
} fsdp_model_tokenizer;

/* Opens the tokenizer at `path`, or the model's own if it is NULL. If the model has none, that is
 * an error only when a dataset needs it. */
FSDP_MUST_CHECK fsdp_status fsdp_model_tokenizer_open(const fsdp_model *model, const char *path,
                                                      fsdp_model_tokenizer *t);
void fsdp_model_tokenizer_close(fsdp_model_tokenizer *t); /* leaves it zero-filled */

/* fsdp_dataset_open() with t's tokenizer and the model's limits; *options has the rest. */
FSDP_MUST_CHECK fsdp_status fsdp_model_dataset_open(const fsdp_model *model,
                                                    const fsdp_model_tokenizer *t, const char *path,
                                                    const fsdp_dataset_options *options,
                                                    fsdp_dataset **set);
