/* Splits a word into its most probable pieces under a unigram model (Kudo, "Subword
 * Regularization", ACL 2018). Logarithms of probabilities are added in double.
 *
 * libsentencepiece also finds the most probable pieces, but it adds in float. Its versions round
 * differently, and choose differently among equally probable results. For example, one version
 * splits "!!!!!!" into "!" and "!!!!!", and another version splits it into "!!!!!" and "!". Both
 * results are equally probable. The fast tokenizers of transformers add in double, and choose the
 * result that they find first. The code here does what those tokenizers do, so its ids do not
 * depend on the installed version of libsentencepiece. */
#pragma once
#include <fsdp/text.h>

#include "src/text/sentencepiece.h"

typedef struct fsdp_sentencepiece_unigram fsdp_sentencepiece_unigram;

/* Build a trie of the normal pieces of `sp`. `sp` must exist until
 * fsdp_sentencepiece_unigram_destroy(). */
FSDP_MUST_CHECK fsdp_status fsdp_sentencepiece_unigram_create(const fsdp_sentencepiece *sp,
                                                              fsdp_sentencepiece_unigram **out);
void fsdp_sentencepiece_unigram_destroy(fsdp_sentencepiece_unigram *unigram); /* accepts NULL */

/* Append the ids of the most probable pieces of `word` [length] to *list. The word is normalised
 * UTF-8. A run of unknown characters becomes one unknown id. Thread-safe. */
FSDP_MUST_CHECK fsdp_status
fsdp_sentencepiece_unigram_encode(const fsdp_sentencepiece_unigram *unigram, const char *word,
                                  size_t length, fsdp_token_list *list);
