/* BERT's objective: replaces some tokens of each row at random. */
#pragma once
#include <fsdp/data.h>

/* Mask the row in example->source, and set example->labels, which must be empty. The label of a
 * chosen token is the token before it was replaced; all other labels are FSDP_IGNORE_INDEX. `key`
 * alone determines what is drawn. `is_special` [vocab_size]: nonzero for ids that are never
 * chosen. */
FSDP_MUST_CHECK fsdp_status fsdp_mask_tokens(const fsdp_masking *masking, const uint8_t *is_special,
                                             int64_t vocab_size, uint64_t key,
                                             fsdp_example *example);

/* Create a dataset that masks the rows of `rows`. On success it owns `rows`. A row that has a label
 * for each token keeps its labels and is not masked. `options` come from
 * fsdp_dataset_complete_options(). `path` is for messages. */
FSDP_MUST_CHECK fsdp_status fsdp_masked_dataset_create(const char *path, fsdp_dataset *rows,
                                                       const fsdp_dataset_options *options,
                                                       fsdp_dataset **out);
