/* Learns the merges of a byte-level BPE vocabulary from words, with the same result as BpeTrainer
 * of the tokenizers library. First, the caller adds words with their counts. Then the most frequent
 * pair of adjacent tokens is merged into a new token, again and again, until the vocabulary is
 * large enough. */
#pragma once
#include "src/text/models/bpe.h"

typedef struct fsdp_bpe_trainer fsdp_bpe_trainer;

typedef struct fsdp_bpe_train_options {
    /* number of tokens, including the special tokens and the 256 bytes */
    int64_t vocab_size;
    /* a pair is merged only if it occurs at least this often; 0 has the same effect as 1 */
    int64_t min_frequency;
    const char *const *special_tokens; /* [n_special_tokens]; they get the first ids, from 0 */
    size_t n_special_tokens;
} fsdp_bpe_train_options;

/* The result of training: arguments for fsdp_bpe_create(), whose options must have raw_bytes. */
typedef struct fsdp_bpe_learned {
    /* First come the special tokens, then the characters of GPT-2's alphabet in the order of their
     * code points, then the tokens that merges have made. */
    fsdp_vocabulary *vocabulary;
    fsdp_bpe_merge *merges; /* [n_merges]; the index of a merge is its rank */
    size_t n_merges;
} fsdp_bpe_learned;

FSDP_MUST_CHECK fsdp_status fsdp_bpe_trainer_create(fsdp_bpe_trainer **out);
void fsdp_bpe_trainer_destroy(fsdp_bpe_trainer *trainer); /* accepts NULL */

/* Add `count` occurrences of a word. A word is a piece from the pre-tokenizer, as raw bytes. Return
 * FSDP_ERR_UNSUPPORTED if there are more than FSDP_TOKEN_ID_MAX distinct words, or if the distinct
 * words have more than 4 GB together. */
FSDP_MUST_CHECK fsdp_status fsdp_bpe_trainer_add(fsdp_bpe_trainer *trainer, const char *word,
                                                 size_t length, uint64_t count);

/* Learn merges from the words. If too few pairs can be merged, the vocabulary is smaller than
 * vocab_size. Return FSDP_ERR_INVALID if vocab_size is less than the number of special tokens and
 * bytes or above FSDP_TOKEN_ID_MAX, and FSDP_ERR_UNSUPPORTED if the distinct words have more than 1
 * GB. This can be called several times, with different options. */
FSDP_MUST_CHECK fsdp_status fsdp_bpe_trainer_learn(const fsdp_bpe_trainer *trainer,
                                                   const fsdp_bpe_train_options *options,
                                                   fsdp_bpe_learned *out);
void fsdp_bpe_learned_fini(fsdp_bpe_learned *learned); /* accepts {0} */
