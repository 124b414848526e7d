/* Converts texts to ids for causal models. Used for CSV, JSON lines and plain text. */
#pragma once
#include <fsdp/data.h>

/* A text of UTF-8, which may contain NUL characters and need not end in one. */
typedef struct fsdp_data_text {
    const char *bytes; /* [length]; NULL: no text, and `length` is 0 */
    size_t length;
} fsdp_data_text;

/* Tokenize `prompt` and `text` together, as one text. Set example->source to bos, the ids of this
 * text and eos, truncated to options->max_length ids. Set example->labels to a copy of
 * example->source in which FSDP_IGNORE_INDEX replaces bos and the ids of the prompt (Note [Where a
 * prompt ends] in causal_text.c). There is one exception: if `prompt` is empty, or if
 * options->chat.completion_loss is FSDP_COMPLETION_LOSS_ALL, example->labels is left empty. Empty
 * labels mean that every id has a loss. Set *cut to the number of ids beyond max_length; `cut` may
 * be NULL. Error messages contain neither file nor line; the caller adds them. */
FSDP_MUST_CHECK fsdp_status fsdp_causal_text_encode(const fsdp_dataset_options *options,
                                                    fsdp_data_text prompt, fsdp_data_text text,
                                                    fsdp_example *example, int64_t *cut);

/* Check options->tokenizer. Returns FSDP_ERR_INVALID if it is NULL, or if it has more ids than
 * options->vocab_size. If it is NULL, the message is "PATH: FORM needs a tokenizer", with the
 * arguments `path` and `form` (e.g. "CSV"). */
FSDP_MUST_CHECK fsdp_status fsdp_check_tokenizer(const char *path, const char *form,
                                                 const fsdp_dataset_options *options);
