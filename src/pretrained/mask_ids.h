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

/* Read the ids from the added tokens of tokenizer.json that are special. If there is no
 * tokenizer.json, or if it has no mask token, read the ids from vocab.txt instead: those of the
 * lines [PAD], [UNK], [CLS], [SEP] and the mask token. `tokenizer` is a folder, a file, or NULL.
 * The two files are searched for in this folder, or in the folder of this file. If no mask token is
 * found there, they are searched for in the folder `dir`. If no mask token is found at all,
 * out->mask_token_id is -1. Ids that are not below vocab_size are left out. */
FSDP_MUST_CHECK fsdp_status fsdp_mask_ids_read(const char *tokenizer, const char *dir,
                                               int64_t vocab_size, fsdp_mask_ids *out);
void fsdp_mask_ids_fini(fsdp_mask_ids *ids);
