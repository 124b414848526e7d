/* Converts texts to ids for causal models, for all kinds of files that contain texts. */
#pragma once
#include <fsdp/data.h>

/* Tokenize `prompt` and `text` as one text. The source of `example` becomes bos, the ids of this
 * text, and eos, truncated to options->max_length. bos and the ids of the prompt get the label
 * FSDP_IGNORE_INDEX (Note [Where a prompt ends] in causal_text.c). If `prompt` is "", `example`
 * gets no labels, which means that every id has a loss. Errors do not name the file or line. */
FSDP_MUST_CHECK fsdp_status fsdp_causal_text_encode(const fsdp_dataset_options *options,
                                                    const char *prompt, const char *text,
                                                    fsdp_example *example);

/* Check the tokenizer of `options`. Returns FSDP_ERR_INVALID if there is none, or if it has more
 * ids than the model. If there is none, the message names the file `path` and says what needs a
 * tokenizer: `form`, e.g. "CSV". */
FSDP_MUST_CHECK fsdp_status fsdp_check_tokenizer(const char *path, const char *form,
                                                 const fsdp_dataset_options *options);
