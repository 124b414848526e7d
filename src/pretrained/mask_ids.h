/* Reads the ids of the mask token and of other special tokens from the tokenizer's files. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include <fsdp/base.h>

/* The end of a message about rows that cannot be masked. */
#define FSDP_NO_MASK_TOKEN                                                                         \
    "it is read from tokenizer.json or vocab.txt, beside the tokenizer or in the model's folder "  \
    "([MASK], or mask_token of tokenizer_config.json)"

typedef struct fsdp_mask_ids {
    int32_t mask_token_id; /* -1: not found */
    int32_t *special;      /* [n_special] ids of special tokens, owned */
    size_t n_special, cap_special;
} fsdp_mask_ids;

/* Read the ids of the mask token and of the other special tokens. In tokenizer.json, these are the
 * added tokens that are special. If there is no tokenizer.json, or if it has no mask token, read
 * vocab.txt instead: the lines [PAD], [UNK], [CLS], [SEP] and the mask token. `tokenizer` is a
 * folder, a file, or NULL. First, look for these two files in the folder `tokenizer`, or in the
 * folder that contains the file `tokenizer`. If no mask token is found there, look in the folder
 * `dir`. If none is found there either, set out->mask_token_id to -1. Leave out ids that are not
 * below vocab_size. */
FSDP_MUST_CHECK fsdp_status fsdp_mask_ids_read(const char *tokenizer, const char *dir,
                                               int64_t vocab_size, fsdp_mask_ids *out);
void fsdp_mask_ids_fini(fsdp_mask_ids *ids);
