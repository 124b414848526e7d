/* Splits a piece into its most probable tokens under a unigram model (Kudo, "Subword
 * Regularization", ACL 2018), id for id as the tokenizers library: logarithms of probabilities are
 * added in double, and among equally probable results the one whose last token is longest wins.
 * (libsentencepiece adds in float, and its versions round differently.) */
#pragma once
#include "src/text/models/token_model.h"
#include "src/text/models/vocabulary.h"

/* The fields of a Unigram model in tokenizer.json. */
typedef struct fsdp_unigram_options {
    /* The unknown token, for characters that are in no token; adjacent ones are fused. -1: none,
     * and encoding such a character fails. */
    int64_t unk_id;
    bool byte_fallback; /* unknown text becomes byte pieces ("<0x0A>"), if the vocabulary has a
                           piece for each of its bytes */
} fsdp_unigram_options;

/* Create a model. It takes ownership of `vocabulary`, also on failure. scores [size of the
 * vocabulary] has the logarithm of the probability of each token, and is only needed during the
 * call. Ids must have no holes. */
FSDP_MUST_CHECK fsdp_status fsdp_unigram_create(fsdp_vocabulary *vocabulary, const double *scores,
                                                const fsdp_unigram_options *options,
                                                fsdp_token_model **out);
