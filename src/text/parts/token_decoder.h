/* The decoder of a tokenizer.json: makes one text from the texts of a list of tokens. */
#pragma once
#include "src/base/json.h"
#include "src/text/parts/token_texts.h"

typedef struct fsdp_token_decoder fsdp_token_decoder;

/* Create a decoder from JSON. If `node` is absent or null, *out is set to NULL. Error messages
 * contain the file and the path of the key. */
FSDP_MUST_CHECK fsdp_status fsdp_token_decoder_from_json(fsdp_json_node node,
                                                         fsdp_token_decoder **out);
void fsdp_token_decoder_destroy(fsdp_token_decoder *decoder); /* accepts NULL */

/* Decode the tokens `texts`, and append the resulting text to `out`. If `decoder` is NULL, the
 * texts are joined by spaces. The contents of `texts` are lost. */
FSDP_MUST_CHECK fsdp_status fsdp_token_decoder_run(const fsdp_token_decoder *decoder,
                                                   fsdp_token_texts *texts, fsdp_str *out);

/* Remove spaces before punctuation and contractions, like clean_up_tokenization() of transformers.
 * If word_piece is true, do what the WordPiece decoder does, which also replaces " do not" by "
 * don't". */
void fsdp_clean_up_tokenization(const char *text, size_t length, bool word_piece, fsdp_str *out);
