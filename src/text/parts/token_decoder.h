/* The decoder of a tokenizer.json: makes one text from the texts of tokens. */
#pragma once
#include "src/base/json.h"
#include "src/text/parts/token_texts.h"

typedef struct fsdp_token_decoder fsdp_token_decoder;

/* Make a decoder from JSON. If `node` is absent or null, *out is NULL. Errors contain the file and
 * the key path. */
FSDP_MUST_CHECK fsdp_status fsdp_token_decoder_from_json(fsdp_json_node node,
                                                         fsdp_token_decoder **out);
void fsdp_token_decoder_destroy(fsdp_token_decoder *decoder); /* accepts NULL */

/* Append the text of the tokens `texts` to `out`. Without a decoder (NULL), they are joined by
 * spaces. The contents of `texts` are lost. */
FSDP_MUST_CHECK fsdp_status fsdp_token_decoder_run(const fsdp_token_decoder *decoder,
                                                   fsdp_token_texts *texts, fsdp_str *out);

/* clean_up_tokenization() of transformers: remove spaces before punctuation and contractions.
 * `word_piece`: as the WordPiece decoder does, which also shortens " do not". */
void fsdp_clean_up_tokenization(const char *text, size_t length, bool word_piece, fsdp_str *out);
