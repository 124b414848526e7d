/* Learns the merges of a byte-level BPE vocabulary from words, with the same result as BpeTrainer
 * of the tokenizers library. Words are counted first. Then the most frequent pair of adjacent
 * tokens is merged, again and again, until the vocabulary is large enough. */
#pragma once
#include "src/text/models/bpe.h"

typedef struct fsdp_bpe_trainer fsdp_bpe_trainer;

typedef struct fsdp_bpe_train_options {
    int64_t vocab_size;                /* tokens, with special tokens and the 256 bytes */
    int64_t min_frequency;             /* a pair must occur this often to be merged; 0 is like 1 */
    const char *const *special_tokens; /* [n_special_tokens]; they get the first ids */
    size_t n_special_tokens;
} fsdp_bpe_train_options;

/* The result of training: arguments for fsdp_bpe_create(), whose options must have raw_bytes. */
typedef struct fsdp_bpe_learned {
    /* Special tokens, then the characters of GPT-2's alphabet by code point, then merged tokens. */
    fsdp_vocabulary *vocabulary;
    fsdp_bpe_merge *merges; /* [n_merges]; the index is the rank */
    size_t n_merges;
} fsdp_bpe_learned;

FSDP_MUST_CHECK fsdp_status fsdp_bpe_trainer_create(fsdp_bpe_trainer **out);
void fsdp_bpe_trainer_destroy(fsdp_bpe_trainer *trainer); /* accepts NULL */

/* Add `count` occurrences of a word, which is a piece from the pre-tokenizer, as raw bytes. Return
 * FSDP_ERR_UNSUPPORTED if there are more than FSDP_TOKEN_ID_MAX different words, or if they have
 * more than 4 GB. */
FSDP_MUST_CHECK fsdp_status fsdp_bpe_trainer_add(fsdp_bpe_trainer *trainer, const char *word,
                                                 size_t length, uint64_t count);

/* Learn from the words. If there are not enough pairs, the vocabulary is smaller than vocab_size.
 * Return FSDP_ERR_INVALID if vocab_size has no room for the special tokens and the bytes, and
 * FSDP_ERR_UNSUPPORTED if the different words have more than 1 GB. May be called several times. */
FSDP_MUST_CHECK fsdp_status fsdp_bpe_trainer_learn(const fsdp_bpe_trainer *trainer,
                                                   const fsdp_bpe_train_options *options,
                                                   fsdp_bpe_learned *out);
void fsdp_bpe_learned_fini(fsdp_bpe_learned *learned); /* accepts {0} */
