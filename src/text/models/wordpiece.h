/* WordPiece (Schuster and Nakajima, "Japanese and Korean Voice Search", ICASSP 2012), id for id as
 * in the tokenizers library. The longest token that begins a word is its first token, and so on.
 * Tokens inside a word begin with a prefix, "##". A word that cannot be divided into tokens this
 * way becomes the unknown token. */
#pragma once
#include "src/text/models/token_model.h"
#include "src/text/models/vocabulary.h"

/* The fields of a WordPiece model in tokenizer.json. */
typedef struct fsdp_wordpiece_options {
    /* Text of the unknown token; "[UNK]" in BERT. If the vocabulary does not contain it, encoding
     * an unknown word fails. */
    const char *unk_token;
    const char *continuing_subword_prefix; /* "##" in BERT */
    int64_t max_input_chars_per_word;      /* longer words become the unknown token; 100 in BERT */
} fsdp_wordpiece_options;

#define FSDP_WORDPIECE_BERT ((fsdp_wordpiece_options){"[UNK]", "##", 100})

/* Create a model. It takes ownership of `vocabulary`, also on failure. */
FSDP_MUST_CHECK fsdp_status fsdp_wordpiece_create(fsdp_vocabulary *vocabulary,
                                                  const fsdp_wordpiece_options *options,
                                                  fsdp_token_model **out);

/* Load vocab.txt: line n, counted from 0, is the token with id n. White space at the end of a line
 * does not belong to the token. */
FSDP_MUST_CHECK fsdp_status fsdp_wordpiece_load(const char *path,
                                                const fsdp_wordpiece_options *options,
                                                fsdp_token_model **out);
/* Like fsdp_wordpiece_load(), but for the contents `text` [bytes] of a vocab.txt. Errors call the
 * file `name`. */
FSDP_MUST_CHECK fsdp_status fsdp_wordpiece_parse(const char *name, const char *text, size_t bytes,
                                                 const fsdp_wordpiece_options *options,
                                                 fsdp_token_model **out);
