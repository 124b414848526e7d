/* Converts texts to ids for causal models, for all kinds of files that contain texts. */
#pragma once
#include <fsdp/data.h>

/* Set the source of `example` to bos, the ids of `prompt` and `text` tokenized as one text, and
 * eos, truncated to options->max_length. Labels are FSDP_IGNORE_INDEX for bos and for the ids that
 * the prompt alone also begins with. Without a prompt ("") every id has a loss, and there are no
 * labels. Errors do not name the file or line. */
FSDP_MUST_CHECK fsdp_status fsdp_causal_text_encode(const fsdp_dataset_options *options,
                                                    const char *prompt, const char *text,
                                                    fsdp_example *example);

/* Check the tokenizer of `options`. FSDP_ERR_INVALID, with the name of the file, if there is no
 * tokenizer, or if it has more ids than the model. `form` is what needs the tokenizer, e.g.
 * "CSV". */
FSDP_MUST_CHECK fsdp_status fsdp_check_tokenizer(const char *path, const char *form,
                                                 const fsdp_dataset_options *options);
