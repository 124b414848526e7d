/* The Unigram model: splits a piece into its most probable tokens (Kudo, "Subword Regularization",
 * ACL 2018), with the same ids as in the tokenizers library. Logarithms of probabilities are added
 * in double. If several results are equally probable, the one with the longest last token is taken.
 * (libsentencepiece adds in float, and its versions round differently.) */
#pragma once
#include "src/text/models/token_model.h"
#include "src/text/models/vocabulary.h"

/* The fields of a Unigram model in tokenizer.json. */
typedef struct fsdp_unigram_options {
    /* The unknown token, for characters that are in no token; adjacent unknown characters become
     * one unknown token. -1: there is none, and encoding such a character fails. */
    int64_t unk_id;
    /* an unknown text becomes byte pieces such as "<0x0A>", if the vocabulary has one for each of
     * its bytes */
    bool byte_fallback;
} fsdp_unigram_options;

/* Create a model. It takes ownership of `vocabulary`, even on failure. `scores` [size of the
 * vocabulary] are the logarithms of the tokens' probabilities. They are needed only during the
 * call. The vocabulary must have a token for each id from 0 to its largest id. */
FSDP_MUST_CHECK fsdp_status fsdp_unigram_create(fsdp_vocabulary *vocabulary, const double *scores,
                                                const fsdp_unigram_options *options,
                                                fsdp_token_model **out);
