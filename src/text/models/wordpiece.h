/* WordPiece (Schuster and Nakajima, "Japanese and Korean Voice Search", ICASSP 2012), with the same
 * ids as in the tokenizers library. The first token of a word is the longest token with which the
 * word begins. Then the longest token with which the rest of the word begins follows, and so on.
 * Tokens that do not begin a word have a prefix, usually "##". If a word cannot be divided in this
 * way, the whole word becomes the unknown token. */
#pragma once
#include "src/text/models/token_model.h"
#include "src/text/models/vocabulary.h"

/* The fields of a WordPiece model in tokenizer.json. */
typedef struct fsdp_wordpiece_options {
    /* Text of the unknown token, "[UNK]" in BERT. If it is not in the vocabulary, encoding an
     * unknown word fails. */
    const char *unk_token;
    const char *continuing_subword_prefix; /* "##" in BERT */
    /* words with more characters become the unknown token; 100 in BERT */
    int64_t max_input_chars_per_word;
} fsdp_wordpiece_options;

#define FSDP_WORDPIECE_BERT ((fsdp_wordpiece_options){"[UNK]", "##", 100})

/* Create a model. It takes ownership of `vocabulary`, even on failure. */
FSDP_MUST_CHECK fsdp_status fsdp_wordpiece_create(fsdp_vocabulary *vocabulary,
                                                  const fsdp_wordpiece_options *options,
                                                  fsdp_token_model **out);

/* Load a vocab.txt: line n, counted from 0, has the text of the token with the id n. White space at
 * the end of a line is removed. */
FSDP_MUST_CHECK fsdp_status fsdp_wordpiece_load(const char *path,
                                                const fsdp_wordpiece_options *options,
                                                fsdp_token_model **out);
/* Like fsdp_wordpiece_load(), but `text` [bytes] has the contents of a vocab.txt. Error messages
 * call the file `name`. */
FSDP_MUST_CHECK fsdp_status fsdp_wordpiece_parse(const char *name, const char *text, size_t bytes,
                                                 const fsdp_wordpiece_options *options,
                                                 fsdp_token_model **out);
