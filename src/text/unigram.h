/* Splits a word into its most probable pieces under a unigram model (Kudo, "Subword
 * Regularization", ACL 2018), with sums in double.
 *
 * libsentencepiece finds these pieces too, but it adds in float, and its versions round and break
 * ties differently: "!!!!!!" is <!, !!!!!> in one and <!!!!!, !> in another, both with the same
 * probability. Fast tokenizers add in double and keep the path that they find first. This file does
 * so too, and its ids do not depend on the installed library. */
#pragma once
#include <fsdp/text.h>

#include "src/text/sentencepiece.h"

typedef struct fsdp_unigram fsdp_unigram;

/* Builds a trie over the normal pieces of `sp`, which is borrowed. */
FSDP_MUST_CHECK fsdp_status fsdp_unigram_create(const fsdp_sentencepiece *sp, fsdp_unigram **out);
void fsdp_unigram_destroy(fsdp_unigram *unigram); /* accepts NULL */

/* Append to *list the ids of the best path for a normalised word [length] of UTF-8. A run of
 * unknown characters becomes one unknown id. Thread-safe. */
FSDP_MUST_CHECK fsdp_status fsdp_unigram_encode(const fsdp_unigram *unigram, const char *word,
                                                size_t length, fsdp_token_list *list);
