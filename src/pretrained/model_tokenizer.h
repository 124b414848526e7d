/* Opens the tokenizer of a model, and datasets whose rows have the form that the model needs. */
#pragma once
#include <fsdp/data.h>
#include <fsdp/text.h>

#include "src/pretrained/model.h"

typedef struct fsdp_model_tokenizer { /* zero-filled: not open */
    fsdp_tokenizer *tokenizer;        /* NULL: there is none; a dataset of token ids needs none */
    char why_none[256];               /* the error message if `tokenizer` is NULL */
} fsdp_model_tokenizer;

/* Open the tokenizer at `path` (NULL: the model's own). If the model has no tokenizer, that is an
 * error only when a dataset needs one. */
FSDP_MUST_CHECK fsdp_status fsdp_model_tokenizer_open(const fsdp_model *model, const char *path,
                                                      fsdp_model_tokenizer *t);
void fsdp_model_tokenizer_close(fsdp_model_tokenizer *t); /* *t is zero-filled afterwards */

/* Call fsdp_dataset_open() with t's tokenizer, the model's limits, and the other options from
 * *options. */
FSDP_MUST_CHECK fsdp_status fsdp_model_dataset_open(const fsdp_model *model,
                                                    const fsdp_model_tokenizer *t, const char *path,
                                                    const fsdp_dataset_options *options,
                                                    fsdp_dataset **set);
