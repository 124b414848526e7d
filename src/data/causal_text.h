/* Converts texts for causal models to ids, for every kind of file that contains texts. */
#pragma once
#include <fsdp/data.h>

/* Set the source to bos, the ids of `prompt` and `text` as one text, and eos, truncated to
 * options->max_length. Labels are FSDP_IGNORE_INDEX for bos and the ids that the prompt alone has
 * too. Without a prompt ("") every id has a loss, and there are no labels. Errors do not name the
 * file or line. */
FSDP_MUST_CHECK fsdp_status fsdp_causal_text_encode(const fsdp_dataset_options *options,
                                                    const char *prompt, const char *text,
                                                    fsdp_example *example);

/* FSDP_ERR_INVALID, with the name of the file, if options have no tokenizer, or one with more ids
 * than the model. `form` is what needs the tokenizer, e.g. "CSV". */
FSDP_MUST_CHECK fsdp_status fsdp_check_tokenizer(const char *path, const char *form,
                                                 const fsdp_dataset_options *options);
