/* Tokens that other files in the folder of a SentencePiece model add to the model:
 * added_tokens.json, and added_tokens_decoder in tokenizer_config.json. */
#pragma once
#include "src/base/json.h"

typedef struct fsdp_added_token {
    char *text; /* never empty */
    size_t length;
    int32_t id;
} fsdp_added_token;

/* Initialise with {0}. */
typedef struct fsdp_added_tokens {
    fsdp_added_token *items;
    size_t n, cap;
    bool first[256]; /* first[b]: whether a token begins with byte b */
} fsdp_added_tokens;

void fsdp_added_tokens_fini(fsdp_added_tokens *tokens);

/* A callback that returns whether a token is to be appended to *tokens. */
typedef bool fsdp_added_token_fn(const void *arg, const char *text, int32_t id);
/* Reads a tokenizer_config.json: {"added_tokens_decoder": {"32000": {"content": "<sep>"}}}. */
FSDP_MUST_CHECK fsdp_status fsdp_added_tokens_decoder(fsdp_added_tokens *tokens,
                                                      fsdp_json_node config,
                                                      fsdp_added_token_fn *wanted, const void *arg);
/* Reads an added_tokens.json: {"<sep>": 32000}. */
FSDP_MUST_CHECK fsdp_status fsdp_added_tokens_map(fsdp_added_tokens *tokens, fsdp_json_node root,
                                                  fsdp_added_token_fn *wanted, const void *arg);

/* Return the added token at the beginning of `text` [left bytes]; NULL if there is none. */
const fsdp_added_token *fsdp_added_tokens_at(const fsdp_added_tokens *tokens, const char *text,
                                             size_t left);
