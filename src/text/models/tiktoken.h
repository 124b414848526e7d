/* Reads tiktoken's files, such as Llama 3's tokenizer.model. Each line has the bytes of a token in
 * base64 and its rank, which is also its id. */
#pragma once
#include "src/text/models/token_model.h"

/* Return true if `bytes` [count] begin with a line of a tiktoken file. (A SentencePiece model,
 * which may also be called tokenizer.model, does not.) */
bool fsdp_tiktoken_matches(const char *bytes, size_t count);

/* Create a BPE model from the contents of a file. The model works on bytes
 * (fsdp_bpe_options.raw_bytes), and the texts of its tokens are spelled in GPT-2's alphabet. Two
 * adjacent tokens can be merged if their bytes together are a token. The merge whose result has the
 * lowest rank is made first. A piece that is itself a token becomes that token without any merge.
 * Special tokens are not in the file. Error messages call the file `name` and contain the line. */
FSDP_MUST_CHECK fsdp_status fsdp_tiktoken_parse(const char *name, const char *text, size_t bytes,
                                                fsdp_token_model **out);
FSDP_MUST_CHECK fsdp_status fsdp_tiktoken_load(const char *path, fsdp_token_model **out);
