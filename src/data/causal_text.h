/* Texts of causal models as ids, for every kind of file that has texts. */
#pragma once
#include <fsdp/data.h>

/* bos, the ids of `prompt` and `text` as one text, eos, cut to options->max_length; labels have
 * FSDP_IGNORE_INDEX for bos and the ids that the prompt alone has too. Without a prompt ("")
 * every id has a loss, and there are no labels. Errors name no place. */
FSDP_MUST_CHECK fsdp_status fsdp_causal_text_encode(const fsdp_dataset_options *options,
                                                    const char *prompt, const char *text,
                                                    fsdp_example *example);

/* FSDP_ERR_INVALID, naming the file, if options have no tokenizer, or one with more ids than the
 * model. `form` is what needs it, e.g. "CSV". */
FSDP_MUST_CHECK fsdp_status fsdp_check_tokenizer(const char *path, const char *form,
                                                 const fsdp_dataset_options *options);
